//! Published attacks on Engine.IO's and Socket.IO's servers, each named after its number. Each test checks the answer, that other
//! clients are served, and that all resources are freed. Attacks on WebSocket and HTTP are in `threats.rs`.
//!
//! These attacks don't apply to this server: CVE-2016-10536 (a client that doesn't check certificates), CVE-2025-61765
//! and CVE-2026-23524 (objects of any type from a broker). Guessable ids (CVE-2017-16031) are tested with the code that
//! makes ids.

use crate::harness::io::post;
use crate::harness::{Io, Packet, Response, Server, TRANSPORTS, UPGRADE, WAYS, Way, on_one_and_three, until};
use std::time::Duration;
use stentor_edge::App;
use stentor_hub::Disconnect;
use stentor_wire::engineio::Version;

const TWO_ATTACHMENTS: &str = r#"452-["x",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;

/// Status and code of a refusal.
pub(crate) fn refusal(answer: &Response) -> (u16, u64) {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    (answer.status, body["code"].as_u64().unwrap())
}

/// Checks that other clients are served over each transport, and that all resources of the attack are freed.
fn survives(server: &Server) {
    for (version, way) in TRANSPORTS {
        let mut io = Io::connected(server, version, way);
        io.echoes(r#"42["alive",1]"#);
        io.leave();
    }
    server.check_serves();
    server.check_empty();
}

/// Requests for unknown sessions, and requests that don't fit their transport.
#[test]
fn refused_requests() {
    const UNKNOWN_TRANSPORT: u64 = 0;
    const UNKNOWN_SESSION: u64 = 1;
    const BAD_METHOD: u64 = 2;
    const BAD_REQUEST: u64 = 3;
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        let check = |name: &str, method: &str, query: &str, headers: &str, code: u64| {
            for path in ["/engine.io/", "/socket.io/"] {
                let mut http = server.http();
                let answer = http.ask(crate::harness::request(method, &format!("{path}?{query}"), headers));
                assert_eq!(refusal(&answer), (400, code), "{name}: {method} {path}?{query}");
                // The connection can be used again, unless the request was a handshake.
                assert!(headers == UPGRADE || http.get("/healthz").status == 200, "{name}: {query}");
            }
        };
        let length = "Content-Type: text/plain\r\nContent-Length: 0\r\n";
        let ids = ["__proto__", "constructor", "toString", "hasOwnProperty", "%00", "AAAAAAAAAAAAAAAAAAAA"];
        for sid in ids.into_iter().chain(["%C3%A9"]) {
            let name = "CVE-2026-102600, CVE-2026-59724: names of objects for an id";
            let query = |transport| format!("EIO=4&transport={transport}&sid={sid}");
            check(name, "GET", &query("polling"), "", UNKNOWN_SESSION);
            check(name, "GET", &query("websocket"), UPGRADE, UNKNOWN_SESSION);
            check(name, "GET", &query("webtransport"), "", UNKNOWN_TRANSPORT);
            check(name, "POST", &query("polling"), length, UNKNOWN_SESSION);
        }
        for transport in ["__proto__", "constructor", "toString", "", "POLLING", "webtransport"] {
            let name = "CVE-2023-31125: names of objects for a transport";
            for headers in ["", UPGRADE] {
                check(name, "GET", &format!("EIO=4&transport={transport}"), headers, UNKNOWN_TRANSPORT);
            }
        }
        for version in [3, 4] {
            let query = |transport| format!("EIO={version}&transport={transport}");
            check("no upgrade", "GET", &query("websocket"), "", BAD_REQUEST);
            check("upgrade of a poll", "GET", &query("polling"), UPGRADE, BAD_REQUEST);
            check("POST without a session", "POST", &query("polling"), length, BAD_METHOD);
        }
        survives(&server);
    });
}

/// Invalid requests that name a session by its id. The session continues.
#[test]
fn requests_that_leave_a_session_untouched() {
    on_one_and_three(|cores| {
        let server = Server::echo(cores);
        for (version, others) in [(Version::V4, ["EIO=3", ""]), (Version::V3, ["EIO=4", "EIO=2"])] {
            let mut io = Io::open(server.addr, "/engine.io/", version, Way::Polling, "");
            for (other, (transport, headers)) in others
                .iter()
                .flat_map(|other| [("websocket", UPGRADE), ("polling", "")].map(|by| (other, by)))
            {
                let target = format!("/engine.io/?{other}&transport={transport}&sid={}", io.sid);
                let name = format!("CVE-2026-102599, another version on the same session: {target}");
                assert_eq!(server.request("GET", &target, headers).status, 400, "{name}");
                assert_eq!(server.ask(post(&target, "text/plain", b"2")).status, 400, "{name}");
            }
            let target = io.target("polling").replace("engine.io", "socket.io");
            assert_eq!(refusal(&server.get(&target)), (400, 3), "the other protocol's path");
            io.echoes("4untouched");
            io.leave();
        }
        let mut io = Io::engine(&server, Way::Polling);
        let mut http = server.http();
        let octets = post(&io.target("polling"), "application/octet-stream", b"\x00\x02\xff4x");
        assert_eq!(refusal(&http.ask(octets)), (400, 3), "CVE-2026-59725: version 4 has no octet streams");
        assert_eq!(http.get("/healthz").status, 200, "the connection is free");
        // CVE-2022-21676, reserved bits after the upgrade: here during an upgrade from polling.
        let mut ws = io.begin_upgrade();
        ws.send_raw(&[0xb1, 0x80, 0, 0, 0, 0]);
        assert_eq!(ws.expect_close().0, 1002);
        io.echoes("4untouched");
        io.leave();
        drop(http);
        survives(&server);
    });
}

/// Packets that end the connection with a protocol error, by every transport.
#[test]
fn packets_that_end_the_connection() {
    const ATTACHMENT: &str = r#"451-["x",{"_placeholder":true,"num":0}]"#;
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| options.engine.attachments_max = 2);
        let no_names =
            [r#"{"toString":"foo"}"#, "true", "null", "[]", "{}", r#""connect""#, r#""disconnect""#];
        let counts = ["11", "99999999999999999999", "4294967296", "1e3", "-1", "3", ""];
        let numbers = [r#""splice""#, "1", "-1", "1.5", "null", "4294967296", "1e999"];
        let name = |name: &&str| ("CVE-2023-32695: the name is no string", vec![format!("42[{name}]")]);
        let count = |count: &&str| {
            let packet = format!(r#"45{count}-["x",{{"_placeholder":true,"num":0}}]"#);
            ("CVE-2026-33151: attachments without end", vec![packet])
        };
        let number = |number: &&str| {
            let packet = format!(r#"451-["hello",{{"_placeholder":true,"num":{number}}}]"#);
            ("CVE-2022-2421: placeholders of nothing", vec![packet, "b".to_owned()])
        };
        let others = [
            ("CVE-2026-69185: a binary event without attachments", &[r#"450-["x"]"#][..]),
            ("CVE-2026-69185: a binary ack without attachments", &[r#"460-1["x"]"#]),
            ("CVE-2026-69185: text where an attachment should be", &[ATTACHMENT, r#"42["y"]"#]),
            ("CVE-2026-69185: an attachment of nothing", &["b"]),
            ("no name", &["42[]"]),
            ("no list", &["42{}"]),
            ("a name that is reserved", &[r#"42["disconnecting"]"#]),
            ("another name that is reserved", &[r#"42["newListener"]"#]),
            ("more than a list", &[r#"42["x"]trailing"#]),
            ("an error, which servers send", &[r#"44{"message":"error"}"#]),
            ("a namespace that it isn't connected to", &[r#"42/unknown,["x"]"#]),
            ("no packet", &["4"]),
            ("an unknown packet", &["49"]),
        ];
        let others =
            others.map(|(name, packets)| (name, packets.iter().map(|text| (*text).into()).collect()));
        let attacks = no_names.iter().map(name).chain(counts.iter().map(count));
        let attacks: Vec<(_, Vec<String>)> =
            attacks.chain(numbers.iter().map(number)).chain(others).collect();
        let check = |name: &str, packets: &[String], version: Version, way: Way| {
            let mut io = Io::connected(&server, version, way);
            if (version, way) == (Version::V4, Way::Polling) {
                server.until_requested(|| io.begin_poll());
            }
            for packet in packets {
                match packet.as_str() {
                    "b" => io.send_binary_if_open(b"attached"),
                    packet => io.send(packet),
                }
            }
            let expect = if way == Way::Polling { 0 } else { Disconnect::ProtocolError.code() };
            assert_eq!(io.expect_end(), expect, "{name}: {packets:?} {version:?} {way:?}");
        };
        for (name, packets) in &attacks {
            TRANSPORTS.iter().for_each(|(version, way)| check(name, packets, *version, *way));
        }
        for way in WAYS {
            check("a second CONNECT", &["40".to_owned()], Version::V4, way);
        }
        survives(&server);
    });
}

#[test]
fn cve_2026_33151_attachments_without_end() {
    let server = Server::quiet(1, App::Echo, |options| options.limits.message_bytes_max = 10_000);
    // The number of attachments is allowed, but together they are too large.
    for way in WAYS {
        let mut io = Io::connected(&server, Version::V4, way);
        let list: Vec<String> = (0..10).map(|n| format!(r#"{{"_placeholder":true,"num":{n}}}"#)).collect();
        io.send(&format!(r#"4510-["x",{}]"#, list.join(",")));
        // The second attachment exceeds the limit.
        for _ in 0..2 {
            io.send_binary(&[0; 6_000]);
        }
        io.expect_end();
    }
    // Unfinished packets are kept within the limit, and their memory is freed.
    let many: Vec<Io> = (0..50).map(|n| unfinished(&server, TRANSPORTS[n % 3], 6_000)).collect();
    many.into_iter().for_each(Io::leave_abruptly);
    survives(&server);
}

/// Connects a client that has sent one of two attachments.
fn unfinished(server: &Server, (version, way): (Version, Way), bytes: usize) -> Io {
    let mut io = Io::connected(server, version, way);
    io.send(TWO_ATTACHMENTS);
    io.send_binary(&vec![0; bytes]);
    io
}

/// S6: a packet whose attachments never arrive has the same timeout as a WebSocket message in fragments. The timeout
/// starts with the packet's first part, and attachments don't extend it. A packet that is complete in time has no
/// further effect.
#[test]
fn attachments_that_never_come_end_the_session() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| {
            options.limits.message_timeout = Duration::from_millis(500);
        });
        for (before, transport) in (0..).zip(TRANSPORTS) {
            let mut whole = unfinished(&server, transport, 1_000);
            whole.send_binary(&[1; 10]);
            assert!(whole.next_text().starts_with("452-"), "{transport:?}");
            let expect = [vec![0; 1_000], vec![1; 10]].map(Packet::Binary);
            assert_eq!([whole.next(), whole.next()], expect, "{transport:?}");
            let mut late = unfinished(&server, transport, 1_000);
            until("the end of the session", || server.disconnects("message_timeout") > before);
            let end = if transport.1 == Way::Polling { 503 } else { 1006 };
            assert_eq!(late.expect_end(), end, "{transport:?}");
            assert_eq!(server.disconnects("message_timeout"), before + 1, "{transport:?}");
            whole.echoes(r#"42["still here"]"#);
            whole.leave();
        }
        server.check_empty();
    });
}

/// Events that are attacks on other servers, and ordinary events for this one.
#[test]
fn events_that_are_like_any_other() {
    let server = Server::echo(1);
    for (version, way) in TRANSPORTS {
        let mut io = Io::connected(&server, version, way);
        // CVE-2024-38355: an event called error.
        io.echoes(r#"42["error"]"#);
        io.send(r#"421["error",{"message":"x"}]"#);
        io.expect(r#"42["error",{"message":"x"}]"#);
        io.expect(r#"431[{"message":"x"}]"#);
        // CVE-2023-32695: a number is a valid name, as in the reference.
        io.send("42[1]");
        assert!(matches!(io.next(), Packet::Text(_) | Packet::End(_)));
    }
    for deep in [100, 100_000] {
        // Deep nesting doesn't overflow the stack.
        let text = format!("42[\"x\",{}1{}]", "[".repeat(deep), "]".repeat(deep));
        let mut io = Io::connected(&server, Version::V4, Way::Socket);
        io.send(&text);
        match io.next() {
            Packet::Text(echoed) => assert_eq!(echoed, text),
            Packet::End(code) => assert_eq!(code, Disconnect::ProtocolError.code()),
            other => panic!("{other:?}"),
        }
    }
    server.check_serves();
}

#[test]
fn cve_2020_36048_huge_bodies() {
    on_one_and_three(|cores| {
        let server = Server::quiet(cores, App::Echo, |options| options.limits.message_bytes_max = 100_000);
        let io = Io::engine(&server, Way::Polling);
        let head =
            format!("POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n", io.target("polling"));
        for (length, status) in
            [("100001", 413), ("1000000000000", 413), ("18446744073709551615", 400), ("1e3", 400)]
        {
            let mut http = server.http();
            // The server answers before any of the body has arrived. A length above 64 bits isn't a number.
            assert_eq!(
                http.ask(format!("{head}Content-Length: {length}\r\n\r\n")).status,
                status,
                "{length}"
            );
            http.expect_end();
        }
        // A chunked body is read up to the limit of its size.
        let mut http = server.http();
        http.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let received = server.metric("received_bytes");
        // The rest is discarded until the client has received its answer, or until the timeout.
        let _ = (0..1_000).all(|_| http.send_if_open(&chunk));
        assert!(server.metric("received_bytes") - received < 1_000_000);
        http.rest();
        io.leave();
        survives(&server);
    });
}

#[test]
fn cve_2020_36049_large_packets() {
    let server = Server::echo(1);
    for (version, way) in TRANSPORTS {
        // Packets of almost the maximum size that consist of the smallest possible parts.
        for packet in [
            format!("42[\"x\"{}]", ",0".repeat(499_000)),
            format!("42[\"x\",\"{}\"]", "\\u0041".repeat(160_000)),
            format!("42[\"x\",{}{}]", "[".repeat(490_000), "]".repeat(490_000)),
        ] {
            let mut io = Io::connected(&server, version, way);
            io.send(&packet);
            assert!(matches!(io.next(), Packet::Text(_) | Packet::End(_)), "{version:?} {way:?}");
        }
    }
    // A packet above the maximum size.
    let mut io = Io::connected(&server, Version::V4, Way::Socket);
    io.send(&format!("42[\"x\",\"{}\"]", "x".repeat(1_000_000)));
    assert_eq!(io.expect_end(), 1009);
    server.check_serves();
}
