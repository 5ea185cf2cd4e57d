//! Certificates and their keys. They are read from files, chosen by the name that a client requests (SNI, RFC 6066), and replaced
//! while the server runs.

use super::der::{self, Facts};
use super::tickets::{SECRET_BYTES_MIN, Tickets};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{ServerConfig, SignatureAlgorithm, crypto::ring};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stentor_json::without_byte_order_mark;

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and the chain to a root, in this order.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The options of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates. A client receives the first one with the name that it requests, or otherwise the first of all.
    pub certificates: Vec<CertificateFiles>,
    /// A file with the secret from which the keys of session tickets are derived. `None` for a random secret.
    pub ticket_secret_file: Option<PathBuf>,
}

/// The reason why TLS can't be used with these files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// The mistake.
    pub reason: String,
}

/// The TLS state of a server: certificates and keys of tickets, shared by all cores. Clones share the same state.
#[derive(Clone, Debug)]
pub struct TlsHandle {
    store: Arc<Store>,
    config: Arc<ServerConfig>,
}

impl TlsHandle {
    /// Reads the files. Also returns warnings for the operator.
    ///
    /// # Errors
    /// A file can't be read or has the wrong contents, or a key doesn't belong to its certificate.
    pub fn load(options: &TlsOptions) -> Result<(Self, Vec<String>), TlsError> {
        let (certificates, warnings) = Certificates::load(&options.certificates)?;
        let no_random = || TlsError { file: PathBuf::new(), reason: "the system has no random bytes".into() };
        let tickets = Tickets::new(secret(options)?).map(Arc::new).ok_or_else(no_random)?;
        let store = Arc::new(Store { current: RwLock::new(Arc::new(certificates)), tickets });
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let unsupported = |error: rustls::Error| TlsError { file: PathBuf::new(), reason: error.to_string() };
        let builder = builder.with_safe_default_protocol_versions().map_err(unsupported)?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(store.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Sessions are stored in tickets only.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = store.tickets.clone();
        Ok((Self { store, config: Arc::new(config) }, warnings))
    }

    /// Returns all mistakes in the files. [`TlsHandle::load`] returns only the first one.
    pub fn mistakes(options: &TlsOptions) -> Vec<TlsError> {
        let of_files = |files: &CertificateFiles| match (chain(files), private_key(files)) {
            (Ok(_), Ok(_)) => certified_key(files).err().into_iter().collect::<Vec<_>>(),
            (chain, key) => chain.err().into_iter().chain(key.err()).collect(),
        };
        let of_secret = secret(options).err();
        options.certificates.iter().flat_map(of_files).chain(of_secret).collect()
    }

    /// Reads files for [`TlsHandle::commit`].
    ///
    /// # Errors
    /// As [`TlsHandle::load`].
    pub fn prepare(options: &TlsOptions) -> Result<PreparedTls, TlsError> {
        let (certificates, warnings) = Certificates::load(&options.certificates)?;
        Ok(PreparedTls { certificates, secret: secret(options)?, warnings })
    }

    /// Replaces certificates and secret. New handshakes use them from now on; open connections stay.
    ///
    /// If the new configuration has no ticket secret, the previous one stays in use until the server ends.
    pub fn commit(&self, PreparedTls { certificates, secret, .. }: PreparedTls) {
        *self.store.current.write() = Arc::new(certificates);
        if let Some(secret) = secret {
            self.store.tickets.replace(secret);
        }
    }

    /// Prepares and commits. Also returns warnings for the operator. After an error, all stays as it was.
    ///
    /// # Errors
    /// As [`TlsHandle::load`].
    pub fn replace(&self, options: &TlsOptions) -> Result<Vec<String>, TlsError> {
        let prepared = Self::prepare(options)?;
        let warnings = prepared.warnings.clone();
        self.commit(prepared);
        Ok(warnings)
    }

    /// The certificates' files, with their expiry since 1970.
    pub fn expiries(&self) -> Vec<(PathBuf, Duration)> {
        self.store.current().expiries.clone()
    }

    /// Approximate CPU time of a signature by the slowest key.
    pub(super) fn signing_time(&self) -> Duration {
        self.store.current().signing_time
    }

    /// The configuration of rustls, for other servers of the process.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }
}

/// Certificates and a ticket secret that were read and checked.
#[derive(Debug)]
pub struct PreparedTls {
    certificates: Certificates,
    secret: Option<Vec<u8>>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Store {
    current: RwLock<Arc<Certificates>>,
    tickets: Arc<Tickets>,
}

impl Store {
    fn current(&self) -> Arc<Certificates> {
        self.current.read().clone()
    }
}

impl ResolvesServerCert for Store {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().find(hello.server_name()))
    }
}

#[derive(Debug)]
struct Certificates {
    first: Arc<CertifiedKey>,
    /// Certificates by name, including names such as `*.example.com`.
    by_name: HashMap<String, Arc<CertifiedKey>>,
    expiries: Vec<(PathBuf, Duration)>,
    /// Approximate CPU time of a signature by the slowest key.
    signing_time: Duration,
}

impl Certificates {
    fn load(files: &[CertificateFiles]) -> Result<(Self, Vec<String>), TlsError> {
        let mut loaded = Vec::new();
        for files in files {
            loaded.push((files.certificate.clone(), certified_key(files)?));
        }
        let none = || TlsError { file: PathBuf::new(), reason: "TLS needs a certificate".into() };
        let first = loaded.first().map(|(_, (key, _))| key.clone()).ok_or_else(none)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let signing_time = loaded.iter().map(|(_, (key, _))| signing_time(key)).max().unwrap_or_default();
        let (mut warnings, mut expiries, mut by_name) = (Vec::new(), Vec::new(), HashMap::new());
        for (file, (key, facts)) in loaded {
            if facts.not_after <= now {
                warnings.push(format!("{}: the certificate has expired", file.display()));
            } else if facts.not_before > now {
                warnings.push(format!("{}: the certificate is not valid yet", file.display()));
            }
            for name in facts.names {
                by_name.entry(name).or_insert_with(|| key.clone());
            }
            expiries.push((file, facts.not_after));
        }
        Ok((Self { first, by_name, expiries, signing_time }, warnings))
    }

    /// The certificate for a name.
    fn find(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let found = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            let wildcard = || Some(format!("*.{}", name.split_once('.')?.1));
            self.by_name.get(&name).or_else(|| self.by_name.get(&wildcard()?))
        });
        found.unwrap_or(&self.first).clone()
    }
}

/// Approximate CPU time of a signature by a key.
fn signing_time(key: &CertifiedKey) -> Duration {
    let bytes = key.key.public_key().map_or(usize::MAX, |key| key.len());
    signing_time_of(key.key.algorithm(), bytes)
}

/// Returns the [`signing_time`] of a key. `bytes`: the length of the public key's SubjectPublicKeyInfo.
fn signing_time_of(algorithm: SignatureAlgorithm, bytes: usize) -> Duration {
    Duration::from_micros(match (algorithm, bytes) {
        (SignatureAlgorithm::RSA, ..=300) => 600,
        (SignatureAlgorithm::RSA, ..=430) => 2_000,
        (SignatureAlgorithm::RSA, ..=560) => 4_500,
        // The longest key that is supported has 8,192 bits.
        (SignatureAlgorithm::RSA, _) => 36_000,
        (SignatureAlgorithm::ECDSA, 101..) => 1_000,
        _ => 50,
    })
}

/// Returns the bytes of a file, without a byte order mark.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let error = |reason: String| TlsError { file: path.to_owned(), reason };
    let file = File::open(path).map_err(|e| error(format!("can't be read: {e}")))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| error(format!("can't be read: {e}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(error(format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(without_byte_order_mark(&bytes).to_vec())
}

fn secret(options: &TlsOptions) -> Result<Option<Vec<u8>>, TlsError> {
    let Some(file) = &options.ticket_secret_file else { return Ok(None) };
    let secret = read(file)?.trim_ascii().to_vec();
    if secret.len() < SECRET_BYTES_MIN {
        let reason = format!(
            "a ticket secret has at least {SECRET_BYTES_MIN} bytes; write one with `openssl rand -hex 32`"
        );
        return Err(TlsError { file: file.clone(), reason });
    }
    Ok(Some(secret))
}

/// Reads a certificate with its intermediate certificates.
fn chain(files: &CertificateFiles) -> Result<(Vec<CertificateDer<'static>>, Facts), TlsError> {
    let wrong = |reason: &str| TlsError { file: files.certificate.clone(), reason: reason.into() };
    let chain = CertificateDer::pem_slice_iter(&read(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| wrong("has a broken PEM certificate"))?;
    let leaf = chain.first().ok_or_else(|| wrong("has no PEM certificate"))?;
    let facts = der::facts(leaf).ok_or_else(|| wrong("has a certificate that can't be read"))?;
    Ok((chain, facts))
}

/// Reads a private key.
fn private_key(files: &CertificateFiles) -> Result<Arc<dyn SigningKey>, TlsError> {
    let wrong = |reason: &str| TlsError { file: files.key.clone(), reason: reason.into() };
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|_| wrong("has no PEM private key (one with a password must be decrypted first)"))?;
    ring::sign::any_supported_type(&key).map_err(|_| {
        wrong("has a private key of an unsupported kind: use RSA, ECDSA P-256 or P-384, or Ed25519")
    })
}

fn certified_key(files: &CertificateFiles) -> Result<(Arc<CertifiedKey>, Facts), TlsError> {
    let in_certificate = |reason: &str| TlsError { file: files.certificate.clone(), reason: reason.into() };
    let in_key = |reason: &str| TlsError { file: files.key.clone(), reason: reason.into() };
    let (chain, facts) = chain(files)?;
    let key = private_key(files)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) => Ok((Arc::new(certified), facts)),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(in_key(&format!("is not the key of the certificate in {}", files.certificate.display())))
        }
        Err(error) => Err(in_certificate(&error.to_string())),
    }
}

#[cfg(test)]
mod tests;
