//! TLS for the control plane's requests. Certificates of servers are always verified.

use crate::error::Error;
use crate::options::{FeedsOptions, UpstreamOptions};
use rustls::client::WantsClientCert;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use stentor_json::without_byte_order_mark;

/// Makes a TLS configuration that trusts the certificates of a file, or the system's. If it isn't `needed`,
/// it trusts no certificate, and nothing is read.
///
/// # Errors
/// Returns the problem, with the name of the file.
pub(crate) fn tls(needed: bool, ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let roots = if needed { roots(ca_file)? } else { RootCertStore::empty() };
    Ok(builder(roots)?.with_no_client_auth())
}

/// Makes the TLS configurations of sections. Sections without TLS settings of their own share one.
pub(super) struct SectionTls<'o> {
    options: &'o FeedsOptions,
    shared: Option<(Arc<RootCertStore>, Arc<ClientConfig>)>,
}

impl<'o> SectionTls<'o> {
    pub(super) fn new(options: &'o FeedsOptions) -> Self {
        Self { options, shared: None }
    }

    /// Returns the TLS configuration of one section.
    pub(super) fn of(
        &mut self,
        upstream: &UpstreamOptions,
        is_secure: bool,
    ) -> Result<Arc<ClientConfig>, Error> {
        let UpstreamOptions { ca_file, client_certificate_file, client_key_file, .. } = upstream;
        let wrong =
            |key: &str, text| Error::setting(format!("feeds.upstreams.{}.{key}", upstream.name), text);
        let roots = match ca_file {
            Some(file) => Arc::new(roots(Some(file)).map_err(|text| wrong("ca_file", text))?),
            None if !is_secure => return Ok(Arc::new(tls(false, None).map_err(|text| wrong("url", text))?)),
            None => {
                let (roots, config) = self.shared()?;
                match client_certificate_file {
                    None => return Ok(config),
                    Some(_) => roots,
                }
            }
        };
        let builder = builder(roots).map_err(|text| wrong("ca_file", text))?;
        Ok(Arc::new(match (client_certificate_file, client_key_file) {
            (Some(certificate), Some(key)) => {
                identified(builder, certificate, key).map_err(|(is_key, text)| {
                    wrong(if is_key { "client_key_file" } else { "client_certificate_file" }, text)
                })?
            }
            _ => builder.with_no_client_auth(),
        }))
    }

    fn shared(&mut self) -> Result<(Arc<RootCertStore>, Arc<ClientConfig>), Error> {
        if let Some((roots, config)) = &self.shared {
            return Ok((roots.clone(), config.clone()));
        }
        let wrong = |text| Error::setting("feeds_limits.ca_file", text);
        let roots = Arc::new(roots(self.options.ca_file.as_deref()).map_err(wrong)?);
        let config = Arc::new(builder(roots.clone()).map_err(wrong)?.with_no_client_auth());
        Ok(self.shared.insert((roots, config)).clone())
    }
}

/// Checks the certificates to trust: those of a file, or the system's.
///
/// # Errors
/// Returns the mistake, with the name of the file.
pub fn check_trusted_certificates(ca_file: Option<&Path>) -> Result<(), String> {
    roots(ca_file).map(|_| ())
}

/// Checks the files of a client certificate. Returns their mistakes. `true` means that the key is at fault, `false` the certificate.
pub fn check_client_certificate(certificate: &Path, key: &Path) -> Vec<(bool, String)> {
    let in_files = [
        certificates(certificate).err().map(|text| (false, text)),
        private_key(key).err().map(|text| (true, text)),
    ];
    let wrong: Vec<_> = in_files.into_iter().flatten().collect();
    if !wrong.is_empty() {
        return wrong;
    }
    let builder = builder(RootCertStore::empty()).map_err(|text| (false, text));
    builder.and_then(|builder| identified(builder, certificate, key)).err().into_iter().collect()
}

/// Returns the trusted certificates: those of a file, or the system's.
fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| in_file(file, &error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("a URL begins with https://, and this system has no certificates to trust; install the package \
                            ca-certificates, or name a file of PEM certificates"
                    .into());
            }
        }
    }
    Ok(roots)
}

fn builder(
    roots: impl Into<Arc<RootCertStore>>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("can't set up TLS: {error}"))?;
    Ok(builder.with_root_certificates(roots))
}

/// Makes a TLS configuration with a client certificate. `true` in the error means that the key is at fault,
/// `false` the certificate.
fn identified(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: &Path,
    key: &Path,
) -> Result<ClientConfig, (bool, String)> {
    let chain = certificates(certificate).map_err(|text| (false, text))?;
    let in_key = |why: &dyn Display| (true, in_file(key, why));
    let private = private_key(key).map_err(|text| (true, text))?;
    builder.with_client_auth_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            in_key(&format!("it is not the key of the certificate in {}", certificate.display()))
        }
        error => in_key(&error),
    })
}

/// Reads the private key of a PEM file.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::fs::read(file).map_err(|error| in_file(file, &error))?;
    PrivateKeyDer::from_pem_slice(without_byte_order_mark(&text)).map_err(|_| {
        in_file(file, &"it has no PEM private key (one with a password must be decrypted first)")
    })
}

/// Reads the certificates of a PEM file. A file without a certificate is an error.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(file).map_err(|error| in_file(file, &error))?;
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(without_byte_order_mark(&text)).collect();
    let certificates = certificates.map_err(|error| in_file(file, &error))?;
    if certificates.is_empty() {
        return Err(in_file(file, &"it has no certificates"));
    }
    Ok(certificates)
}

fn in_file(file: &Path, why: &dyn Display) -> String {
    format!("{}: {why}", file.display())
}
