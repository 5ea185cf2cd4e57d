//! S6: a Socket.IO packet whose attachments never come is held for as long as a WebSocket message in fragments, and no
//! longer.

use crate::harness::{Io, Packet, Server, WAYS, Way, on_one_and_three};
use serde_json::json;
use std::time::Duration;
use stentor_edge::{App, Options};
use stentor_wire::engineio::Version;

const HOUR: Duration = Duration::from_secs(3600);
const TWO_ATTACHMENTS: &str = r#"452-["x",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;

fn settings(message_timeout: Duration) -> impl Fn(&mut Options) {
    move |options| {
        options.app = App::Echo;
        options.heartbeat.interval = HOUR;
        options.limits.message_timeout = message_timeout;
    }
}

/// A connected client that lacks one attachment of two.
fn unfinished(server: &Server, version: Version, way: Way) -> Io {
    let mut io = Io::open(server.addr, "/socket.io/", version, way, "");
    io.connect("", json!(null));
    io.send(TWO_ATTACHMENTS);
    io.send_binary(&[0; 1_000]);
    io
}

#[test]
fn attachments_that_never_come_end_the_session() {
    on_one_and_three(|cores| {
        let server = Server::start(cores, settings(Duration::from_millis(500)));
        for (ended, (way, version)) in
            WAYS.map(|way| [(way, Version::V4), (way, Version::V3)]).iter().flatten().enumerate()
        {
            let mut io = unfinished(&server, *version, *way);
            crate::harness::until("the end of the session", || {
                server.disconnects("message_timeout") > ended as u64
            });
            let end = if *way == Way::Polling { 503 } else { 1006 };
            assert_eq!(io.expect_end(), end, "{way:?}");
        }
        server.until_metric("engineio_sessions", |sessions| sessions == 0);
        server.check_empty();
    });
}

/// The time counts from the packet's first part: one attachment after the other doesn't prolong it. One that is whole in
/// time ends nothing.
#[test]
fn the_time_of_a_packet_is_its_own() {
    let time = Duration::from_millis(500);
    let server = Server::start(1, settings(time));
    for way in WAYS {
        let mut whole = unfinished(&server, Version::V4, way);
        whole.send_binary(&[1; 10]);
        assert!(whole.next_text().starts_with("452-"));
        assert_eq!(
            [whole.next(), whole.next()],
            [Packet::Binary(vec![0; 1_000]), Packet::Binary(vec![1; 10])]
        );
        let before = server.disconnects("message_timeout");
        let mut late = unfinished(&server, Version::V4, way);
        crate::harness::until("the end of the session", || server.disconnects("message_timeout") > before);
        late.expect_end();
        assert_eq!(server.disconnects("message_timeout"), before + 1);
        whole.send(r#"42["still here"]"#);
        assert_eq!(whole.event(), json!(["still here"]));
    }
}
