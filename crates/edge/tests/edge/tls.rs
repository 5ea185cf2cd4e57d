//! TLS: negotiation, alerts to clients that break the protocol, and no effects on other clients.

mod https;
mod relayed;

use crate::harness::tls::{Certificates, TlsStream, client};
use crate::harness::ws::Seen;
use crate::harness::{Http, Server, Stream, Ws, now, on_one_and_three, pass, read};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, DEFAULT_VERSIONS, HandshakeKind};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{App, ListenerOptions, Options, StaticRoute};
use stentor_ports::Networks;

/// The type of a record with an alert, and the descriptions of three alerts.
const ALERT: u8 = 21;
const PROTOCOL_VERSION: u8 = 70;
const DECODE_ERROR: u8 = 50;
const UNEXPECTED_MESSAGE: u8 = 10;

fn with_tls(set: impl FnOnce(&mut Options)) -> impl FnOnce(&mut Options) {
    |options| {
        options.tls = Some(Certificates::new(&["localhost"]).handle());
        options.app = App::Echo;
        let body = (0..300_000).map(|at| (at % 251) as u8).collect();
        options.routes = vec![StaticRoute { path: "/page".into(), content_type: "text/html".into(), body }];
        set(options);
    }
}

fn tcp(addr: SocketAddr) -> Stream {
    Stream::connect(addr).unwrap()
}

fn open(addr: SocketAddr, config: ClientConfig) -> TlsStream {
    TlsStream::open(tcp(addr), Arc::new(config), "localhost").unwrap()
}

/// Checks that the server echoes a message.
fn check_echoes(ws: &mut Ws, text: &str) {
    ws.send_text(text);
    assert!(ws.next() == Seen::Text(text.into()), "{} bytes", text.len());
}

/// Checks that a new client is served.
fn check_serves(addr: SocketAddr) {
    assert_eq!(Http::over(open(addr, client(DEFAULT_VERSIONS))).get("/healthz").status, 200);
}

/// Waits until all resources of clients are freed, including TLS state.
fn check_empty(server: &Server) {
    server.check_empty();
    server.until_metric("memory_bytes{tls}", |bytes| bytes == 0);
}

fn wss(addr: SocketAddr) -> Ws {
    let mut stream = open(addr, client(DEFAULT_VERSIONS));
    let handshake = stentor_wire::ws::handshake::ClientHandshake::new([7; 16], false);
    let mut request = Vec::new();
    handshake.write_request(&mut request, &addr.to_string(), "/ws", &[]);
    stream.write_all(&request).unwrap();
    Ws::answered(stream, Some(&handshake)).unwrap()
}

#[test]
fn requests_and_messages_of_all_sizes_pass_in_both_versions() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, with_tls(|_| {}));
        for version in [&TLS12, &TLS13] {
            let stream = open(server.addr, client(&[version]));
            assert_eq!(stream.session.protocol_version(), Some(version.version));
            let mut http = Http::over(stream);
            for _ in 0..3 {
                assert_eq!(http.get("/healthz").text(), "ok\n");
                let page = http.get("/page");
                assert!(page.body.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
                assert_eq!(page.body.len(), 300_000);
            }
        }
        let mut ws = wss(server.addr);
        for bytes in [0, 1, 125, 126, 16_383, 16_384, 16_385, 65_535, 65_536, 200_000, 999_000] {
            check_echoes(&mut ws, &"x".repeat(bytes));
        }
        assert_eq!(server.metric("tls_handshakes{1.2}"), 1);
        assert_eq!(server.metric("tls_handshakes{1.3}"), 2);
        drop(ws);
        check_empty(&server);
    });
}

#[test]
fn only_http_1_is_offered_and_the_end_is_announced() {
    let server = Server::start(1, with_tls(|_| {}));
    let with = |protocols: &[&str]| {
        let mut config = client(DEFAULT_VERSIONS);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsStream::open(tcp(server.addr), Arc::new(config), "localhost")
    };
    for (offered, expect) in [(&["h2", "http/1.1"][..], Some(&b"http/1.1"[..])), (&[], None)] {
        assert_eq!(with(offered).unwrap().session.alpn_protocol(), expect);
    }
    let error = with(&["h2"]).err().unwrap().to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    let mut stream = with(&[]).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // rustls reports an end without a close_notify as an error.
    rustls::Stream::new(&mut stream.session, &mut stream.stream).read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
    // A client's close_notify ends the connection, although the client's socket stays open.
    let mut stream = with(&[]).unwrap();
    stream.session.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(read(&mut stream, &mut [0]).unwrap(), 0);
    server.until_metric("connections", |connections| connections == 0);
}

#[test]
fn sessions_are_resumed_on_every_core_and_after_new_certificates() {
    on_one_and_three(|cores| {
        let certificates = Certificates::new(&["localhost", "other.example"]);
        let handle = certificates.handle();
        let server = Server::start(cores, with_tls(|options| options.tls = Some(handle.clone())));
        for version in [&TLS12, &TLS13] {
            let config = Arc::new(client(&[version]));
            let connect = |kind: HandshakeKind| {
                let stream = TlsStream::open(tcp(server.addr), config.clone(), "localhost").unwrap();
                assert_eq!(stream.session.handshake_kind(), Some(kind));
                let mut http = Http::over(stream);
                // TLS 1.3 tickets arrive with the response.
                assert_eq!(http.get("/healthz").status, 200);
            };
            connect(HandshakeKind::Full);
            for _ in 0..6 {
                connect(HandshakeKind::Resumed);
            }
            handle.replace(&certificates.options).unwrap();
            connect(HandshakeKind::Resumed);
        }
        assert_eq!((server.metric("tls_handshakes{true}"), server.metric("tls_handshakes{false}")), (14, 2));
    });
}

#[test]
fn certificates_are_chosen_by_name_and_replaced() {
    let certificates = Certificates::new(&["a.example", "b.example"]);
    let handle = certificates.handle();
    let server = Server::start(1, with_tls(|options| options.tls = Some(handle.clone())));
    let certificate = |name: &str| {
        let stream = TlsStream::open(tcp(server.addr), Arc::new(client(DEFAULT_VERSIONS)), name).unwrap();
        stream.session.peer_certificates().unwrap()[0].to_vec()
    };
    let (a, b) = (certificate("a.example"), certificate("b.example"));
    assert_ne!(a, b);
    assert_eq!(certificate("c.example"), a);
    assert_eq!(certificate("127.0.0.1"), a);
    let mut open = wss(server.addr);
    let others = Certificates::new(&["b.example", "a.example"]);
    handle.replace(&others.options).unwrap();
    let new = certificate("a.example");
    assert!(new != a && new != b && certificate("c.example") != new);
    // Open connections stay.
    check_echoes(&mut open, "still here");
    let metrics = server.plane().metrics();
    assert_eq!(metrics.iter().filter(|metric| metric.name.starts_with("tls_certificate")).count(), 1);
}

#[test]
fn each_listener_speaks_its_protocol() {
    let further = |tls| ListenerOptions { address: ([127, 0, 0, 1], 0).into(), tls, ..Default::default() };
    let server =
        Server::start(1, with_tls(|options| options.listeners = vec![further(false), further(true)]));
    assert_eq!(Http::over(tcp(server.addrs[1])).get("/healthz").status, 200);
    for addr in [server.addrs[0], server.addrs[2]] {
        check_serves(addr);
        let answer = Http::over(tcp(addr)).get("/healthz");
        assert_eq!((answer.status, answer.text()), (400, "Plain HTTP was sent to a port that uses TLS.\n"));
    }
    server.until_metric("tls_handshake_failures{plain_http}", |failures| failures == 2);
    // At the port without TLS, a ClientHello is an invalid HTTP request.
    let error = TlsStream::open(tcp(server.addrs[1]), Arc::new(client(DEFAULT_VERSIONS)), "localhost");
    assert!(error.is_err());
}

/// The PROXY header precedes TLS, in the same segment as the ClientHello or in another one.
#[test]
fn a_proxy_may_name_the_client_before_tls() {
    on_one_and_three(|cores| {
        let server = Server::start(
            cores,
            with_tls(|options| {
                options.proxy_protocol = true;
                options.proxies.trusted = Networks::parse(&["127.0.0.0/8"]).unwrap();
            }),
        );
        for is_glued in [true, false, true, false] {
            let name = ServerName::try_from("localhost").unwrap();
            let mut session = ClientConnection::new(Arc::new(client(DEFAULT_VERSIONS)), name).unwrap();
            let mut first = b"PROXY TCP4 198.51.100.7 127.0.0.1 5555 443\r\n".to_vec();
            let mut socket = tcp(server.addr);
            if !is_glued {
                socket.write_all(&std::mem::take(&mut first)).unwrap();
                server.until_metric("received_bytes", |bytes| bytes > 0);
            }
            session.write_tls(&mut first).unwrap();
            socket.write_all(&first).unwrap();
            let mut http = Http::over(TlsStream { stream: socket, session });
            assert_eq!(http.get("/healthz").status, 200);
        }
    });
}

/// A ClientHello, as the first record of a connection.
fn client_hello() -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(client(DEFAULT_VERSIONS)), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn invalid_records_get_an_alert_and_affect_no_others() {
    let server = Server::start(1, with_tls(|_| {}));
    let mut other = wss(server.addr);
    let hello = client_hello();
    let header = |kind: u8, len: u16| [&[kind, 3, 1][..], &len.to_be_bytes()].concat();
    // The first record of a message of 16 MB.
    let huge = [header(22, 16_384), vec![1, 0xff, 0xff, 0xff], vec![0; 16_380]].concat();
    let mut fragments = Vec::new();
    for _ in 0..8 {
        fragments.extend([header(22, 8_192), vec![1, 0, 0xff, 0xff], vec![0; 8_188]].concat());
    }
    let mut changed = hello.clone();
    changed[5] = 2;
    let cases: [(&str, Vec<u8>, Option<u8>); 8] = [
        ("garbage", vec![0xff; 100], Some(DECODE_ERROR)),
        ("zeros", vec![0; 100], Some(DECODE_ERROR)),
        ("lower case", b"get / http/1.1\r\n\r\n".to_vec(), Some(DECODE_ERROR)),
        ("an application's record first", [header(23, 4), vec![0; 4]].concat(), Some(UNEXPECTED_MESSAGE)),
        ("an oversized record", header(22, 0xffff), Some(DECODE_ERROR)),
        ("a huge message", huge, None),
        ("a message in too many records", fragments, None),
        ("a hello with a changed byte", changed, Some(DECODE_ERROR)),
    ];
    for (what, bytes, alert) in cases {
        let mut socket = tcp(server.addr);
        let _ = socket.write_all(&bytes);
        let answer = socket.read_all();
        if let Some(alert) = alert {
            let ends = (answer.first(), answer.last());
            assert_eq!(ends, (Some(&ALERT), Some(&alert)), "{what}: {answer:?}");
        }
        check_echoes(&mut other, what);
    }
    for name in ["tls_handshake_failures", "tls_handshake_failures{protocol}"] {
        server.until_metric(name, |failures| failures == 8);
    }
    drop(other);
    check_empty(&server);
}

#[test]
fn an_old_version_is_refused() {
    let server = Server::start(1, with_tls(|_| {}));
    // A ClientHello of TLS 1.1, with one cipher and one signature algorithm.
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    body.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let len = body.len() as u16;
    let hello = [&[22, 3, 1][..], &(len + 4).to_be_bytes(), &[1, 0], &len.to_be_bytes(), &body].concat();
    let mut socket = tcp(server.addr);
    socket.write_all(&hello).unwrap();
    assert_eq!(socket.read_all(), [ALERT, 3, 3, 0, 2, 2, PROTOCOL_VERSION]);
}

#[test]
fn broken_records_end_an_open_connection() {
    let server = Server::start(1, with_tls(|_| {}));
    let mut other = wss(server.addr);
    for version in [&TLS12, &TLS13] {
        let mut stream = open(server.addr, client(&[version]));
        stream.stream.write_all(&[23, 3, 3, 0, 30]).unwrap();
        stream.stream.write_all(&[0; 30]).unwrap();
        let error = rustls::Stream::new(&mut stream.session, &mut stream.stream).read(&mut [0]).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    }
    server.until_metric("tls_errors", |errors| errors == 2);
    check_echoes(&mut other, "x");
}

/// Renegotiation is refused with a warning, and a flood of it ends the connection (CVE-2011-1473).
#[test]
fn renegotiation_is_refused() {
    let server = Server::start(1, with_tls(|_| {}));
    let (mut socket, mut records) = Records::open(server.addr, &TLS12);
    let hello = client_hello();
    let (mut sent, mut header) = (0, [0; 5]);
    // The ClientHello without the header of its record.
    while sent < 1_000 && socket.write_all(&records.encrypt(22, &hello[5..])).is_ok() {
        sent += 1;
        // Reads the header of the server's next record, which contains its length, or the end.
        if socket.read_exact(&mut header).is_err() {
            break;
        }
        assert_eq!(header[0], ALERT);
        socket.read_exact(&mut vec![0; usize::from(header[4])]).unwrap();
    }
    assert!((1..10).contains(&sent), "{sent} renegotiations");
    server.until_metric("tls_errors", |errors| errors == 1);
    server.check_balance();
}

/// The server continues to send after it has received half of a handshake message.
#[test]
fn half_a_message_does_not_keep_the_server_from_sending() {
    let server = Server::start(1, with_tls(|_| {}));
    for version in [&TLS12, &TLS13] {
        let (mut socket, mut records) = Records::open(server.addr, version);
        let request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
        // A request, and the first bytes of a key update or a ClientHello.
        let mut bytes = records.encrypt(23, request);
        bytes.extend(records.encrypt(22, &[if records.is_version_13 { 24 } else { 1 }, 0, 0]));
        socket.write_all(&bytes).unwrap();
        let mut answer = [0; 4096];
        assert!(read(&mut socket, &mut answer).unwrap() > 50);
        check_serves(server.addr);
        // Another record in the middle of the handshake message ends the connection.
        let rest = records.encrypt(23, request);
        socket.write_all(&rest).unwrap();
        socket.read_all();
    }
    server.until_metric("tls_errors", |errors| errors == 2);
}

/// Encrypts a client's records with AES-GCM or ChaCha20, so that a test can send records that rustls doesn't send.
struct Records {
    key: ring::aead::LessSafeKey,
    iv: [u8; 12],
    is_gcm: bool,
    is_version_13: bool,
    sequence: u64,
}

impl Records {
    /// Completes a handshake. Returns the socket, and the state for encrypting further records.
    fn open(addr: SocketAddr, version: &'static rustls::SupportedProtocolVersion) -> (Stream, Self) {
        use rustls::ConnectionTrafficSecrets as Secrets;
        let mut config = client(&[version]);
        config.enable_secret_extraction = true;
        let TlsStream { stream, session } = open(addr, config);
        let (sequence, secrets) = session.dangerous_extract_secrets().unwrap().tx;
        let (algorithm, key, iv, is_gcm) = match &secrets {
            Secrets::Aes128Gcm { key, iv } => (&ring::aead::AES_128_GCM, key.as_ref(), iv.as_ref(), true),
            Secrets::Aes256Gcm { key, iv } => (&ring::aead::AES_256_GCM, key.as_ref(), iv.as_ref(), true),
            Secrets::Chacha20Poly1305 { key, iv } => {
                (&ring::aead::CHACHA20_POLY1305, key.as_ref(), iv.as_ref(), false)
            }
            _ => panic!("another cipher"),
        };
        let key = ring::aead::UnboundKey::new(algorithm, key).unwrap();
        let (key, iv) = (ring::aead::LessSafeKey::new(key), iv.try_into().unwrap());
        let is_version_13 = version.version == rustls::ProtocolVersion::TLSv1_3;
        (stream, Self { key, iv, is_gcm, is_version_13, sequence })
    }

    fn encrypt(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let sequence = self.sequence.to_be_bytes();
        self.sequence += 1;
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(sequence).for_each(|(byte, other)| *byte ^= other);
        let mut sealed = content.to_vec();
        let aad = if self.is_version_13 {
            sealed.push(kind);
            [&[23, 3, 3][..], &(sealed.len() as u16 + 16).to_be_bytes()].concat()
        } else {
            [&sequence[..], &[kind, 3, 3], &(content.len() as u16).to_be_bytes()].concat()
        };
        let aad = ring::aead::Aad::from(aad);
        let nonce_of = ring::aead::Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce_of, aad, &mut sealed).unwrap();
        let explicit = if self.is_gcm && !self.is_version_13 { &nonce[4..] } else { &[] };
        let kind = if self.is_version_13 { 23 } else { kind };
        let len = (explicit.len() + sealed.len()) as u16;
        [&[kind, 3, 3][..], &len.to_be_bytes(), explicit, &sealed].concat()
    }
}

#[test]
fn a_handshake_has_a_deadline_and_slow_ones_too() {
    let server = Server::start(
        1,
        with_tls(|options| options.limits.tls_handshake_timeout = Duration::from_millis(300)),
    );
    let hello = client_hello();
    let begun = now();
    let mut sockets: [Stream; 4] = std::array::from_fn(|_| tcp(server.addr));
    sockets[1].write_all(&hello[..hello.len() / 2]).unwrap();
    sockets[2].write_all(&hello).unwrap();
    for byte in &hello[..8] {
        sockets[3].write_all(&[*byte]).unwrap();
    }
    let mut kept = wss(server.addr);
    for (n, socket) in sockets.iter_mut().enumerate() {
        assert_eq!(socket.read_all().is_empty(), n != 2, "only a whole hello is answered");
    }
    assert!(now() - begun >= Duration::from_millis(300));
    assert_eq!(server.metric("tls_handshake_failures{timeout}"), 4);
    check_echoes(&mut kept, "x");
    // A client that ends its connection during the handshake.
    let mut gone = tcp(server.addr);
    gone.write_all(&hello[..5]).unwrap();
    gone.finish_sending();
    assert!(gone.read_all().is_empty());
}

#[test]
fn the_oldest_handshake_makes_room() {
    let server = Server::start(1, with_tls(|options| options.limits.tls_handshakes_max = 3));
    let mut kept = wss(server.addr);
    let mut sockets: Vec<_> = (0..5).map(|_| tcp(server.addr)).collect();
    for socket in &mut sockets[..2] {
        assert!(socket.read_all().is_empty());
    }
    assert_eq!(server.metric("tls_handshake_failures{evicted}"), 2);
    // The maximum of handshakes is reached by silent clients, and a new client is still served.
    check_serves(server.addr);
    server.until_metric("tls_handshake_failures{evicted}", |evicted| evicted == 3);
    check_echoes(&mut kept, "x");
}

#[test]
fn a_client_that_does_not_read_holds_one_piece() {
    let server = Server::start(1, with_tls(|_| {}));
    let mut streams: Vec<TlsStream> = (0..4).map(|_| open(server.addr, client(DEFAULT_VERSIONS))).collect();
    for stream in &mut streams {
        let requests = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n".repeat(40);
        stream.write_all(&requests).unwrap();
    }
    server.until_metric("http_requests", |requests| requests >= 4);
    for _ in 0..100 {
        pass(Duration::from_millis(10));
        // Per client: at most two copies of a page, and one encrypted piece. Without a bound, the sum would be 48 MB.
        let held = server.metric("memory_bytes{tls}") + server.metric("memory_bytes{replies}");
        assert!(held < 4 * 800_000, "{held}");
    }
    // A client that reads late receives all responses.
    for stream in streams {
        let mut http = Http::over(stream);
        for _ in 0..40 {
            assert_eq!(http.response().body.len(), 300_000);
        }
    }
    check_empty(&server);
}

#[test]
fn key_updates_are_answered_and_a_flood_of_them_ends() {
    let server = Server::start(1, with_tls(|_| {}));
    let mut stream = open(server.addr, client(&[&TLS13]));
    for _ in 0..20 {
        stream.session.refresh_traffic_keys().unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        let n = read(&mut stream, &mut answer).unwrap();
        assert!(answer[..n].starts_with(b"HTTP/1.1 200"), "{n}");
    }
    let mut flood = open(server.addr, client(&[&TLS13]));
    for _ in 0..10_000 {
        flood.session.refresh_traffic_keys().unwrap();
        if flood.session.write_tls(&mut flood.stream).is_err() {
            break;
        }
    }
    server.until_metric("tls_errors", |errors| errors == 1);
    server.check_balance();
}
