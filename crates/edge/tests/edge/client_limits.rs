//! Addresses of clients behind proxies, and limits per address and session.

use crate::harness::{Http, Io, Server, Stream, UPGRADE, Way, Ws, request};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{AddressLimits, App, LimitPolicy, Options, SessionLimits};
use stentor_ports::Networks;
use stentor_wire::engineio::Version;
use stentor_wire::proxy;
use stentor_wire::ws::Opcode;

/// The address of a client.
const CLIENT: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.2";
const POLLING: &str = "/socket.io/?EIO=4&transport=polling";

/// Trusts proxies on this machine.
fn trust_loopback(options: &mut Options) {
    options.proxies.trusted = Networks::parse(&["127.0.0.0/8"]).unwrap();
}

/// Opens a WebSocket like a proxy of a client with this address.
fn ws_of(server: &Server, client: &str) -> Result<Ws, u16> {
    Ws::open(server.addr, "/ws", &[("X-Forwarded-For", client)], false)
}

/// Status and `Retry-After` of a forwarded request.
fn forwarded(http: &mut Http, target: &str, client: &str) -> (u16, String) {
    let response = http.ask(request("GET", target, &format!("X-Forwarded-For: {client}\r\n")));
    (response.status, response.header("Retry-After").to_owned())
}

#[test]
fn connections_of_an_address() {
    let server = Server::start(2, |options| options.address_limits.connections_max = 3);
    let mut open: Vec<_> = (0..3).map(|_| server.ws("/ws")).collect();
    // The client receives the reason and the time to retry. Requests without a session are refused as well.
    assert_eq!(Ws::open(server.addr, "/ws", &[], false).err(), Some(429));
    let response = server.get("/healthz");
    assert_eq!((response.status, response.header("Retry-After")), (429, "5"));
    assert!(response.text().contains("address_limits.connections_max"), "{}", response.text());
    server.until_metric("connections_limited", |value| value == 2);
    // When one connection has ended, another one may begin.
    drop(open.pop());
    server.until_metric("connections", |value| value == 2);
    open.push(server.ws("/ws"));
    drop(open);
    server.check_empty();
}

#[test]
fn new_connections_of_an_address_and_of_the_node() {
    for limit in ["address_limits.connections_per_second", "limits.connections_per_second"] {
        let server = Server::start(1, |options| {
            let per_second = match limit.starts_with("address") {
                true => &mut options.address_limits.connections_per_second,
                false => &mut options.limits.connections_per_second,
            };
            *per_second = 4;
        });
        let answers = (0..8).map(|_| server.get("/healthz"));
        let refused: Vec<_> = answers.filter(|answer| answer.status == 429).collect();
        assert_eq!(refused.len(), 4, "{limit}");
        for answer in refused {
            assert!(answer.header("Retry-After") == "1" && answer.text().contains(limit), "{answer:?}");
        }
    }
}

#[test]
fn silent_connections_above_the_limit_end_soon_and_delay_no_others() {
    let server = Server::start(1, |options| options.address_limits.connections_max = 1);
    let mut held = server.client();
    let silent: Vec<_> = (0..400).map(|_| Stream::connect(server.addr).unwrap()).collect();
    server.until_metric("connections_limited", |value| value == 400);
    // Only some of the connections wait for their requests.
    server.until_metric("connections", |value| value <= 257);
    held.ask(json!({"type": "ping"}));
    server.until_metric("connections", |value| value == 1);
    drop(silent);
}

#[test]
fn requests_that_a_proxy_passes_on_count_for_their_clients() {
    let server = Server::start(1, |options| {
        trust_loopback(options);
        options.address_limits.connections_max = 2;
    });
    let mut open = Vec::new();
    for (client, is_accepted) in [
        (CLIENT, true),
        (CLIENT, true),
        (CLIENT, false),
        // Addresses that the client writes itself are ignored.
        ("10.0.0.1, 192.0.2.1", false),
        (OTHER, true),
        // All addresses of an IPv6 /64 prefix count as one.
        ("2001:db8::1", true),
        ("2001:db8::2", true),
        ("2001:db8::ffff:1", false),
        ("2001:db8:0:1::1", true),
    ] {
        let ws = ws_of(&server, client);
        assert_eq!(ws.as_ref().err(), (!is_accepted).then_some(&429), "{client}");
        open.extend(ws);
    }
    // One connection of the proxy carries requests of many clients, each counted while it is answered.
    let mut http = server.http();
    for _ in 0..3 {
        assert_eq!(forwarded(&mut http, POLLING, OTHER).0, 200);
    }
    assert_eq!(forwarded(&mut http, POLLING, CLIENT), (429, "5".into()));
    // Requests without a forwarded address have no limit: they are the proxy's own.
    open.extend((0..5).map(|_| server.ws("/ws")));
    server.until_metric("connections_limited", |value| value == 4);
    drop((open, http));
    server.until_metric("connections", |value| value == 0);
    let _again = [(); 2].map(|()| ws_of(&server, CLIENT).unwrap());
}

#[test]
fn a_stream_that_a_post_has_opened_counts_while_it_lasts() {
    let server = Server::start(1, |options| {
        trust_loopback(options);
        options.address_limits.connections_max = 2;
    });
    let streams = [(); 2].map(|()| {
        let body = r#"{"feeds":{"k":null}}"#;
        let headers = format!("X-Forwarded-For: {CLIENT}\r\nContent-Length: {}\r\n", body.len());
        let mut http = server.http();
        http.send(request("POST", "/sse", &headers) + body);
        http.stream_head();
        http
    });
    assert_eq!(ws_of(&server, CLIENT).err(), Some(429));
    drop(streams);
    server.until_metric("connections", |value| value == 0);
    let _again = [(); 2].map(|()| ws_of(&server, CLIENT).unwrap());
}

#[test]
fn sessions_of_an_address_over_all_protocols() {
    let server = Server::start(2, |options| {
        trust_loopback(options);
        options.address_limits.sessions_max = 3;
    });
    let client = format!("X-Forwarded-For: {CLIENT}\r\n");
    let _ws = ws_of(&server, CLIENT).unwrap();
    let mut http = server.http();
    assert_eq!(forwarded(&mut http, "/engine.io/?EIO=4&transport=polling", CLIENT).0, 200);
    let mut stream = server.http();
    stream.send(request("GET", "/sse/key", &client));
    server.until_metric("sessions", |value| value == 3);
    for (method, target) in [
        ("GET", "/engine.io/?EIO=4&transport=polling"),
        ("GET", POLLING),
        ("GET", "/sse/key"),
        ("POST", "/sockjs/0/a/xhr"),
    ] {
        let response = server.request(method, target, &format!("Content-Length: 0\r\n{client}"));
        assert_eq!((response.status, response.header("Retry-After")), (429, "5"), "{target}");
        assert!(response.text().contains("address_limits.sessions_max"), "{}", response.text());
    }
    for target in ["/ws", "/ws/key", "/primus/", "/sockjs/0/a/websocket", "/sockjs/websocket"] {
        assert_eq!(server.request("GET", target, &format!("{UPGRADE}{client}")).status, 429, "{target}");
    }
    server.until_metric("sessions_limited", |value| value == 9);
    let _other = ws_of(&server, OTHER).unwrap();
    // The session may be counted after its request has been answered.
    server.until_metric("sessions", |value| value == 4);
    // A session that ends makes room for another one under `sessions_max`.
    drop(stream);
    server.until_metric("sessions", |value| value == 3);
    let _again = ws_of(&server, CLIENT).unwrap();
}

#[test]
fn new_sessions_of_an_address() {
    let server = Server::start(1, |options| {
        trust_loopback(options);
        options.address_limits = AddressLimits { sessions_per_second: 3, ..AddressLimits::default() };
    });
    let status = |client| forwarded(&mut server.http(), POLLING, client).0;
    let statuses: Vec<_> = (0..8).map(|_| status(CLIENT)).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429, 429]);
    assert_eq!(status(OTHER), 200);
}

fn with_session_limits(policy: LimitPolicy) -> impl FnOnce(&mut Options) {
    move |options| {
        options.session_limits = SessionLimits {
            messages_per_second: 5,
            publications_per_second: 2,
            bytes_per_second: 10_000,
            burst: Duration::from_secs(20),
            policy,
        };
        options.rooms.publish = true;
        options.rooms.rules = vec![stentor_edge::Rule {
            event: "say".into(),
            broadcast_all: true,
            ack: true,
            ..stentor_edge::Rule::default()
        }];
    }
}

#[test]
fn messages_of_a_session_are_answered_with_an_error() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Error));
    let mut ws = server.client();
    // The bucket holds 100 messages: 5 per second for 20 s.
    for id in 0..100 {
        ws.send_json(json!({"type": "ping", "id": id}));
        ws.expect_json(json!({"type": "ok", "id": id}));
    }
    // After that, 5 messages per second are allowed.
    let mut refused = 0;
    for id in 100..120 {
        ws.send_json(json!({"type": "ping", "id": id}));
        let answer = ws.next_json();
        assert_eq!(answer["id"], id);
        if answer["type"] == "error" {
            refused += 1;
            assert_eq!((&answer["code"], &answer["retry"]), (&json!("too_many_requests"), &json!(true)));
            assert!(answer["message"].as_str().unwrap().contains("session_limits.messages_per_second"));
        }
    }
    assert!((1..=20).contains(&refused), "{refused}");
    // Other clients aren't affected.
    server.client().ask(json!({"type": "ping"}));
    server.until_metric("messages_limited", |value| value == refused);
}

#[test]
fn publications_and_bytes_of_a_session() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Error));
    // The bucket holds 200 kB: 10 kB per second for 20 s. It has room for one of these messages, but not for a second
    // one.
    let text = "x".repeat(150_000);
    for (message, accepted, limit) in [
        (json!({"type": "publish", "id": 1, "room": "r", "data": 1}), 40, "publications_per_second"),
        (json!({"type": "ping", "id": 1, "x": text}), 1, "bytes_per_second"),
    ] {
        let mut ws = server.client();
        for _ in 0..accepted {
            ws.send_json(message.clone());
            ws.expect_json(json!({"type": "ok", "id": 1}));
        }
        ws.send_json(message);
        let refused = ws.next_json();
        assert_eq!((&refused["id"], &refused["code"]), (&json!(1), &json!("too_many_requests")), "{limit}");
        assert!(refused["message"].as_str().unwrap().contains(limit), "{refused}");
    }
}

#[test]
fn messages_above_a_limit_are_dropped() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Drop));
    let mut ws = server.client();
    for n in 0..45 {
        ws.send_json(json!({"type": "publish", "id": n, "room": "r", "data": n}));
    }
    ws.send_json(json!({"type": "ping", "id": "last"}));
    let answers: Vec<_> =
        std::iter::from_fn(|| Some(ws.next_json()).filter(|answer| answer["id"] != "last")).collect();
    // The dropped messages receive no answer.
    assert!((40..=42).contains(&answers.len()) && answers.iter().all(|answer| answer["type"] == "ok"));
}

#[test]
fn messages_above_a_limit_end_the_session() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Close));
    for kind in ["ping", "publish"] {
        let mut ws = server.client();
        for n in 0..130 {
            let message = json!({"type": kind, "id": n, "room": "r"}).to_string();
            ws.send_frame_if_open(Opcode::Text, message.as_bytes());
        }
        assert_eq!(ws.skip_to_close(), 4506, "{kind}");
    }
    server.until_metric("disconnects{too_many_requests}", |value| value == 2);
}

#[test]
fn events_of_socketio() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Error));
    for way in [Way::Socket, Way::Polling] {
        let mut io = Io::connected(&server, Version::V4, way);
        for n in 0..40 {
            io.send(&format!(r#"42["say",{n}]"#));
            assert_eq!(io.event()[1], n);
        }
        let answer = io.ask("say", &[json!(40)]);
        assert_eq!((&answer[0]["ok"], &answer[0]["code"]), (&json!(false), &json!("too_many_requests")));
        // Events above the limit are acknowledged with an error, and their rule isn't carried out.
        for _ in 0..70 {
            io.send(r#"42["nothing"]"#);
        }
        assert_eq!(io.ask("nothing", &[])[0]["code"], "too_many_requests");
        io.leave();
    }
}

#[test]
fn messages_of_echo() {
    let server = Server::start(1, |options| {
        with_session_limits(LimitPolicy::Error)(options);
        options.app = App::Echo;
    });
    let mut ws = server.ws("/ws");
    for n in 0..101 {
        ws.send_text(&n.to_string());
    }
    for n in 0..100 {
        assert_eq!(ws.next_text(), n.to_string());
    }
    assert_eq!(ws.fence(), []);
}

#[test]
fn cookies_and_origins_behind_a_proxy_with_tls() {
    let server = Server::start(1, |options| {
        trust_loopback(options);
        options.engine.cookie = Some("io".into());
    });
    for (headers, status, is_secure) in [
        ("", 200, false),
        ("X-Forwarded-Proto: https\r\n", 200, true),
        ("X-Forwarded-Proto: https\r\nOrigin: https://a.test\r\n", 200, true),
        ("X-Forwarded-Proto: https\r\nOrigin: http://a.test\r\n", 403, false),
        ("Origin: http://a.test\r\n", 200, false),
    ] {
        let response = server.request("GET", POLLING, headers);
        let cookie_is_secure = response.header("Set-Cookie").contains("; Secure");
        assert_eq!((response.status, cookie_is_secure), (status, is_secure), "{headers}");
    }
}

/// The PROXY protocol header for a client with this address.
fn header(client: &str) -> Vec<u8> {
    let mut header = Vec::new();
    let addresses = (client.parse().unwrap(), "127.0.0.1:80".parse().unwrap());
    proxy::write(&mut header, Some(addresses), &[(0xe0, b"x")], true);
    header
}

/// A connection that begins with these bytes.
fn beginning_with(server: &Server, bytes: impl AsRef<[u8]>) -> Http {
    let mut http = server.http();
    http.send(bytes);
    http
}

/// Sends an invalid header, and checks that the connection ends without an answer.
fn check_refused(server: &Server, bytes: impl AsRef<[u8]>, finishes: bool) {
    let refused = server.metric("proxy_headers_refused");
    let mut http = server.http();
    http.send_if_open(&bytes);
    if finishes {
        http.finish_sending();
    }
    http.expect_end();
    server.until_metric("proxy_headers_refused", |value| value == refused + 1);
}

fn with_proxy_protocol(options: &mut Options) {
    trust_loopback(options);
    options.proxy_protocol = true;
    options.proxies.header_timeout = Duration::from_millis(700);
}

#[test]
fn headers_of_proxies_name_the_client() {
    let server = Server::start(2, |options| {
        with_proxy_protocol(options);
        options.address_limits.connections_max = 2;
    });
    let mut local = Vec::new();
    proxy::write(&mut local, None, &[], false);
    let text = |client| format!("PROXY TCP4 {client} 127.0.0.1 1 80\r\n").into_bytes();
    let mut held = Vec::new();
    for (header, status) in [
        (header("192.0.2.1:5000"), 200),
        (header("192.0.2.1:5000"), 200),
        (header("192.0.2.1:5001"), 429),
        (text(CLIENT), 429),
        (text(OTHER), 200),
        // The proxy's own connections have no limit.
        (local.clone(), 200),
        (local.clone(), 200),
        (local, 200),
    ] {
        let mut http = beginning_with(&server, &header);
        assert_eq!(http.get("/healthz").status, status, "{}", String::from_utf8_lossy(&header));
        if status == 200 {
            held.push(http);
        }
    }
    // The client isn't a trusted proxy, so its forwarding headers are ignored.
    let mut http = beginning_with(&server, header("192.0.2.1:5002"));
    assert_eq!(forwarded(&mut http, "/healthz", "192.0.2.3").0, 429);
    drop(http);
    // Header and request in one segment, and byte by byte.
    let request = [&header("192.0.2.4:1")[..], request("GET", "/healthz", "").as_bytes()].concat();
    for pieces in [vec![&request[..]], request.chunks(1).collect()] {
        let mut http = server.http();
        pieces.into_iter().for_each(|piece| http.send(piece));
        assert_eq!(http.response().status, 200);
    }
    // A WebSocket whose connection begins with a PROXY header.
    let mut ws = Ws::over(beginning_with(&server, header("192.0.2.5:1")).into_stream(), "/ws");
    assert_eq!(ws.next_json()["type"], "welcome");
    drop((held, ws));
    server.until_metric("connections", |value| value == 0);
    assert_eq!(server.metric("proxy_headers_refused"), 0);
}

#[test]
fn connections_without_a_valid_header_are_closed() {
    let server = Server::start(1, with_proxy_protocol);
    let good = header("192.0.2.1:5000");
    let mut http = beginning_with(&server, &good);
    assert_eq!(http.get("/healthz").status, 200);
    let mut broken = good.clone();
    broken[20] ^= 1;
    for bytes in [
        request("GET", "/healthz", "").as_bytes(),
        b"PROXY TCP4 evil 127.0.0.1 1 80\r\nGET",
        &b"PROXY ".repeat(30),
        &broken,
        &[0x16, 3, 1, 2, 0],
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        // The header is never completed.
        &good[..20],
    ] {
        check_refused(&server, bytes, false);
    }
    // The connection is finished within the header.
    check_refused(&server, "PROXY ", true);
    assert_eq!(http.get("/healthz").status, 200);
    drop(http);
    server.until_metric("connections", |value| value == 0);
}

#[test]
fn headers_from_addresses_that_are_not_trusted_are_refused() {
    let server = Server::start(1, |options| {
        with_proxy_protocol(options);
        options.proxies.trusted = Networks::parse(&["10.0.0.0/8"]).unwrap();
    });
    check_refused(&server, header("192.0.2.1:5000"), false);
}

#[test]
fn an_address_with_most_sessions_is_reported() {
    let server = Server::start(1, trust_loopback);
    let proxied: Vec<_> = (0..120).map(|_| server.ws("/ws")).collect();
    server.until_metric("address_share_percent", |value| value == 100);
    // Clients whose proxy reports their addresses.
    let others: Vec<_> = (0..40).map(|n| ws_of(&server, &format!("192.0.2.{n}")).unwrap()).collect();
    server.until_metric("address_share_percent", |value| value == 75);
    drop(proxied);
    server.until_metric("address_share_percent", |value| value == 0);
    drop(others);
}
