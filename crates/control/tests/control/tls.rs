//! Tests of https upstreams: their certificates are always verified.

use crate::common::*;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use stentor_control::{AdminOptions, FeedsOptions, UpstreamOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// Runs an upstream over TLS. Returns its port.
async fn serve(config: rustls::ServerConfig) -> u16 {
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\n\"s\"")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

#[tokio::test]
async fn only_a_server_with_a_valid_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider.clone());
        (config.with_safe_default_protocol_versions().unwrap(), provider)
    };
    let certificates = vec![made.cert.der().clone()];
    let open = config().0.with_no_client_auth().with_single_cert(certificates.clone(), key.clone_key());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let (closed, provider) = config();
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let closed = closed.with_client_cert_verifier(verifier).with_single_cert(certificates, key);
    let port = serve(open.unwrap()).await;
    let closed_port = serve(closed.unwrap()).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(made.cert.pem().as_bytes()).unwrap();
    // Another certificate. If `ca_file` has only this one, the server's certificate isn't trusted.
    let mut other = tempfile::NamedTempFile::new().unwrap();
    let unrelated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    other.write_all(unrelated.cert.pem().as_bytes()).unwrap();

    let check = async |url: &str, ca_file: &tempfile::NamedTempFile, expect: &str, hint: &str| {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let url = url.to_owned();
        let options = feeds(vec![UpstreamOptions { url, ..upstream("s", nowhere) }]);
        let ca_file = Some(ca_file.path().to_owned());
        let rig = Rig::new(FeedsOptions { ca_file, ..options }, AdminOptions::default());
        rig.want("s/k");
        assert_eq!(rig.plane.next().await, expect, "{hint}");
        let (_, status) = rig.admin("/api/v1/status").await;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let message = &status["upstreams"][0]["last_failure"]["message"];
        assert!(message.as_str().unwrap_or_default().ends_with(hint), "{hint}: {message}");
        rig.control.shutdown().await;
    };
    let (here, unreachable) =
        (format!("https://localhost:{port}"), "s/k:stale:the upstream can't be reached");
    check(&here, &file, "s/k=\"s\"", "").await;
    check(
        &format!("https://127.0.0.1:{port}"),
        &file,
        unreachable,
        ": set `host` to a name that the certificate has",
    )
    .await;
    check(&here, &other, unreachable, ": unknown issuer: set `ca_file`").await;
    let closed = format!("https://localhost:{closed_port}");
    let hint = ": the upstream requires a client certificate: set `client_certificate_file`";
    check(&closed, &file, "s/k:stale:the connection to the upstream broke", hint).await;
    let plain = format!("https://{}", numbers().await);
    check(&plain, &file, unreachable, ": the upstream speaks plain HTTP: begin `url` with http://").await;
}
