//! TLS on a connection of the generator, by rustls: the same versions and ciphers for every server, and a full handshake each time.

use std::error;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::Error;

/// The name in the server's certificate.
const NAME: &str = "localhost";

/// The configuration for clients of servers with this certificate.
pub(super) fn config(certificate: &Path) -> Result<Arc<ClientConfig>, Error> {
    let unusable = |error| Error::Usage(format!("{}: {error}", certificate.display()));
    trusting(certificate).map(Arc::new).map_err(unusable)
}

fn trusting(certificate: &Path) -> Result<ClientConfig, Box<dyn error::Error>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(certificate)?)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// The TLS state of one connection.
pub(super) struct Tls(Box<ClientConnection>);

impl Tls {
    pub(super) fn new(config: &Arc<ClientConfig>) -> Result<Self, Error> {
        let failed = |error: rustls::Error| Error::Generator(error.to_string());
        let name = ServerName::try_from(NAME).map_err(|error| Error::Generator(error.to_string()))?;
        let mut connection = ClientConnection::new(Arc::clone(config), name).map_err(failed)?;
        connection.set_buffer_limit(None);
        Ok(Self(Box::new(connection)))
    }

    /// Encrypts the client's bytes. Returns the bytes to send now. Bytes before the end of the handshake are kept.
    pub(super) fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        // Both writes are to memory without a limit, so they can't fail.
        let _ = self.0.writer().write_all(bytes);
        while self.0.wants_write() && self.0.write_tls(&mut sealed).is_ok_and(|written| written > 0) {}
        sealed
    }

    /// Consumes received data. Appends the decrypted data to `plain`.
    pub(super) fn open(&mut self, mut sealed: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !sealed.is_empty() {
            self.0.read_tls(&mut sealed)?;
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
            let had = plain.len();
            plain.resize(had + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[had..])?;
        }
        Ok(())
    }
}
