//! Files of a server for one run: a configuration, a certificate, the keys of tokens. Their folder is removed after the run.

use std::fs;
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;
use crate::catalogue::{Extra, Known};
use crate::generator::{ISSUER, TokenKey, Tokens};

/// The secret for HS256.
const SECRET: &str = "a secret of the lab that is only for measurements";
/// Permissions of clients with tokens: the same as without tokens.
const PERMISSIONS: &str =
    "[[permissions]]\ntopics = [\"**\"]\nallow = [\"subscribe\", \"publish\", \"history\"]\n";

pub(super) struct Setup {
    pub(super) folder: PathBuf,
    /// A configuration file for Stentor.
    pub(super) config: Option<PathBuf>,
    /// The certificate, if clients use TLS.
    pub(super) certificate: Option<PathBuf>,
    pub(super) tokens: Option<Tokens>,
    /// Additional arguments of a peer.
    pub(super) args: Vec<String>,
}

impl Setup {
    /// The setup for `known`. Its configuration starts with `config`.
    pub(super) fn new(known: &Known, config: &str) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("stentor-lab-{}-{}", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(Error::io("a folder for a server's files"))?;
        let mut setup = Self { folder, config: None, certificate: None, tokens: None, args: Vec::new() };
        let mut config = config.to_owned();
        let file = |name: &str| setup.folder.join(name).display().to_string();
        let (certificate, key) = (file("certificate.pem"), file("key.pem"));
        let auth = |algorithm: &str, key: &str| {
            format!(
                "[auth]\n[[auth.issuers]]\nissuer = \"{ISSUER}\"\nalgorithms = [\"{algorithm}\"]\nkeys = [{{ {key} }}]\n\
                 {PERMISSIONS}"
            )
        };
        match known.extra {
            Extra::Nothing | Extra::Deflate => {}
            Extra::Tls | Extra::TlsByNginx => {
                setup.make_keys()?;
                setup.certificate = Some(setup.folder.join("certificate.pem"));
                if known.peer.is_some() {
                    setup.args = ["--certificate", &certificate, "--key", &key].map(str::to_owned).to_vec();
                } else if known.extra == Extra::Tls {
                    config += &format!("[[tls]]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n");
                }
            }
            Extra::KnownToken | Extra::Hs256 => {
                config += &auth("HS256", &format!("secret = \"{SECRET}\""));
                let key = TokenKey::Secret(SECRET.to_owned());
                setup.tokens = Some(Tokens { key, differ: known.extra == Extra::Hs256 });
            }
            Extra::Es256 => {
                setup.make_keys()?;
                config += &auth("ES256", &format!("public_key_file = \"{}\"", file("public.pem")));
                setup.tokens = Some(Tokens { key: TokenKey::Private(key.into()), differ: true });
            }
        }
        if !config.is_empty() && known.peer.is_none() {
            let path = setup.folder.join("stentor.toml");
            fs::write(&path, config).map_err(Error::io("writing a configuration"))?;
            setup.config = Some(path);
        }
        Ok(setup)
    }

    /// Makes a key and a self-signed certificate for `localhost`.
    fn make_keys(&self) -> Result<(), Error> {
        let script = "printf '[req]\\ndistinguished_name=n\\nx509_extensions=e\\n[n]\\n[e]\\nsubjectAltName=DNS:localhost\\n\
                      basicConstraints=CA:FALSE\\n' >openssl.cnf && \
                      openssl req -config openssl.cnf -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
                      -subj /CN=localhost -keyout key.pem -out certificate.pem && openssl pkey -in key.pem -pubout -out public.pem";
        let output = Command::new("sh").args(["-c", script]).current_dir(&self.folder).output();
        let output = output.map_err(Error::io("making a certificate"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "openssl makes no certificate: {}",
                String::from_utf8_lossy(&output.stderr).trim_end()
            ))),
        }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
