//! Tests of connections to an upstream: host names, certificates, Unix sockets, proxies.

use super::{PATIENCE, request_head, shown};
use crate::options::{FeedsOptions, Proxy, UpstreamOptions};
use crate::schedule::FetchJob;
use crate::upstream::{Bodies, DocumentProcessor, IDLE_TIMEOUT, Upstreams};
use parking_lot::Mutex;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stentor_hub::Key;
use stentor_ports::Ledger;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Fetches the key `k` once. Returns the document or the failure.
async fn fetch(upstreams: &Upstreams) -> String {
    let bodies = Bodies::new(usize::MAX, Arc::new(Ledger::new(usize::MAX)));
    let job = FetchJob { key: Key::parse("k").unwrap(), upstream: 0, kept: None };
    let fetched = upstreams.at(0).fetch(&job, &DocumentProcessor::default(), &bodies).await;
    shown(&fetched.outcome, fetched.failure.map(|failure| failure.to_string()))
}

fn upstreams(change: impl FnOnce(&mut UpstreamOptions)) -> Result<Upstreams, String> {
    let mut options = UpstreamOptions {
        name: "s".into(),
        timeout: PATIENCE,
        read_timeout: PATIENCE,
        ..UpstreamOptions::default()
    };
    change(&mut options);
    let feeds = FeedsOptions { upstreams: vec![options], ..FeedsOptions::default() };
    Upstreams::new(&feeds).map_err(|error| error.to_string())
}

async fn fetch_by(change: impl FnOnce(&mut UpstreamOptions)) -> String {
    fetch(&upstreams(change).unwrap()).await
}

/// Answers each request with a JSON string: `about`, the request line, and the `Host` header.
async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin, about: String) {
    while let Some(head) = request_head(&mut stream).await {
        let mut lines = head.lines();
        let request = lines.next().unwrap_or_default();
        let host = lines.find(|line| line.starts_with("host:")).unwrap_or_default();
        let body = format!("\"{about}{request} {host}\"");
        let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(reply.as_bytes()).await;
    }
}

/// Dropping an upstream, as a reload does, closes its idle connections.
#[tokio::test]
async fn idle_connections_close_with_their_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstreams = upstreams(|options| options.url = url).unwrap();
    let until_closed = async { echo(listener.accept().await.unwrap().0, String::new()).await };
    let replaced = async {
        assert!(fetch(&upstreams).await.contains("GET /k "));
        drop(upstreams);
    };
    // The time is half of `IDLE_TIMEOUT`, after which the idle connection would close anyway.
    let both = async { tokio::join!(until_closed, replaced) };
    timeout(IDLE_TIMEOUT / 2, both).await.expect("the connection is open");
}

/// A certificate for `localhost` in files.
struct Certificate {
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
    certificate_file: PathBuf,
    key_file: PathBuf,
}

impl Certificate {
    fn new(dir: &Path, name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file = |suffix: &str, text: String| {
            let path = dir.join(format!("{name}{suffix}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate_file = file(".pem", made.cert.pem());
        let key_file = file(".key", made.signing_key.serialize_pem());
        Self { made, certificate_file, key_file }
    }

    /// Serves [`echo`] over TLS. The SNI name precedes each response. With `client`, clients must present
    /// this certificate. Returns the port.
    async fn serve(&self, client: Option<&Certificate>) -> u16 {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match client {
            None => config.with_no_client_auth(),
            Some(client) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(client.made.cert.der().clone()).unwrap();
                let verifier =
                    rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.made.signing_key.serialize_der()));
        let config = config.with_single_cert(vec![self.made.cert.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let name = stream.get_ref().1.server_name().unwrap_or("no name");
                let about = format!("{name} ");
                tokio::spawn(echo(stream, about));
            }
        });
        port
    }
}

#[tokio::test]
async fn a_section_has_certificates_and_a_host_of_its_own() {
    let dir = TempDir::new().unwrap();
    let [server, client, other] =
        ["server", "client", "other"].map(|name| Certificate::new(dir.path(), name));
    let (open, closed) = (server.serve(None).await, server.serve(Some(&client)).await);
    let check =
        async |url: &str, trusted: &Certificate, change: &dyn Fn(&mut UpstreamOptions), expect: &str| {
            let happened = fetch_by(|options| {
                options.url = url.into();
                options.ca_file = Some(trusted.certificate_file.clone());
                change(options);
            })
            .await;
            assert!(happened.ends_with(expect), "{expect:?}: {happened}");
        };
    let identity = |client: &Certificate| {
        let (certificate, key) = (client.certificate_file.clone(), client.key_file.clone());
        move |options: &mut UpstreamOptions| {
            options.client_certificate_file = Some(certificate.clone());
            options.client_key_file = Some(key.clone());
        }
    };
    let host = |host: &'static str| move |options: &mut UpstreamOptions| options.host = Some(host.into());

    let by_name = format!("https://localhost:{open}");
    let expect = format!("\"localhost GET /k HTTP/1.1 host: localhost:{open}\"");
    check(&by_name, &server, &|_| {}, &expect).await;
    check(&by_name, &other, &|_| {}, ": unknown issuer: set `ca_file`").await;
    let by_address = format!("https://127.0.0.1:{open}");
    check(&by_address, &server, &|_| {}, ": set `host` to a name that the certificate has").await;
    check(&by_address, &server, &host("localhost:9"), "\"localhost GET /k HTTP/1.1 host: localhost:9\"")
        .await;
    check(&by_name, &server, &host("example.com"), ": set `host` to a name that the certificate has").await;

    let closed = format!("https://localhost:{closed}");
    let required = ": the upstream requires a client certificate: set `client_certificate_file`";
    check(&closed, &server, &|_| {}, required).await;
    check(&closed, &server, &identity(&other), "doesn't trust the certificate in `client_certificate_file`")
        .await;
    let expect = format!("\"localhost GET /k HTTP/1.1 host: {}\"", &closed["https://".len()..]);
    check(&closed, &server, &identity(&client), &expect).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        echo(stream, String::new()).await;
    });
    let happened =
        fetch_by(|options| (options.url, options.host) = (url, Some("api.example.com".into()))).await;
    assert_eq!(happened, "\"GET /k HTTP/1.1 host: api.example.com\"");
}

#[test]
fn files_of_certificates_are_checked() {
    let dir = TempDir::new().unwrap();
    let [one, other] = ["one", "other"].map(|name| Certificate::new(dir.path(), name));
    let file = |name: &str| Some(dir.path().join(name));
    let check = |[ca, certificate, key]: [Option<PathBuf>; 3], field: &str, expect: &str| {
        let error = upstreams(|options| {
            options.url = "https://localhost".into();
            options.ca_file = ca;
            options.client_certificate_file = certificate;
            options.client_key_file = key;
        });
        let error = error.err().unwrap_or_default();
        let (begin, end) =
            (format!("feeds.upstreams.s.{field}: {}/", dir.path().display()), format!(": {expect}"));
        assert!(error.starts_with(&begin) && error.ends_with(&end), "{begin}…{end} {error}");
    };
    let missing = "No such file or directory (os error 2)";
    let [one_file, one_key, other_key] =
        [&one.certificate_file, &one.key_file, &other.key_file].map(|f| Some(f.clone()));
    check([file("x"), None, None], "ca_file", missing);
    check([one_key.clone(), None, None], "ca_file", "it has no certificates");
    let ca = || one_file.clone();
    check([ca(), file("x"), one_key.clone()], "client_certificate_file", missing);
    check([ca(), one_key.clone(), one_key.clone()], "client_certificate_file", "it has no certificates");
    check([ca(), ca(), file("x")], "client_key_file", missing);
    check(
        [ca(), ca(), ca()],
        "client_key_file",
        "it has no PEM private key (one with a password must be decrypted first)",
    );
    let unrelated = format!("it is not the key of the certificate in {}", one.certificate_file.display());
    check([ca(), ca(), other_key], "client_key_file", &unrelated);
}

#[tokio::test]
async fn requests_go_to_a_socket() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("api.sock");
    let change = |options: &mut UpstreamOptions| {
        options.url = "http://localhost/v1".into();
        options.socket = Some(path.clone());
    };
    let upstreams = upstreams(change).unwrap();
    let missing =
        format!("connect: can't connect: {}: No such file or directory (os error 2)", path.display());
    assert_eq!(fetch(&upstreams).await, missing);
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        echo(stream, String::new()).await;
    });
    // Both requests use the only connection that the server accepts.
    for _ in 0..2 {
        assert_eq!(fetch(&upstreams).await, "\"GET /v1/k HTTP/1.1 host: localhost\"");
    }
}

/// Runs a proxy that answers CONNECT with `connect`, and opens the tunnel if that is a 200. It answers other
/// requests itself. Returns its port and a log of the requests' headers, each joined to one line.
async fn proxy(connect: &'static str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, heads) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<String>>>::default());
    let log = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some(head) = request_head(&mut stream).await else { continue };
            log.lock().push(head.lines().collect::<Vec<_>>().join(" "));
            let tunnel =
                head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next().map(String::from));
            let reply = if tunnel.is_some() {
                connect
            } else {
                "200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n7"
            };
            let _ = stream.write_all(format!("HTTP/1.1 {reply}").as_bytes()).await;
            if let Some(target) = tunnel.filter(|_| connect.starts_with("200")) {
                let mut target = TcpStream::connect(target).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut target).await });
            }
        }
    });
    (port, heads)
}

#[tokio::test]
async fn requests_go_through_a_proxy() {
    let dir = TempDir::new().unwrap();
    let server = Certificate::new(dir.path(), "server");
    let secure = format!("https://localhost:{}", server.serve(None).await);
    let (port, heads) = proxy("200 OK\r\n\r\n").await;
    let by = async |url: &str, proxy: Proxy| {
        let happened = fetch_by(|options| {
            (options.url, options.proxy) = (url.into(), proxy);
            options.ca_file = url.starts_with("https").then(|| server.certificate_file.clone());
        })
        .await;
        (happened, std::mem::take(&mut *heads.lock()).join("; "))
    };
    let environment =
        |http: String, https: String, no: &str| Proxy::Environment { http, https, no: no.into() };
    let address = format!("127.0.0.1:{port}");
    let one = || Proxy::Url(format!("http://{address}"));
    let user = format!("http://user:pass@{address}");

    let (happened, head) = by("http://api.test:81/v1?a=1", one()).await;
    assert!(
        happened == "7" && head.starts_with("GET http://api.test:81/v1/k?a=1 HTTP/1.1 "),
        "{happened} {head}"
    );
    assert!(head.contains(" host: api.test:81 ") && !head.contains("authorization"), "{head}");
    let (happened, head) = by("http://api.test", environment(user.clone(), String::new(), "localhost")).await;
    assert!(
        happened == "7" && head.contains(" proxy-authorization: Basic dXNlcjpwYXNz"),
        "{happened} {head}"
    );

    let host = &secure["https://".len()..];
    let document = format!("\"localhost GET /k HTTP/1.1 host: {host}\"");
    let connect = format!("CONNECT {host} HTTP/1.1 Host: {host} ");
    assert_eq!(by(&secure, one()).await, (document.clone(), connect.clone()));
    let authorized = format!("{connect}Proxy-Authorization: Basic dXNlcjpwYXNz ");
    let https = |no| environment(String::new(), user.clone(), no);
    assert_eq!(by(&secure, https("")).await, (document.clone(), authorized));
    // These settings lead to no proxy for the URL.
    for other in [https("localhost"), environment(user.clone(), String::new(), ""), Proxy::None] {
        assert_eq!(by(&secure, other).await, (document.clone(), String::new()));
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named() {
    let dir = TempDir::new().unwrap();
    let trusted = Certificate::new(dir.path(), "unused").certificate_file;
    let check = async |status: &'static str, expect: &str| {
        let (port, _) = proxy(status).await;
        let happened = fetch_by(|options| {
            options.url = "https://api.test".into();
            options.ca_file = Some(trusted.clone());
            options.proxy = Proxy::Url(format!("http://127.0.0.1:{port}"));
        })
        .await;
        let begin = format!("connect: can't connect: by the proxy http://127.0.0.1:{port}/: tunnel error: ");
        assert!(happened.starts_with(&begin) && happened.ends_with(expect), "{expect}: {happened}");
    };
    check("403 Forbidden\r\n\r\n", ": the proxy refuses to connect to the host of `url`").await;
    check("407 Authenticate\r\n\r\n", "and HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT").await;
}
