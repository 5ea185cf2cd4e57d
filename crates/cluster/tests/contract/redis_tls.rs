//! The engine on Redis over TLS.

use crate::redis::{connect_with, options};
use crate::redis_server::{RedisServer, free_port, program};
use crate::room;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::PathBuf;
use std::process::Command;
use stentor_cluster::engine::{ConnectOptions, Event, Identity};
use tempfile::TempDir;

/// An authority, and what it has issued, in files.
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
        // One that has TLS asks for a certificate, and ends.
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

    fn options(&self, identity: Option<Identity>) -> ConnectOptions {
        ConnectOptions { ca_file: Some(self.file("ca.pem")), identity, ..options() }
    }
}

#[tokio::test]
async fn a_node_connects_to_a_server_whose_certificate_is_for_its_name() {
    let authority = Authority::new();
    let Some(server) = authority.server("no") else { return };
    let url = |host: &str| format!("rediss://{host}:{}", server.port);
    let mut node = connect_with(&url("localhost"), authority.options(None)).await.unwrap();
    assert_eq!(node.event().await, Event::Connected);
    node.join(&room("r")).await;
    node.receives("r").await;

    let reason = async |host: &str, options| connect_with(&url(host), options).await.err().unwrap();
    let error = reason("127.0.0.1", authority.options(None)).await;
    assert!(error.contains("not valid for name") && error.contains("a name in the URL"), "{error}");
    let error = reason("localhost", Authority::new().options(None)).await;
    assert!(error.contains("UnknownIssuer") && error.contains("set ca_file in [cluster]"), "{error}");
    let error = reason("localhost", options()).await;
    assert!(error.contains("UnknownIssuer") || error.contains("no certificates to trust"), "{error}");
    let file = authority.file("none.pem");
    let error = reason("localhost", ConnectOptions { ca_file: Some(file), ..options() }).await;
    assert!(error.contains("none.pem: "), "{error}");
    // A key isn't a certificate.
    let file = authority.file("localhost.key");
    let error = reason("localhost", ConnectOptions { ca_file: Some(file), ..options() }).await;
    assert!(error.ends_with("localhost.key: it has no certificate"), "{error}");
}

#[tokio::test]
async fn a_node_shows_its_certificate_to_a_server_that_asks_for_one() {
    let (authority, other) = (Authority::new(), Authority::new());
    let Some(server) = authority.server("yes") else { return };
    let url = format!("rediss://localhost:{}", server.port);
    let own = authority.issue("node");
    let mut node = connect_with(&url, authority.options(Some(own.clone()))).await.unwrap();
    assert_eq!(node.event().await, Event::Connected);
    node.join(&room("r")).await;
    node.receives("r").await;
    for (identity, reason) in [
        (None, "certificate_file"),
        (Some(other.issue("stranger")), "certificate_file"),
        (
            Some(Identity { key_file: other.file("stranger.key"), ..own.clone() }),
            "keys may not be consistent",
        ),
        (Some(Identity { key_file: authority.file("none.key"), ..own }), "none.key: "),
    ] {
        let error = connect_with(&url, authority.options(identity)).await.err().unwrap();
        assert!(error.contains(reason), "{error}");
    }
}
