//! Requests for sessions on other nodes.

use super::rig::{Conn, Machine, Rig, get, post};
use crate::app::Echo;
use crate::identity::{Sid, Sids};
use crate::options::SockJs;
use crate::ports::{
    ClientConnection, Done, Handover, Location, NodeTag, Relay, RelayPermit, SessionClaim, SessionName,
};
use crate::protocols::client::Client as _;
use crate::protocols::http::Destination;
use crate::system::tests::SYSTEM;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const OWN: NodeTag = NodeTag(1);
const OTHER: NodeTag = NodeTag(2);
const DEAD: NodeTag = NodeTag(3);

/// A relay that knows one other node and records requests.
#[derive(Debug, Default)]
struct Notes {
    located: Mutex<Vec<String>>,
}

impl Relay for Notes {
    fn reaches(&self, node: NodeTag) -> bool {
        node == OTHER
    }

    fn relay(&self, _: NodeTag, _: ClientConnection, _: RelayPermit) {}

    fn find(&self, node: NodeTag, _: Done<Location>) {
        self.located.lock().push(format!("{node:?}"));
    }

    fn locate(&self, session: SessionName<'_>, claims: bool, _: Done<Location>) {
        let SessionName { prefix, key, session } = session;
        self.located.lock().push(format!("{prefix} {key:?} {session} {claims}"));
    }
}

#[derive(Debug)]
struct Claim;

impl SessionClaim for Claim {}

fn rig() -> (Rig, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let relay = notes.clone();
    let rig = Rig::new(Box::new(Echo), |options| {
        options.sockjs = vec![SockJs::at("/sockjs")];
        options.node_tag = Some(OWN);
        options.relay = Some(relay);
    });
    (rig, notes)
}

fn sid_of(node: NodeTag) -> Sid {
    Sids::new(SYSTEM).draw(0, 1, Some(node))
}

fn poll_of(sid: Sid) -> String {
    get(&format!("/engine.io/?EIO=4&transport=polling&sid={sid}"))
}

fn destination(conn: &Conn) -> Option<Destination> {
    match &conn.machine {
        Machine::Http(http) => http.moving,
        Machine::WebSocket(_) | Machine::Ended => None,
    }
}

const UNKNOWN: &str = r#"{"code":1,"message":"Session ID unknown"}"#;

#[test]
fn an_engineio_session_of_another_node_is_passed_through() {
    let (mut rig, _) = rig();
    for request in [
        poll_of(sid_of(OTHER)),
        post(&format!("/socket.io/?EIO=4&transport=polling&sid={}", sid_of(OTHER)), "2"),
        super::upgrade(&format!("/socket.io/?EIO=4&transport=websocket&sid={}", sid_of(OTHER))),
    ] {
        let mut conn = rig.connect();
        assert_eq!(rig.receive(&mut conn, &request), "");
        assert_eq!(destination(&conn), Some(Destination::Node(OTHER)), "{request}");
        let Machine::Http(http) = &mut conn.machine else { panic!("{request}") };
        assert_eq!(http.take_moved().buffer, request.as_bytes(), "all of it");
    }
}

#[test]
fn an_unknown_node_is_looked_up() {
    let (mut rig, notes) = rig();
    let mut conn = rig.connect();
    assert_eq!(rig.receive(&mut conn, poll_of(sid_of(DEAD))), "");
    assert_eq!(notes.located.lock()[..], ["NodeTag(3)"]);
    let answer = rig.locate(&mut conn, Location::Unknown);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with(UNKNOWN), "{answer}");
    // The next request of the connection starts with empty state.
    assert_eq!(rig.receive(&mut conn, poll_of(sid_of(OTHER))), "");
    assert_eq!(destination(&conn), Some(Destination::Node(OTHER)));
    // A session of this node isn't looked up elsewhere.
    let mut conn = rig.connect();
    assert!(rig.receive(&mut conn, poll_of(sid_of(OWN))).ends_with(UNKNOWN));
}

#[test]
fn a_relayed_connection_gets_one_answer_and_is_not_relayed_again() {
    let (mut rig, _) = rig();
    let mut conn = rig.connect_by(Some(Handover::Relayed));
    let answer = rig.receive(&mut conn, poll_of(sid_of(OTHER)));
    assert!(answer.contains("\r\nConnection: close\r\n") && answer.ends_with(UNKNOWN), "{answer}");
    assert!(matches!(conn.machine, Machine::Ended));
    let mut conn = rig.connect_by(Some(Handover::Relayed));
    let answer = rig.receive(&mut conn, get("/engine.io/?EIO=4&transport=polling"));
    assert!(answer.contains("\r\nConnection: close\r\n") && answer.contains("\"sid\""), "{answer}");
    assert!(matches!(conn.machine, Machine::Ended));
}

#[test]
fn the_next_request_of_a_returned_connection_is_answered_here() {
    let (mut rig, notes) = rig();
    let mut conn = rig.connect_by(Some(Handover::Returned));
    let answer = rig.receive(&mut conn, poll_of(sid_of(OTHER)));
    assert!(answer.contains("\r\nConnection: keep-alive\r\n") && answer.ends_with(UNKNOWN), "{answer}");
    assert_eq!(rig.receive(&mut conn, poll_of(sid_of(OTHER))), "");
    assert_eq!(destination(&conn), Some(Destination::Node(OTHER)));
    // A request for another node's SockJS session opens a new session, because the connection can't be relayed.
    let mut conn = rig.connect_by(Some(Handover::Returned));
    let answer = rig.receive(&mut conn, post("/sockjs/000/name/xhr", ""));
    assert!(answer.ends_with("\r\n\r\no\n"), "{answer}");
    assert!(notes.located.lock().is_empty());
}

/// A connection on which a request waits for the location of its session.
fn waiting(rig: &mut Rig, path: &str) -> Conn {
    let mut conn = rig.connect();
    assert_eq!(rig.receive(&mut conn, post(path, "")), "");
    conn
}

#[test]
fn a_sockjs_session_that_is_not_on_this_node_is_looked_up() {
    let (mut rig, notes) = rig();
    let mut conn = waiting(&mut rig, "/sockjs/000/name/xhr");
    rig.locate(&mut conn, Location::Node(OTHER));
    assert_eq!(destination(&conn), Some(Destination::Node(OTHER)));
    // Sending requires an existing session, so the name isn't claimed.
    let mut conn = waiting(&mut rig, "/sockjs/000/name/xhr_send");
    assert!(rig.locate(&mut conn, Location::Unknown).starts_with("HTTP/1.1 404 "));
    let mut conn = waiting(&mut rig, "/sockjs/feed/KEY/000/name/xhr_streaming");
    assert!(rig.locate(&mut conn, Location::Node(DEAD)).ends_with("\no\n\r\n"), "it begins anew");
    let asked = ["/sockjs None name true", "/sockjs None name false", "/sockjs Some(\"KEY\") name true"];
    assert_eq!(*notes.located.lock(), asked);
}

#[test]
fn a_sockjs_session_holds_its_claim_until_it_is_removed() {
    let (mut rig, notes) = rig();
    let claim: Arc<dyn SessionClaim> = Arc::new(Claim);
    let mut conn = waiting(&mut rig, "/sockjs/000/name/xhr");
    assert!(rig.locate(&mut conn, Location::Here(claim.clone())).ends_with("\r\n\r\no\n"));
    assert_eq!(Arc::strong_count(&claim), 2);
    // The session is on this node, so no other node is asked.
    let mut send = rig.connect();
    let answer = rig.receive(&mut send, post("/sockjs/000/name/xhr_send", r#"["hello"]"#));
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert_eq!(notes.located.lock().len(), 1);
    let id = rig.clients.ids()[0];
    assert_eq!(rig.clients.sockjs.get(id).map(|client| client.state().ended), Some(false));
    rig.clients.sockjs.remove(id);
    assert_eq!(Arc::strong_count(&claim), 1);
}

#[test]
fn without_an_answer_a_sockjs_session_is_opened_here() {
    let (mut rig, _) = rig();
    let mut conn = waiting(&mut rig, "/sockjs/000/name/xhr");
    rig.wait(rig.ex.options().limits.request_timeout - Duration::from_millis(1));
    assert_eq!(rig.time_out(&mut conn), "");
    rig.wait(Duration::from_millis(2));
    rig.time_out(&mut conn);
    assert!(rig.resume(&mut conn).ends_with("\r\n\r\no\n"));
}
