//! Clients of rooms of `stentor.v1`, and of the API that publishes to them.

use stentor_wire::ws::Opcode;

use super::frames::frame;
use super::handshakes::{Pair, answer, numbered_of};
use crate::generator::protocol::{ClientEvent, Lane, Protocol, rooms};
use crate::payload::Head;

fn numbered() -> String {
    numbered_of(4, 100).0
}

fn payload(head: Option<Head>, payload_bytes: u64, clean: bool) -> ClientEvent {
    ClientEvent::Payload { head, payload_bytes, clean }
}

#[test]
fn messages_of_rooms_are_read_at_every_cut() {
    let head = Head { sequence: 4, intended_ns: 5 };
    let (mut pair, target) = Pair::upgraded(Protocol::Rooms);
    assert_eq!((pair.is_open(), target.as_str()), (false, "/ws"));
    let message = |data: &str| format!(r#"{{"type":"message","room":"7","data":"{data}"}}"#);
    let notice = |changes: &str| format!(r#"{{"type":"presence","room":"7",{changes}}}"#);
    let spoiled = numbered().replacen("xx", "xy", 1);
    for (text, expect) in [
        (r#"{"type":"welcome","session":"c0ffee","ping_ms":25000}"#.to_owned(), ClientEvent::Opened),
        (r#"{"type":"ok","id":1}"#.to_owned(), payload(None, 0, true)),
        // The length of a presence notice's payload is the number of members that joined or left.
        (notice(r#""joined":[{"session":"a"},{"session":"b"}],"left":[]"#), payload(None, 2, true)),
        (notice(r#""joined":[],"left":[{}],"replaced":[{}],"more":10"#), payload(None, 13, true)),
        (message(&numbered()), payload(Some(head), 100, true)),
        (message(&spoiled), payload(Some(head), 100, false)),
        (message("short"), payload(None, 5, false)),
        (message(&numbered()).replace("\"}", "\"} "), payload(None, 0, false)),
    ] {
        let bytes = frame(Opcode::Text, text.as_bytes());
        for cut in 0..bytes.len() {
            pair.out.happened.clear();
            pair.hear_cut(&bytes, cut);
            assert_eq!(pair.out.happened, [expect], "{text}, cut at {cut}");
        }
    }
    assert!(rooms::react(br#"{"type":"presence","room":"7","joined":1}"#).is_err());
    let refused = r#"{"type":"error","code":"forbidden","message":"no","retry":false}"#;
    assert_eq!(
        rooms::react(refused.as_bytes()).unwrap_err().to_string(),
        format!("the server sent {refused}")
    );
}

#[test]
fn a_publication_is_posted_when_the_last_one_is_answered() {
    let mut pair = Pair::new(Protocol::PublishApi);
    assert!(pair.is_open() && pair.main().is_empty());
    pair.out.happened.clear();
    for _ in 0..2 {
        pair.publish(&numbered());
    }
    let posted = String::from_utf8(pair.main()).unwrap();
    assert!(posted.starts_with("POST /api/v1/publish HTTP/1.1\r\n"), "{posted}");
    assert!(posted.contains("Content-Type: application/json\r\n"), "{posted}");
    let body = format!(r#"{{"room":"room","data":"{}"}}"#, numbered());
    assert!(posted.ends_with(&body) && posted.matches("POST").count() == 1, "{posted}");
    for left in [1, 0] {
        pair.react(Lane::Main, &answer(200, r#"{"published":1}"#));
        assert_eq!(std::mem::take(&mut pair.out.happened), [numbered_of(4, 100).1]);
        assert_eq!(String::from_utf8(pair.main()).unwrap().matches("POST").count(), left);
    }
    pair.publish(&numbered());
    assert!(pair.complains(Lane::Main, &answer(503, "busy")).contains("503: busy"));
}
