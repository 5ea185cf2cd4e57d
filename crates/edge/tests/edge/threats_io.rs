//! Published attacks on Engine.IO's and Socket.IO's servers, each named after its number: the right answer, others are
//! served, and what it cost is given back. Those on WebSocket and HTTP are in `threats.rs`.
//!
//! Not here, because there is nothing to attack: CVE-2016-10536 (a client that doesn't check certificates),
//! CVE-2025-61765 and CVE-2026-23524 (objects of any type from a broker).

use crate::harness::io::{packets, post};
use crate::harness::{Io, Packet, Response, Seen, Server, VERSIONS, WAYS, Way, Ws, on_one_and_three};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options, Origins};
use stentor_hub::Disconnect;
use stentor_wire::engineio::Version;

const HOUR: Duration = Duration::from_secs(3600);
const HANDSHAKES: [&str; 4] = [
    "/engine.io/?EIO=4&transport=polling",
    "/engine.io/?EIO=3&transport=polling",
    "/socket.io/?EIO=4&transport=polling",
    "/socket.io/?EIO=3&transport=polling",
];
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn echo(cores: usize) -> Server {
    with(cores, |_| {})
}

fn with(cores: usize, set: impl FnOnce(&mut Options)) -> Server {
    Server::start(cores, |options| {
        options.app = App::Echo;
        options.heartbeat.interval = HOUR;
        set(options);
    })
}

/// The answer to a request with these headers.
fn ask(server: &Server, method: &str, target: &str, headers: &str) -> Response {
    server.ask(format!("{method} {target} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n"))
}

/// Status and code of a refusal.
fn refusal(answer: &Response) -> (u16, u64) {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    (answer.status, body["code"].as_u64().unwrap())
}

/// Others are served, by every transport, and nothing is left of the attack.
fn survives(server: &Server) {
    for version in VERSIONS {
        for way in WAYS {
            let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
            io.connect("", json!(null));
            io.send(r#"42["alive",1]"#);
            io.expect(r#"42["alive",1]"#);
            io.leave();
        }
    }
    server.check_serves();
    server.until_metric("engineio_sessions", |clients| clients == 0);
    server.check_empty();
}

/// A client that is connected to the main namespace.
fn connected(server: &Server, version: Version, way: Way) -> Io {
    let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
    io.connect("", json!(null));
    io
}

/// Checks that these packets end the connection with a protocol error, whoever sends them.
fn ends(server: &Server, attack: &[&str], binary: Option<&[u8]>) {
    for version in VERSIONS {
        for way in WAYS {
            let mut io = connected(server, version, way);
            attack.iter().for_each(|packet| io.send(packet));
            if let Some(binary) = binary {
                io.send_binary_if_open(binary);
            }
            let expect = if way == Way::Polling { 0 } else { Disconnect::ProtocolError.code() };
            assert_eq!(io.expect_end(), expect, "{attack:?} {version:?} {way:?}");
        }
    }
}

#[test]
fn cve_2026_102599_another_version_on_the_same_session() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        for (version, others) in [(Version::V4, ["EIO=3", ""]), (Version::V3, ["EIO=4", "EIO=2"])] {
            let mut io = Io::open(server.addr, "/engine.io/", version, Way::Polling, "");
            for other in others {
                for transport in ["websocket", "polling"] {
                    let target = format!("/engine.io/?{other}&transport={transport}&sid={}", io.sid);
                    let answer = if transport == "websocket" {
                        ask(&server, "GET", &target, UPGRADE)
                    } else {
                        ask(&server, "GET", &target, "")
                    };
                    assert_eq!(answer.status, 400, "{target}");
                    assert_eq!(server.ask(post(&target, "text/plain", b"2")).status, 400);
                }
            }
            // The other protocol's path is none of its either.
            let target = io.target("polling").replace("engine.io", "socket.io");
            assert_eq!(refusal(&ask(&server, "GET", &target, "")), (400, 3));
            io.send("4untouched");
            io.expect("4untouched");
            io.leave();
        }
        survives(&server);
    });
}

#[test]
fn cve_2026_102600_and_cve_2026_59724_names_of_objects_for_an_id() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        for sid in [
            "__proto__",
            "constructor",
            "toString",
            "hasOwnProperty",
            "%00",
            "AAAAAAAAAAAAAAAAAAAA",
            "%C3%A9",
        ] {
            for path in ["/engine.io/", "/socket.io/"] {
                let target = |transport| format!("{path}?EIO=4&transport={transport}&sid={sid}");
                assert_eq!(refusal(&ask(&server, "GET", &target("polling"), "")), (400, 1), "{sid}");
                assert_eq!(refusal(&ask(&server, "GET", &target("websocket"), UPGRADE)), (400, 1), "{sid}");
                assert_eq!(refusal(&ask(&server, "GET", &target("webtransport"), "")), (400, 0), "{sid}");
                let mut http = server.http();
                http.send(post(&target("polling"), "text/plain", b"4x"));
                assert_eq!(refusal(&http.response()), (400, 1), "{sid}");
                // It is answered, and the connection goes on.
                assert_eq!(http.get("/healthz").status, 200);
            }
        }
        survives(&server);
    });
}

#[test]
fn cve_2026_59725_octet_streams_that_version_4_doesnt_have() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        let mut conns = Vec::new();
        for _ in 0..100 {
            let io = Io::engine(&server, Way::Polling);
            let mut http = server.http();
            http.send(post(&io.target("polling"), "application/octet-stream", b"\x00\x02\xff4x"));
            assert_eq!(refusal(&http.response()), (400, 3));
            assert_eq!(http.get("/healthz").status, 200, "the connection is free");
            conns.push(http);
            io.leave();
        }
        drop(conns);
        survives(&server);
    });
}

#[test]
fn cve_2026_69185_binary_packets_without_attachments() {
    let server = echo(1);
    ends(&server, &[r#"450-["x"]"#], None);
    ends(&server, &[r#"460-1["x"]"#], None);
    // What follows isn't taken for the attachments of anything.
    ends(&server, &[r#"451-["x",{"_placeholder":true,"num":0}]"#, r#"42["y"]"#], None);
    for version in VERSIONS {
        for way in WAYS {
            let mut io = connected(&server, version, way);
            io.send_binary(b"of nothing");
            io.expect_end();
        }
    }
    survives(&server);
}

#[test]
fn cve_2026_33151_attachments_without_end() {
    let server = with(1, |options| options.limits.message_bytes_max = 10_000);
    for count in ["11", "99999999999999999999", "4294967296", "1e3", "-1"] {
        ends(&server, &[&format!(r#"45{count}-["x",{{"_placeholder":true,"num":0}}]"#)], None);
    }
    // As many as may be, too large together.
    for way in WAYS {
        let mut io = connected(&server, Version::V4, way);
        let list: Vec<String> = (0..10).map(|n| format!(r#"{{"_placeholder":true,"num":{n}}}"#)).collect();
        io.send(&format!(r#"4510-["x",{}]"#, list.join(",")));
        // Over polling it is over after the second of them, and the third is refused.
        for _ in 0..2 {
            io.send_binary(&[0; 6_000]);
        }
        io.expect_end();
    }
    // Never finished: held within the limit, and given back.
    let mut many: Vec<Io> = (0..50).map(|n| connected(&server, Version::V4, WAYS[n % 3])).collect();
    for io in &mut many {
        io.send(r#"452-["x",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#);
        io.send_binary(&[0; 6_000]);
    }
    many.into_iter().for_each(Io::leave_abruptly);
    survives(&server);
}

#[test]
fn cve_2024_38355_an_event_called_error() {
    let server = echo(1);
    for version in VERSIONS {
        for way in WAYS {
            let mut io = connected(&server, version, way);
            io.send(r#"42["error"]"#);
            io.expect(r#"42["error"]"#);
            io.send(r#"421["error",{"message":"x"}]"#);
            io.expect(r#"42["error",{"message":"x"}]"#);
            io.expect(r#"431[{"message":"x"}]"#);
            io.leave();
        }
    }
    survives(&server);
}

#[test]
fn cve_2023_32695_events_whose_name_is_no_string() {
    let server = echo(1);
    for name in [r#"{"toString":"foo"}"#, "true", "null", "[]", "{}", "", r#""connect""#, r#""disconnect""#] {
        ends(&server, &[&format!("42[{name}]")], None);
    }
    // Numbers are names, as in the reference.
    let mut io = connected(&server, Version::V4, Way::Polling);
    io.send("42[1]");
    assert!(matches!(io.next(), Packet::Text(_) | Packet::End(_)));
    drop(io);
    for deep in [100, 100_000] {
        // Nested as deep as one likes: no stack is used up.
        let text = format!("42[\"x\",{}1{}]", "[".repeat(deep), "]".repeat(deep));
        let mut io = connected(&server, Version::V4, Way::Socket);
        io.send(&text);
        match io.next() {
            Packet::Text(echoed) => assert_eq!(echoed, text),
            Packet::End(code) => assert_eq!(code, Disconnect::ProtocolError.code()),
            other => panic!("{other:?}"),
        }
    }
    let server_of_its_own = echo(1);
    survives(&server_of_its_own);
    server.check_serves();
}

#[test]
fn cve_2022_2421_placeholders_of_nothing() {
    let server = echo(1);
    for number in [r#""splice""#, "1", "-1", "1.5", "null", "4294967296", "1e999"] {
        ends(
            &server,
            &[&format!(r#"451-["hello",{{"_placeholder":true,"num":{number}}}]"#)],
            Some(b"attached"),
        );
    }
    survives(&server);
}

#[test]
fn cve_2023_31125_names_of_objects_for_a_transport() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        for transport in ["__proto__", "constructor", "toString", "", "POLLING", "webtransport"] {
            for path in ["/engine.io/", "/socket.io/"] {
                let target = format!("{path}?EIO=4&transport={transport}");
                for headers in ["", UPGRADE] {
                    let answer = ask(&server, "GET", &target, headers);
                    assert_eq!(refusal(&answer), (400, 0), "{target}");
                    assert!(answer.text().contains("Transport unknown"));
                }
            }
        }
        survives(&server);
    });
}

#[test]
fn cve_2022_41940_http_2_upgrade_and_reset() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        for handshake in HANDSHAKES {
            for _ in 0..20 {
                let mut http = server.http();
                http.send(format!(
                    "GET {handshake} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: \
                     h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                ));
                // Closed with the answer unread: the kernel sends a reset.
                drop(http);
            }
        }
        server.until_metric("connections", |connections| connections == 0);
        server.check_serves();
    });
}

#[test]
fn cve_2022_21676_reserved_bits_after_the_upgrade() {
    let server = echo(1);
    for version in [3, 4] {
        for bits in [0x10, 0x20, 0x30, 0x40] {
            let target = format!("/engine.io/?EIO={version}&transport=websocket");
            let glued = [0x81 | bits, 0x80, 0, 0, 0, 0];
            let mut ws = Ws::open_with(server.addr, &target, &[], false, &glued).unwrap();
            while !matches!(ws.next(), Seen::Closed(1002, _)) {}
        }
    }
    // And while it moves: the session isn't touched.
    let mut io = Io::engine(&server, Way::Polling);
    let glued = [0xb1, 0x80, 0, 0, 0, 0];
    let mut ws = Ws::open_with(server.addr, &io.target("websocket"), &[], false, &glued).unwrap();
    assert_eq!(ws.expect_close().0, 1002);
    io.send("4untouched");
    io.expect("4untouched");
    io.leave();
    survives(&server);
}

#[test]
fn a_websocket_transport_without_an_upgrade() {
    let server = echo(1);
    for path in ["/engine.io/", "/socket.io/"] {
        for version in [3, 4] {
            let target = format!("{path}?EIO={version}&transport=websocket");
            assert_eq!(refusal(&ask(&server, "GET", &target, "")), (400, 3));
            // And the other way round.
            let target = target.replace("websocket", "polling");
            assert_eq!(refusal(&ask(&server, "GET", &target, UPGRADE)), (400, 3));
            assert_eq!(refusal(&ask(&server, "POST", &target, "Content-Length: 0\r\n")), (400, 2));
        }
    }
    survives(&server);
}

#[test]
fn cve_2020_36048_huge_bodies() {
    on_one_and_three(|cores| {
        let server = with(cores, |options| options.limits.message_bytes_max = 100_000);
        let io = Io::engine(&server, Way::Polling);
        let target = io.target("polling");
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n");
        for length in ["100001", "1000000000000", "18446744073709551615"] {
            let mut http = server.http();
            http.send(format!("{head}Content-Length: {length}\r\n\r\n"));
            // Before anything of it is there.
            let status = http.response().status;
            // A length that no machine can count to isn't one.
            assert!(status == 413 || status == 400 && length.len() == 20, "{length}: {status}");
            http.expect_end();
        }
        // Of one that doesn't say how long it is no more is read than may be.
        let mut http = server.http();
        http.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        let received = server.metric("received_bytes");
        // What comes after is thrown away, until the client has had its answer or its time.
        for _ in 0..1_000 {
            if !http.send_if_open(&chunk) {
                break;
            }
        }
        assert!(server.metric("received_bytes") - received < 1_000_000);
        http.rest();
        io.leave();
        survives(&server);
    });
}

#[test]
fn cve_2020_36049_large_packets() {
    let server = echo(1);
    for version in VERSIONS {
        for way in WAYS {
            // As large as may be, of the smallest parts that there are.
            for packet in [
                format!("42[\"x\"{}]", ",0".repeat(499_000)),
                format!("42[\"x\",\"{}\"]", "\\u0041".repeat(160_000)),
                format!("42[\"x\",{}]", "é".repeat(0) + &"[".repeat(490_000) + &"]".repeat(490_000)),
            ] {
                let mut io = connected(&server, version, way);
                io.send(&packet);
                assert!(matches!(io.next(), Packet::Text(_) | Packet::End(_)));
                if let Way::Polling = way {
                    // It may have been ended for what it said.
                    drop(io);
                }
            }
        }
    }
    // Too large.
    let mut io = connected(&server, Version::V4, Way::Socket);
    io.send(&format!("42[\"x\",\"{}\"]", "x".repeat(1_000_000)));
    assert_eq!(io.expect_end(), 1009);
    server.check_serves();
}

#[test]
fn cve_2020_28481_and_cve_2019_13611_foreign_origins_are_refused_by_default() {
    on_one_and_three(|cores| {
        let server = echo(cores);
        let mut io = Io::engine(&server, Way::Polling);
        let evil = "Origin: http://evil.test\r\nCookie: io=1; session=2\r\n";
        for handshake in HANDSHAKES {
            let answer = ask(&server, "GET", handshake, evil);
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, ""));
            let target = handshake.replace("polling", "websocket");
            assert_eq!(ask(&server, "GET", &target, &format!("{UPGRADE}{evil}")).status, 403);
            assert_eq!(ask(&server, "OPTIONS", handshake, evil).status, 403);
        }
        // Nor with the id of a session.
        for transport in ["polling", "websocket"] {
            let upgrade = if transport == "polling" { "" } else { UPGRADE };
            let answer = ask(&server, "GET", &io.target(transport), &format!("{upgrade}{evil}"));
            assert_eq!(answer.status, 403);
        }
        let target = io.target("polling");
        assert_eq!(ask(&server, "POST", &target, &format!("{evil}Content-Length: 0\r\n")).status, 403);
        io.send("4untouched");
        io.expect("4untouched");
        io.leave();
        // Its own pages may.
        let answer = ask(&server, "GET", HANDSHAKES[0], "Origin: http://a.test\r\n");
        assert_eq!(answer.status, 200);
        let [Packet::Text(open)] = &packets(Version::V4, &answer)[..] else { panic!() };
        let open: serde_json::Value = serde_json::from_str(&open[1..]).unwrap();
        let target = format!("{}&sid={}", HANDSHAKES[0], open["sid"].as_str().unwrap());
        let mut http = server.http();
        http.send(post(&target, "text/plain", b"1"));
        assert_eq!(http.response().status, 200);
        drop(http);
        survives(&server);
    });
}

#[test]
fn ws_2020_0443_origins_are_compared_by_label() {
    let server = with(1, |options| options.origins = Origins::parse(&["https://*.example.com"]).unwrap());
    for origin in [
        "https://evilexample.com",
        "https://example.com`.evil.test",
        "https://evil.test$.example.com",
        "https://evil.test/.example.com",
        "https://evil.test#.example.com",
        "https://user@www.example.com",
        "https://evil.test https://www.example.com",
        "null",
    ] {
        for handshake in HANDSHAKES {
            let answer = ask(&server, "GET", handshake, &format!("Origin: {origin}\r\n"));
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, ""), "{origin}");
        }
    }
    survives(&server);
}

// Each bit but those that name the core is set in about half of the ids: 8 standard deviations are allowed.
#[test]
fn cve_2017_16031_ids_that_can_be_guessed() {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let server = echo(1);
    let mut http = server.http();
    let mut ids: Vec<Vec<u8>> = Vec::new();
    for _ in 0..1_024 {
        let answer = http.get(HANDSHAKES[2]);
        let open: serde_json::Value = serde_json::from_str(&answer.text()[1..]).unwrap();
        let sid = open["sid"].as_str().unwrap().to_owned();
        let mut posts = server.http();
        let target = format!("{}&sid={sid}", HANDSHAKES[2]);
        posts.send(post(&target, "text/plain", b"40"));
        assert_eq!(posts.response().status, 200);
        let socket = posts.get(&target);
        let socket: serde_json::Value = serde_json::from_str(&socket.text()[2..]).unwrap();
        // The socket's id is told to others: it says nothing of the session's.
        for id in [&*sid, socket["sid"].as_str().unwrap()] {
            ids.push(URL_SAFE_NO_PAD.decode(id).unwrap());
        }
        posts.send(post(&target, "text/plain", b"1"));
        assert_eq!(posts.response().status, 200);
    }
    for bit in 0..15 * 8 {
        let is_set = |id: &&Vec<u8>| id[bit / 8] >> (bit % 8) & 1 == 1;
        let ones = ids.iter().filter(is_set).count();
        assert!((842..1_207).contains(&ones), "bit {bit}: {ones} of 2,048");
        // Nor of the one before it.
        let same = ids.windows(2).filter(|two| is_set(&&two[0]) == is_set(&&two[1])).count();
        assert!((842..1_207).contains(&same), "bit {bit}: {same} of 2,048");
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2_048);
    drop(http);
    survives(&server);
}
