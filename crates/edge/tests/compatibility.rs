//! What the clients of other servers rely on, where the protocols' documents don't say it: each case is one that a stock
//! client met. Compared with socket.io 4.8, engine.io 6.6 and ws 8.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::io::post;
use harness::{Io, Packet, Server, VERSIONS, Way, on_one_and_three};
use std::time::Duration;
use stentor_edge::{App, Options};
use stentor_wire::engineio::Version;

const HOUR: Duration = Duration::from_secs(3600);

/// A server whose heartbeats disturb nobody.
fn with(cores: usize, app: App, set: impl FnOnce(&mut Options)) -> Server {
    Server::start(cores, |options| {
        options.app = app;
        options.heartbeat.interval = HOUR;
        set(options);
    })
}

/// MIME style (RFC 2045, section 6.8): lines of 76 characters, each ended by `end`.
fn mime(bytes: &[u8], end: &str) -> String {
    let base64 = STANDARD.encode(bytes);
    let mut text = String::new();
    for line in base64.as_bytes().chunks(76) {
        text.push_str(std::str::from_utf8(line).unwrap());
        text.push_str(end);
    }
    text
}

/// `io.socket:socket.io-client` 2.1.1, for Java and Android, polls so.
#[test]
fn polled_base64_may_have_line_breaks_and_no_padding() {
    on_one_and_three(|cores| {
        let server = with(cores, App::Echo, |_| {});
        for version in VERSIONS {
            for (length, end) in
                [(0, "\n"), (3, "\n"), (57, "\n"), (58, "\r\n"), (1_000, "\n"), (100_000, "\r\n")]
            {
                let mut io = Io::open(server.addr, "/engine.io/", version, Way::Polling, "");
                let bytes: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
                for text in [mime(&bytes, end), mime(&bytes, end).replace('=', "")] {
                    let body = match version {
                        Version::V4 => format!("b{text}"),
                        Version::V3 => format!("{}:b4{text}", text.len() + 2),
                    };
                    let request = post(&io.target("polling"), "text/plain", body.as_bytes());
                    io.posts().send(&request);
                    assert_eq!(io.posts().response().status, 200, "{version:?}, {length} bytes, {end:?}");
                    assert_eq!(io.next(), Packet::Binary(bytes.clone()));
                }
            }
        }
    });
}

/// How a session ends whose client sent what `why` names: the code of the Close frame, 1006 without one, 0 for the close
/// packet in a poll, 503 for a poll that is refused.
fn end_of(server: &Server, way: Way, packet: &str) -> u16 {
    let mut io = Io::socket(server, way);
    io.connect("", serde_json::json!(null));
    if way == Way::Polling {
        let before = server.metric("http_requests");
        io.begin_poll();
        server.until_metric("http_requests", |requests| requests > before);
    }
    io.send_all(&[packet]);
    io.expect_end()
}

/// python-engineio and rust_socketio stay away after the close packet, OkHttp's Socket.IO client takes 43 s to notice a
/// Close frame. So both are for those only who are to stay away.
#[test]
fn ends_after_which_clients_are_to_reconnect_look_like_lost_connections() {
    on_one_and_three(|cores| {
        let server = with(cores, App::Echo, |options| options.limits.outbox_bytes_max = 20_000);
        // The answers to it are more than an outbox holds, and nobody reads them.
        let flood = format!("42[\"x\",\"{}\"]", "x".repeat(30_000));
        assert_eq!(end_of(&server, Way::Polling, &flood), 503);
        assert_eq!(server.disconnects("slow_consumer"), 1);
        // What breaks the protocol would break it again.
        assert_eq!(end_of(&server, Way::Polling, "42[]"), 0);
        for way in [Way::Socket, Way::Moved] {
            assert_eq!(end_of(&server, way, "42[]"), 4405);
        }
        // A graceful stop, whether a poll is held or not.
        let mut held = Io::engine(&server, Way::Polling);
        let before = server.metric("http_requests");
        held.begin_poll();
        server.until_metric("http_requests", |requests| requests > before);
        let mut sockets = [Way::Socket, Way::Moved].map(|way| Io::engine(&server, way));
        server.drain(HOUR);
        let answer = held.end_poll();
        assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
        assert_eq!((answer.header("connection"), answer.header("cache-control")), ("close", "no-store"));
        for io in &mut sockets {
            assert_eq!(io.expect_end(), 1006);
        }
    });
}
