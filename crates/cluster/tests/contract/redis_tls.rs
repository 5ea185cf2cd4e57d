//! The engine on Redis over TLS.

use crate::redis_server::{RedisServer, free_port, program};
use crate::servers::{connect_with, connected, options};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::PathBuf;
use std::process::Command;
use stentor_cluster::engine::{ConnectOptions, Identity};
use tempfile::TempDir;

/// A certificate authority. Its certificates are files.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, fastrand::u64(..).to_string());
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate, in the files `NAME.pem` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = [self.file(&format!("{name}.pem")), self.file(&format!("{name}.key"))];
        std::fs::write(&files[0], certificate.pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        let [certificate_file, key_file] = files;
        Identity { certificate_file, key_file }
    }

    /// A server whose certificate is for `localhost`.
    fn server(&self, asks_clients: &str) -> Option<RedisServer> {
        // Redis with TLS ends with an error because it has no certificate.
        let port = free_port().to_string();
        let output = Command::new(program()).args(["--port", "0", "--tls-port", &port]).output().ok()?;
        if !String::from_utf8_lossy(&output.stdout).contains("No tls-cert-file configured") {
            eprintln!("skipped: {} is built without TLS", program());
            return None;
        }
        let Identity { certificate_file, key_file } = self.issue("localhost");
        let (certificate, key, ca) = (certificate_file.to_str()?, key_file.to_str()?, self.file("ca.pem"));
        let arguments = ["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", asks_clients];
        let files =
            ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", ca.to_str()?];
        RedisServer::start(&[&arguments[..], &files].concat())
    }

    /// Options of a node that trusts this authority.
    fn options(&self, identity: Option<Identity>) -> ConnectOptions {
        ConnectOptions { ca_file: Some(self.file("ca.pem")), identity, ..options() }
    }

    /// Checks that a node connects by the name in the server's certificate, and only if it trusts the issuing
    /// authority.
    pub(crate) async fn check_server(&self, url: impl Fn(&str) -> String) {
        connected(&url("localhost"), self.options(None)).await.serves().await;
        let error = reason(&url("127.0.0.1"), self.options(None)).await;
        assert!(error.contains("not valid for name") && error.contains("a name in the URL"), "{error}");
        let error = reason(&url("localhost"), Self::new().options(None)).await;
        assert!(error.contains("UnknownIssuer") && error.contains("set ca_file in [cluster]"), "{error}");
    }

    /// Checks that a server that requires client certificates accepts those of this authority only.
    pub(crate) async fn check_client(&self, url: &str) {
        let other = Self::new();
        let (own, stranger) = (self.issue("node"), other.issue("stranger"));
        connected(url, self.options(Some(own.clone()))).await.serves().await;
        for (identity, expected) in [
            (None, "certificate_file"),
            (Some(stranger.clone()), "certificate_file"),
            (Some(Identity { key_file: stranger.key_file, ..own.clone() }), "keys may not be consistent"),
            (Some(Identity { key_file: self.file("none.key"), ..own }), "none.key: "),
        ] {
            let error = reason(url, self.options(identity)).await;
            assert!(error.contains(expected), "{error}");
        }
    }
}

/// Returns the reason why a node can't connect.
async fn reason(url: &str, options: ConnectOptions) -> String {
    connect_with(url, options).await.err().unwrap()
}

#[tokio::test]
async fn a_node_connects_to_a_server_whose_certificate_is_for_its_name() {
    let authority = Authority::new();
    let Some(server) = authority.server("no") else { return };
    let url = |host: &str| format!("rediss://{host}:{}", server.port);
    authority.check_server(url).await;
    let error = reason(&url("localhost"), options()).await;
    assert!(error.contains("UnknownIssuer") || error.contains("no certificates to trust"), "{error}");
    // A missing file, and a key in place of a certificate.
    for (file, end) in [("none.pem", ""), ("localhost.key", "it has no certificate")] {
        let options = ConnectOptions { ca_file: Some(authority.file(file)), ..options() };
        let error = reason(&url("localhost"), options).await;
        assert!(error.contains(&format!("{file}: ")) && error.ends_with(end), "{error}");
    }
}

#[tokio::test]
async fn a_node_shows_its_certificate_to_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let Some(server) = authority.server("yes") else { return };
    authority.check_client(&format!("rediss://localhost:{}", server.port)).await;
}
