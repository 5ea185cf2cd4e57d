//! TLS: certificates for tests, and a client's stream.

use super::Stream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion,
};
use std::io::{self, Read, Write};
use std::sync::Arc;
use stentor_edge::{CertificateFiles, TlsHandle, TlsOptions};
use tempfile::TempDir;

/// Files with certificates. They are removed when this is dropped.
pub(crate) struct Certificates {
    _folder: TempDir,
    pub(crate) options: TlsOptions,
}

impl Certificates {
    /// Makes a certificate for each of these names.
    pub(crate) fn new(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |(nth, name): (usize, &&str)| {
            let made = rcgen::generate_simple_self_signed([(*name).to_owned()]).unwrap();
            let files = CertificateFiles {
                certificate: folder.path().join(format!("{nth}.pem")),
                key: folder.path().join(format!("{nth}.key")),
            };
            std::fs::write(&files.certificate, made.cert.pem()).unwrap();
            std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
            files
        };
        let certificates = names.iter().enumerate().map(write).collect();
        Self { _folder: folder, options: TlsOptions { certificates, ..TlsOptions::default() } }
    }

    pub(crate) fn handle(&self) -> TlsHandle {
        TlsHandle::load(&self.options).unwrap().0
    }
}

/// A client's configuration that accepts any certificate.
pub(crate) fn client(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).unwrap();
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth()
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The client's side of a TLS connection.
pub(crate) struct TlsStream {
    pub(crate) stream: Stream,
    pub(crate) session: ClientConnection,
}

impl TlsStream {
    /// Completes the TLS handshake over this stream.
    pub(crate) fn open(stream: impl Into<Stream>, config: Arc<ClientConfig>, name: &str) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut this = Self { stream: stream.into(), session };
        while this.session.is_handshaking() {
            this.session.complete_io(&mut this.stream)?;
        }
        Ok(this)
    }
}

impl Read for TlsStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match rustls::Stream::new(&mut self.session, &mut self.stream).read(bytes) {
            // A connection that ends without a close_notify is treated as an ordinary end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            result => result,
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.session, &mut self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        rustls::Stream::new(&mut self.session, &mut self.stream).flush()
    }
}
