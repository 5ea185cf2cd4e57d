//! Files of a server for one run: a configuration, a certificate, the keys of tokens. Their folder is removed after the run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use minijinja::{Value, context};
use tempfile::TempDir;

use crate::Error;
use crate::catalogue::{Extra, Known};
use crate::generator::{ISSUER, TokenKey, Tokens};
use crate::templates::render;

/// The secret for HS256.
const SECRET: &str = "a secret of the lab that is only for measurements";
pub(super) struct Setup {
    pub(super) folder: TempDir,
    /// A configuration file for Stentor.
    pub(super) config: Option<PathBuf>,
    /// The certificate, if clients use TLS.
    pub(super) certificate: Option<PathBuf>,
    pub(super) tokens: Option<Tokens>,
    /// Additional arguments of a peer.
    pub(super) args: Vec<String>,
}

impl Setup {
    /// The setup for `known`. `values` are those of its configuration (`stentor.toml`) besides the extra.
    pub(super) fn new(known: &Known, values: Value) -> Result<Self, Error> {
        let folder = tempfile::Builder::new().prefix("stentor-lab-").tempdir();
        let folder = folder.map_err(Error::io("a folder for a server's files"))?;
        let mut setup = Self { folder, config: None, certificate: None, tokens: None, args: Vec::new() };
        let file = |name: &str| setup.folder.path().join(name).display().to_string();
        let [certificate, key, public] = ["certificate.pem", "key.pem", "public.pem"].map(file);
        let mut extra = Value::default();
        match known.extra {
            Extra::Nothing | Extra::Deflate => {}
            Extra::Tls | Extra::TlsByNginx => {
                setup.make_keys()?;
                setup.certificate = Some(certificate.clone().into());
                if known.peer.is_some() {
                    setup.args = ["--certificate", &certificate, "--key", &key].map(str::to_owned).to_vec();
                } else if known.extra == Extra::Tls {
                    extra = context! { certificate, key };
                }
            }
            Extra::KnownToken | Extra::Hs256 => {
                let token_key = format!("secret = \"{SECRET}\"");
                extra = context! { issuer => ISSUER, algorithm => "HS256", token_key };
                let key = TokenKey::Secret(SECRET.to_owned());
                setup.tokens = Some(Tokens { key, differ: known.extra == Extra::Hs256 });
            }
            Extra::Es256 => {
                setup.make_keys()?;
                let token_key = format!("public_key_file = \"{public}\"");
                extra = context! { issuer => ISSUER, algorithm => "ES256", token_key };
                setup.tokens = Some(Tokens { key: TokenKey::Private(key.into()), differ: true });
            }
        }
        let config = render("stentor.toml", &context! { ..extra, ..values });
        if known.peer.is_none() && !config.trim().is_empty() {
            let path = setup.folder.path().join("stentor.toml");
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
        let output = Command::new("sh").args(["-c", script]).current_dir(self.folder.path()).output();
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
