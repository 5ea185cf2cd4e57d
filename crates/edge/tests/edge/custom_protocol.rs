//! Custom protocols: the example `lines`, in the same rooms as `stentor.v1`.

#[path = "../../examples/lines/protocol.rs"]
mod protocol;

use crate::harness::{Server, Ws};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use stentor_edge::{CustomProtocol, DriverChoice, Node};
use stentor_hub::Topic;
use stentor_ports::{Access, Authorizer, Decision, Denial, Question};

/// Maximum number of lines of the example, in all of its files.
const LINES_MAX: usize = 150;

fn check(ws: &mut Ws, line: &str, expect: &[&str]) {
    ws.send_text(line);
    let mut seen: Vec<_> = expect.iter().map(|_| ws.next_text()).collect();
    seen.sort_unstable();
    assert_eq!(seen, expect, "{line}");
}

#[test]
fn lines_and_stentor_v1_share_rooms() {
    let server = Server::start(1, |options| {
        options.rooms.publish = true;
        options.protocols.push(protocol::protocol());
    });
    let (mut lines, mut v1) = (server.ws("/lines"), server.ws("/ws"));
    assert_eq!(v1.next_json()["type"], "welcome");
    v1.ask(json!({"type": "subscribe", "room": "lobby"}));
    check(&mut lines, "JOIN lobby", &["OK JOIN"]);
    check(&mut lines, "SAY lobby hello, world", &["OK SAY", "lobby hello, world"]);
    v1.expect_json(json!({"type": "message", "room": "lobby", "data": "hello, world"}));
    server.publish("lobby", "[1]");
    assert_eq!(lines.next_text(), "lobby [1]");
    v1.expect_json(json!({"type": "message", "room": "lobby", "data": [1]}));
    check(&mut lines, "LEAVE lobby", &["OK LEAVE"]);
    server.publish("lobby", "2");
    v1.expect_json(json!({"type": "message", "room": "lobby", "data": 2}));
    check(&mut lines, "HELP lobby", &["ERROR unknown command HELP"]);
}

/// An authorizer that refuses the room `secret`.
#[derive(Debug)]
struct NoSecrets;

impl Authorizer for NoSecrets {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        match question.access {
            Access::Subscribe(Topic::Room(room)) if room.name() == "secret" => {
                Decision::Deny(Denial::new("forbidden", "not you"))
            }
            _ => Decision::Allow,
        }
    }
}

#[test]
fn a_custom_protocol_has_the_permissions_and_origins_of_the_others() {
    let server = Server::start(1, |options| {
        options.authorizer = Some(Arc::new(NoSecrets));
        options.protocols.push(protocol::protocol());
    });
    let mut lines = server.ws("/lines");
    check(&mut lines, "JOIN secret", &["ERROR not you"]);
    check(&mut lines, "JOIN lobby", &["OK JOIN"]);
    let foreign = Ws::open(server.addr, "/lines", &[("Origin", "https://evil.test")], false);
    assert_eq!(foreign.err(), Some(403));
    assert_eq!(server.http().get("/lines").status, 426);
}

#[test]
fn the_paths_of_custom_protocols_are_checked() {
    let refused = |paths: &[&str]| {
        let mut options = stentor_edge::Options { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
        let named = |path: &&str| CustomProtocol { path: (*path).to_owned(), ..protocol::protocol() };
        options.protocols = paths.iter().map(named).collect();
        let control = Arc::new(crate::harness::Control::default());
        Node::start(options, DriverChoice::Epoll, control, None).err().map(|error| error.to_string())
    };
    assert!(refused(&["/a", "b"]).unwrap().contains("\"b\""));
    assert!(refused(&["/a", "/a"]).unwrap().contains("\"/a\""));
    assert!(refused(&["/a"; 9]).unwrap().contains("at most 8"));
}

#[test]
fn the_example_is_one_folder_and_one_line_of_registration() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/lines");
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let text = files.collect::<String>();
    assert!(text.lines().count() <= LINES_MAX);
    assert_eq!(text.matches("options.").count(), 1);
}
