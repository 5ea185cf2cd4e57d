//! Feeds from https upstreams: certificates are verified, always.

use crate::common::*;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use stentor_control::{AdminOptions, FeedsOptions, UpstreamOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

#[tokio::test]
async fn only_a_server_with_a_valid_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
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
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(made.cert.pem().as_bytes()).unwrap();
    // A certificate that was made for nobody here, so that there is always one to trust.
    let mut other = tempfile::NamedTempFile::new().unwrap();
    let unrelated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    other.write_all(unrelated.cert.pem().as_bytes()).unwrap();

    let check = async |host: &str, ca_file: &tempfile::NamedTempFile, expect: &str| {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let url = format!("https://{host}:{port}");
        let options = feeds(vec![UpstreamOptions { url, ..upstream("s", nowhere) }]);
        let ca_file = Some(ca_file.path().to_owned());
        let rig = Rig::new(FeedsOptions { ca_file, ..options }, AdminOptions::default());
        rig.want("s/k");
        assert_eq!(rig.plane.next().await, expect, "{host}");
        rig.control.shutdown().await;
    };
    check("localhost", &file, "s/k=\"s\"").await;
    check("127.0.0.1", &file, "s/k:stale:the upstream can't be reached").await;
    check("localhost", &other, "s/k:stale:the upstream can't be reached").await;
}
