//! Who clients are behind proxies, and what one address or session may take.

use crate::harness::{Http, Io, Server, Stream, Way, Ws};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use stentor_edge::{AddressLimits, App, LimitPolicy, Networks, Options, SessionLimits};

/// Takes the word of this machine for who clients are.
fn trust_loopback(options: &mut Options) {
    options.proxies.trusted = Networks::parse(&["127.0.0.0/8"]).unwrap();
}

/// Opens a WebSocket as a proxy does for a client of this address.
fn ws_of(addr: SocketAddr, client: &str) -> Result<Ws, u16> {
    Ws::open(addr, "/ws", &[("X-Forwarded-For", client)], false)
}

fn forwarded(http: &mut Http, target: &str, client: &str) -> (u16, String) {
    http.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n"));
    let response = http.response();
    (response.status, response.header("Retry-After").to_owned())
}

#[test]
fn connections_of_an_address() {
    let server = Server::start(2, |options| options.address_limits.connections_max = 3);
    let mut open: Vec<_> = (0..3).map(|_| server.ws("/ws")).collect();
    // It learns why, and when to return. Requests without a session are refused as well.
    assert_eq!(Ws::open(server.addr, "/ws", &[], false).err(), Some(429));
    let mut http = server.http();
    let response = http.get("/healthz");
    assert_eq!((response.status, response.header("Retry-After")), (429, "5"));
    assert!(response.text().contains("address_limits.connections_max"), "{}", response.text());
    server.until_metric("connections_limited", |value| value == 2);
    // As soon as one has gone, another one may come.
    drop(open.pop());
    drop(http);
    server.until_metric("connections", |value| value == 2);
    open.push(server.ws("/ws"));
    drop(open);
    server.check_empty();
}

#[test]
fn new_connections_of_an_address_and_of_the_node() {
    for limit in ["address_limits.connections_per_second", "limits.connections_per_second"] {
        let server = Server::start(1, |options| {
            if limit.starts_with("address") {
                options.address_limits.connections_per_second = 4;
            } else {
                options.limits.connections_per_second = 4;
            }
        });
        let refused: Vec<_> = (0..8)
            .filter_map(|_| {
                let mut http = server.http();
                let response = http.get("/healthz");
                (response.status == 429)
                    .then(|| (response.header("Retry-After").to_owned(), response.text().to_owned()))
            })
            .collect();
        // A slow machine opens one more in between.
        assert!((2..=4).contains(&refused.len()), "{}", refused.len());
        assert!(refused.iter().all(|(after, text)| after == "1" && text.contains(limit)), "{refused:?}");
    }
}

#[test]
fn silent_connections_above_the_limit_end_soon_and_delay_nobody() {
    let server = Server::start(1, |options| options.address_limits.connections_max = 1);
    let mut held = server.client();
    let silent: Vec<_> = (0..400).map(|_| Stream::connect(server.addr).unwrap()).collect();
    server.until_metric("connections_limited", |value| value == 400);
    // Only some of them wait for their requests.
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
    let addr = server.addr;
    let first: Vec<_> = (0..2).map(|_| ws_of(addr, "192.0.2.1").unwrap()).collect();
    assert_eq!(ws_of(addr, "192.0.2.1").err(), Some(429));
    assert_eq!(
        ws_of(addr, "10.0.0.1, 192.0.2.1").err(),
        Some(429),
        "what a client writes itself counts nothing"
    );
    let other = ws_of(addr, "192.0.2.2").unwrap();
    // A /64 of version 6 is one address.
    let six: Vec<_> = (1..3).map(|n| ws_of(addr, &format!("2001:db8::{n}")).unwrap()).collect();
    assert_eq!(ws_of(addr, "2001:db8::ffff:1").err(), Some(429));
    let next = ws_of(addr, "2001:db8:0:1::1").unwrap();
    // One connection of the proxy carries requests of many clients, each counted while it is answered.
    let mut http = server.http();
    for _ in 0..3 {
        assert_eq!(forwarded(&mut http, "/socket.io/?EIO=4&transport=polling", "192.0.2.2").0, 200);
    }
    assert_eq!(forwarded(&mut http, "/socket.io/?EIO=4&transport=polling", "192.0.2.1"), (429, "5".into()));
    // What isn't forwarded has no limit: the proxy's own requests.
    let own: Vec<_> = (0..5).map(|_| server.ws("/ws")).collect();
    server.until_metric("connections_limited", |value| value == 4);
    drop((first, other, six, next, own, http));
    server.until_metric("connections", |value| value == 0);
    let again: Vec<_> = (0..2).map(|_| ws_of(addr, "192.0.2.1").unwrap()).collect();
    drop(again);
}

#[test]
fn sessions_of_an_address_over_all_protocols() {
    let server = Server::start(2, |options| {
        trust_loopback(options);
        options.address_limits.sessions_max = 3;
    });
    let addr = server.addr;
    let _ws = ws_of(addr, "192.0.2.1").unwrap();
    let mut http = server.http();
    assert_eq!(forwarded(&mut http, "/engine.io/?EIO=4&transport=polling", "192.0.2.1").0, 200);
    let mut stream = server.http();
    stream.send("GET /sse/key HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
    server.until_metric("sessions", |value| value == 3);
    for target in [
        "/engine.io/?EIO=4&transport=polling",
        "/socket.io/?EIO=4&transport=polling",
        "/sse/key",
        "/sockjs/0/a/xhr",
    ] {
        let method = if target.ends_with("xhr") { "POST" } else { "GET" };
        let response = server.ask(format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
        ));
        assert_eq!((response.status, response.header("Retry-After")), (429, "5"), "{target}");
        assert!(response.text().contains("address_limits.sessions_max"), "{}", response.text());
    }
    for target in ["/ws", "/ws/key", "/primus/", "/sockjs/0/a/websocket", "/sockjs/websocket"] {
        let refused = Ws::open(addr, target, &[("X-Forwarded-For", "192.0.2.1")], false).err();
        assert_eq!(refused, Some(429), "{target}");
    }
    server.until_metric("sessions_limited", |value| value == 9);
    let _other = ws_of(addr, "192.0.2.2").unwrap();
    // It may be counted after it has been answered.
    server.until_metric("sessions", |value| value == 4);
    // Polls of a session that is there aren't new ones.
    drop(stream);
    server.until_metric("sessions", |value| value == 3);
    let _again = ws_of(addr, "192.0.2.1").unwrap();
}

#[test]
fn new_sessions_of_an_address() {
    let server = Server::start(1, |options| {
        trust_loopback(options);
        options.address_limits = AddressLimits { sessions_per_second: 3, ..AddressLimits::default() };
    });
    let mut http = server.http();
    let mut statuses = Vec::new();
    for _ in 0..8 {
        statuses.push(forwarded(&mut http, "/engine.io/?EIO=4&transport=polling", "192.0.2.1").0);
        if statuses.last() == Some(&429) {
            http = server.http();
        }
    }
    assert!((3..=5).contains(&statuses.iter().filter(|status| **status == 200).count()), "{statuses:?}");
    assert_eq!(forwarded(&mut http, "/engine.io/?EIO=4&transport=polling", "192.0.2.2").0, 200);
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
    let mut codes = Vec::new();
    for id in 0..120 {
        ws.send_json(json!({"type": "ping", "id": id}));
        let answer = ws.next_json();
        assert_eq!(answer["id"], id);
        codes.push(answer["code"].as_str().unwrap_or("ok").to_owned());
        if answer["type"] == "error" {
            assert_eq!(answer["retry"], true);
            assert!(answer["message"].as_str().unwrap().contains("session_limits.messages_per_second"));
        }
    }
    // A hundred at once, and five in each second since.
    let refused = codes.iter().filter(|code| **code == "too_many_requests").count();
    assert!(codes[..100].iter().all(|code| code == "ok") && (1..=20).contains(&refused), "{refused}");
    // Others aren't concerned.
    let mut other = server.client();
    other.ask(json!({"type": "ping"}));
    server.until_metric("messages_limited", |value| value == refused as u64);
}

#[test]
fn publications_and_bytes_of_a_session() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Error));
    let mut ws = server.client();
    let mut publish = |n: usize| {
        ws.send_json(json!({"type": "publish", "id": n, "room": "r", "data": n}));
        ws.next_json()
    };
    for n in 0..40 {
        assert_eq!(publish(n)["type"], "ok", "{n}");
    }
    let refused = publish(40);
    assert_eq!(refused["code"], "too_many_requests");
    assert!(refused["message"].as_str().unwrap().contains("publications_per_second"), "{refused}");
    // 200 kB at once; more fits only when the bucket is full again.
    let mut large = server.client();
    let text = format!(r#"{{"type":"ping","id":1,"x":"{}"}}"#, "x".repeat(150_000));
    large.send_text(&text);
    assert_eq!(large.next_json()["type"], "ok");
    large.send_text(&text);
    let refused = large.next_json();
    assert!(refused["message"].as_str().unwrap().contains("bytes_per_second"), "{refused}");
    assert_eq!(refused["id"], 1);
}

#[test]
fn what_is_above_is_dropped() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Drop));
    let mut ws = server.client();
    for n in 0..45 {
        ws.send_json(json!({"type": "publish", "id": n, "room": "r", "data": n}));
    }
    ws.send_json(json!({"type": "ping", "id": "last"}));
    let answers: Vec<_> =
        std::iter::from_fn(|| Some(ws.next_json()).filter(|answer| answer["id"] != "last")).collect();
    // The others aren't answered, neither well nor badly.
    assert!((40..=42).contains(&answers.len()) && answers.iter().all(|answer| answer["type"] == "ok"));
}

#[test]
fn what_is_above_ends_the_session() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Close));
    for kind in ["ping", "publish"] {
        let mut ws = server.client();
        for n in 0..130 {
            ws.send_if_open(&crate::harness::ws::frame(
                stentor_wire::ws::Opcode::Text,
                json!({"type": kind, "id": n, "room": "r"}).to_string().as_bytes(),
                true,
                false,
            ));
        }
        assert_eq!(ws.skip_to_close(), 4506, "{kind}");
    }
    server.until_metric("disconnects{too_many_requests}", |value| value == 2);
}

#[test]
fn events_of_socketio() {
    let server = Server::start(1, with_session_limits(LimitPolicy::Error));
    for way in [Way::Socket, Way::Polling] {
        let mut io = Io::socket(&server, way);
        io.connect("", json!(null));
        for n in 0..40 {
            io.send(&format!(r#"42["say",{n}]"#));
            assert_eq!(io.event()[1], n);
        }
        let answer = io.ask("say", &[json!(40)]);
        assert_eq!((&answer[0]["ok"], &answer[0]["code"]), (&json!(false), &json!("too_many_requests")));
        // Acknowledged as above the limit of events, too, which the rule isn't asked about.
        for _ in 0..70 {
            io.send(r#"42["nothing"]"#);
        }
        let answer = io.ask("nothing", &[]);
        assert_eq!(answer[0]["code"], "too_many_requests");
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
    let handshake = |headers: &str| {
        let response = server.ask(format!(
            "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n"
        ));
        (response.status, response.header("Set-Cookie").contains("; Secure"))
    };
    assert_eq!(handshake(""), (200, false));
    assert_eq!(handshake("X-Forwarded-Proto: https\r\n"), (200, true));
    assert_eq!(handshake("X-Forwarded-Proto: https\r\nOrigin: https://a.test\r\n"), (200, true));
    assert_eq!(handshake("X-Forwarded-Proto: https\r\nOrigin: http://a.test\r\n").0, 403);
    assert_eq!(handshake("Origin: http://a.test\r\n"), (200, false));
}

/// The header of a proxy for a client of this address.
fn header(client: &str) -> Vec<u8> {
    let mut header = Vec::new();
    let addresses = (client.parse().unwrap(), "127.0.0.1:80".parse().unwrap());
    stentor_wire::proxy::write(&mut header, Some(addresses), &[(0xe0, b"x")], true);
    header
}

/// A connection that begins with these bytes.
fn beginning_with(server: &Server, bytes: &[u8]) -> Http {
    let mut http = server.http();
    http.send(bytes);
    http
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
    let mut held: Vec<_> = (0..2)
        .map(|_| {
            let mut http = beginning_with(&server, &header("192.0.2.1:5000"));
            assert_eq!(http.get("/healthz").status, 200);
            http
        })
        .collect();
    assert_eq!(beginning_with(&server, &header("192.0.2.1:5001")).get("/healthz").status, 429);
    assert_eq!(
        beginning_with(&server, b"PROXY TCP4 192.0.2.1 127.0.0.1 1 80\r\n").get("/healthz").status,
        429
    );
    assert_eq!(
        beginning_with(&server, b"PROXY TCP4 192.0.2.2 127.0.0.1 1 80\r\n").get("/healthz").status,
        200
    );
    // The client isn't a trusted proxy, so what it says of itself means nothing.
    let mut http = beginning_with(&server, &header("192.0.2.1:5002"));
    assert_eq!(forwarded(&mut http, "/healthz", "192.0.2.3").0, 429);
    drop(http);
    // The proxy's own connections have no limit.
    for _ in 0..3 {
        let mut local = Vec::new();
        stentor_wire::proxy::write(&mut local, None, &[], false);
        let mut http = beginning_with(&server, &local);
        assert_eq!(http.get("/healthz").status, 200);
        held.push(http);
    }
    // Header and request in one segment, and byte by byte.
    let mut http = beginning_with(
        &server,
        &[&header("192.0.2.4:1")[..], b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"].concat(),
    );
    assert_eq!(http.response().status, 200);
    drop(http);
    let mut http = server.http();
    for byte in [&header("192.0.2.4:1")[..], b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"].concat() {
        http.send([byte]);
    }
    assert_eq!(http.response().status, 200);
    // A WebSocket as well.
    let mut stream = Stream::connect(server.addr).unwrap();
    std::io::Write::write_all(&mut stream, &header("192.0.2.5:1")).unwrap();
    let handshake = stentor_wire::ws::handshake::ClientHandshake::new([7; 16], false);
    let mut request = Vec::new();
    handshake.write_request(&mut request, "a", "/ws", &[]);
    std::io::Write::write_all(&mut stream, &request).unwrap();
    let mut ws = Ws::answered(stream, Some(&handshake)).unwrap();
    assert_eq!(ws.next_json()["type"], "welcome");
    drop((held, http, ws));
    server.until_metric("connections", |value| value == 0);
    assert_eq!(server.metric("proxy_headers_refused"), 0);
}

#[test]
fn connections_without_a_sound_header_are_closed() {
    let server = Server::start(1, with_proxy_protocol);
    let mut good = beginning_with(&server, &header("192.0.2.1:5000"));
    assert_eq!(good.get("/healthz").status, 200);
    let mut broken = header("192.0.2.1:5000");
    broken[20] ^= 1;
    let cases: [&[u8]; 6] = [
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 evil 127.0.0.1 1 80\r\nGET",
        &[b'P', b'R', b'O', b'X', b'Y', b' '].repeat(30),
        &broken,
        &[0x16, 3, 1, 2, 0],
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ];
    for (n, bytes) in (1..).zip(cases) {
        let mut http = server.http();
        http.send_if_open(bytes);
        let mut answer = [0; 64];
        let read = std::io::Read::read(&mut http.stream(), &mut answer).unwrap_or(0);
        assert_eq!(read, 0, "{:?}", &answer[..read]);
        server.until_metric("proxy_headers_refused", |value| value == n);
    }
    // Never finished, or finished too early.
    let mut slow = server.http();
    slow.send(&header("192.0.2.1:5000")[..20]);
    assert_eq!(slow.read(&mut [0; 8]), 0);
    let mut short = server.http();
    short.send(b"PROXY ");
    short.finish_sending();
    assert_eq!(short.read(&mut [0; 8]), 0);
    server.until_metric("proxy_headers_refused", |value| value == 8);
    assert_eq!(good.get("/healthz").status, 200);
    drop(good);
    server.until_metric("connections", |value| value == 0);
}

#[test]
fn headers_from_addresses_that_are_not_trusted_are_refused() {
    let server = Server::start(1, |options| {
        with_proxy_protocol(options);
        options.proxies.trusted = Networks::parse(&["10.0.0.0/8"]).unwrap();
    });
    let mut http = server.http();
    http.send_if_open(header("192.0.2.1:5000"));
    assert_eq!(std::io::Read::read(&mut http.stream(), &mut [0; 8]).unwrap_or(0), 0);
    server.until_metric("proxy_headers_refused", |value| value == 1);
}

#[test]
fn an_address_with_most_sessions_is_noticed() {
    let server = Server::start(1, trust_loopback);
    let addr = server.addr;
    let proxied: Vec<_> = (0..120).map(|_| server.ws("/ws")).collect();
    server.until_metric("address_share_percent", |value| value == 100);
    // Clients whose proxy says who they are.
    let others: Vec<_> = (0..40).map(|n| ws_of(addr, &format!("192.0.2.{n}")).unwrap()).collect();
    server.until_metric("address_share_percent", |value| value == 75);
    drop(proxied);
    server.until_metric("address_share_percent", |value| value == 0);
    drop(others);
}
