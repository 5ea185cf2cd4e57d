//! Recovery of a Socket.IO socket from another node: the client's CONNECT waits for it. On a virtual clock.

use super::rig::{Conn, Rig, frame, text};
use super::{MILLISECOND, socket};
use crate::app::{Effect, RoomsApp, ToSession};
use crate::identity::End;
use crate::options::Recovery;
use crate::ports::{
    Access, Asking, Authentication, Authenticator, Authorizer, Broadcast, Broker, Busy, Claimant,
    Credentials, Decision, Denial, Identity, MOVING_MESSAGES_MAX, MOVING_TOPICS_MAX, MovingSocket,
    MovingSubscription, NodeTag, PermissionReply, Pid, Principal, PublicId, Question, SignatureWork,
    SocketName, SocketQuestion, SocketRequest,
};
use crate::rule::{Rooms, Rule, Template};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use stentor_hub::{Data, Emit, Key, MissedMessage, Policy, Room, Topic};

const HERE: u32 = 0x0101_0101;
const URL: &str = "/socket.io/?EIO=4&transport=websocket";
/// The `pid` of a socket on another node.
const PID: &str = "BAgICAgHBwcHBwcHBwcH";
const ID: &str = "aaaaaaaaaaaaaaaaaaaa";

/// A broker that records which sockets it is asked to find on other nodes.
#[derive(Debug, Default)]
struct Others(Mutex<Vec<SocketQuestion>>);

impl Broker for Others {
    fn publish(&self, _: &Broadcast) -> Result<(), Busy> {
        Ok(())
    }

    fn publish_with_history(
        &self,
        _: &Broadcast,
        _: Option<PermissionReply>,
        _: Option<u64>,
        _: Option<Arc<str>>,
    ) -> Result<(), Busy> {
        unreachable!("it orders no room")
    }

    fn set_interest(&self, _: &Topic, _: bool) {}

    fn confirm_history(&self, _: &Room) {}

    fn confirm_feed(&self, _: &Key) -> u64 {
        0
    }

    fn find_socket(&self, question: SocketQuestion) -> bool {
        self.0.lock().push(question);
        true
    }
}

fn node() -> (Rig, Arc<Others>) {
    node_with(None)
}

fn node_with(authenticator: Option<Arc<dyn Authenticator>>) -> (Rig, Arc<Others>) {
    let others = Arc::new(Others::default());
    let first = || vec![Template::parse("{}").unwrap()];
    let join = Rule { event: "join".into(), join: first(), ack: true, ..Rule::default() };
    let rooms = Rooms { rules: vec![join], ..Rooms::default() };
    let broker = others.clone();
    let rig = Rig::new(Box::new(RoomsApp::new(rooms)), |options| {
        options.engine.recovery = Some(Recovery::default());
        options.node_tag = Some(NodeTag(HERE));
        options.broker = Some(broker);
        options.authenticator = authenticator;
        options.limits.decisions_max = 2;
        options.limits.subscriptions_max = 2 * MOVING_TOPICS_MAX;
    });
    (rig, others)
}

fn connect(pid: &str, offset: &str) -> Vec<u8> {
    text(&format!(r#"40{{"pid":"{pid}","offset":"{offset}","token":"42"}}"#))
}

fn subscription(room: Room, is_granted: bool) -> MovingSubscription {
    MovingSubscription { topic: room.into(), options: Policy::Queue.into(), position: None, is_granted }
}

fn moving(missed: Vec<MissedMessage>, known: Vec<u64>) -> MovingSocket {
    let rooms = [Room::all_members("/").unwrap(), Room::plain("red").unwrap()];
    MovingSocket {
        id: PublicId::parse(ID).unwrap(),
        principal: None,
        subscriptions: rooms.into_iter().map(|room| subscription(room, false)).collect(),
        missed,
        known,
    }
}

fn missed(id: u64) -> MissedMessage {
    let data = Data::Json(Bytes::from(id.to_string()));
    MissedMessage { id, is_direct: false, event: Some("news".into()), data }
}

/// Publishes the message `missed(id)` to the room `red`.
fn publish(rig: &mut Rig, id: u64) {
    let now = rig.ex.context.now;
    let MissedMessage { event, data, .. } = missed(id);
    rig.ex.hub.handle_publish(now, &Room::plain("red").unwrap(), event, data, Emit::default().identified(id));
}

fn news(id: u64) -> String {
    frame(&format!(r#"42["news",{id},"{id:016x}"]"#))
}

/// Connects a client that requests the socket of another node and then sends `then`. Returns the client and the number of the
/// question to the broker.
fn waiting(rig: &mut Rig, others: &Others, then: &[u8]) -> (Conn, u64) {
    let (mut conn, _) = socket(rig, URL);
    assert_eq!(rig.receive(&mut conn, [&connect(PID, "0000000000000003"), then].concat()), "");
    let question = others.0.lock().pop().unwrap();
    assert_eq!(question.name.pid.to_text(), PID);
    (conn, question.ticket.number)
}

/// Number of ended sessions that lists show.
fn ended(rig: &Rig) -> usize {
    rig.ex.context.timelines.borrow().ended_count()
}

/// `true` if the answer opens a new session instead of recovering the socket.
fn begins_anew(answer: &str) -> bool {
    answer.contains(r#"40{"sid":""#) && !answer.contains(ID) && !answer.contains(PID)
}

#[test]
fn a_client_recovers_its_socket_from_another_node() {
    let (mut rig, others) = node();
    let (mut conn, number) = waiting(&mut rig, &others, &text(r#"420["join","blue"]"#));
    assert_eq!(rig.resume_decided(&mut conn), None);
    assert!(rig.ex.expect_socket(number, &moving(vec![], vec![])));
    for id in [5, 6, 7] {
        publish(&mut rig, id);
    }
    // The other node has kept 4 and 5 for the client, and knows 4 to 6: of these, only 4 and 5 are sent.
    rig.ex.deliver_socket(number, Some(moving(vec![missed(4), missed(5)], vec![4, 5, 6])));
    let answer = rig.resume_decided(&mut conn).unwrap();
    let connected = frame(&format!(r#"40{{"sid":"{ID}","pid":"{PID}"}}"#));
    assert_eq!(answer, news(4) + &news(5) + &news(7) + &connected + &frame(r#"430[{"ok":true}]"#));
    assert_eq!(rig.ex.questions.open(), 0);
    rig.ex.end_unclaimed_arrivals();
    publish(&mut rig, 8);
    let session = rig.engine_client().socketio().unwrap().sockets()[0].session;
    assert_eq!(rig.deliveries(session), news(8));

    // Commands find the socket by its public id. A third node can then take the socket.
    assert_eq!(rig.ex.shared.session_of(PublicId::parse(ID).unwrap()), Some((0, session)));
    let pid = Pid::parse(PID).unwrap();
    let name = SocketName { pid, namespace: "/".into(), last: Some(5), claimant: Claimant::Unverified };
    let elsewhere = SocketName { namespace: "/chat".into(), ..name.clone() };
    assert_eq!(rig.ex.release_socket(&elsewhere, SocketRequest::Describe), None);
    assert_eq!(rig.ex.release_socket(&name, SocketRequest::Take), None, "it is connected");
    let described = rig.ex.release_socket(&name, SocketRequest::Describe).unwrap();
    assert_eq!((described.id, described.missed), (PublicId::parse(ID).unwrap(), vec![]));
    let taken = rig.ex.release_socket(&name, SocketRequest::Take).unwrap();
    assert_eq!(taken.missed.iter().map(|message| message.id).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(taken.subscriptions.len(), 3);
    assert_eq!(rig.ex.release_socket(&name, SocketRequest::Describe), None, "once");
    assert_eq!((rig.ex.hub.sessions(), ended(&rig)), (0, 0), "the socket lives on the third node");
}

#[test]
fn a_socket_that_cannot_move_stays_or_ends() {
    let (mut rig, _) = node();
    let (mut conn, _) = socket(&mut rig, URL);
    let answer = rig.receive(&mut conn, text("40"));
    let pid = answer.split(r#""pid":""#).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let name = SocketName {
        pid: Pid::parse(pid).unwrap(),
        namespace: "/".into(),
        last: None,
        claimant: Claimant::Unverified,
    };
    let session = rig.engine_client().socketio().unwrap().sockets()[0].session;
    assert!(rig.ex.release_socket(&name, SocketRequest::Describe).is_some());
    // A backend adds it to rooms before it is taken.
    let topic = |n: usize| Topic::from(Room::plain(&n.to_string()).unwrap());
    for n in 0..MOVING_TOPICS_MAX {
        rig.ex.hub.handle_subscribe(session, &topic(n), Policy::Queue, None).unwrap();
    }
    assert_eq!(rig.ex.release_socket(&name, SocketRequest::Take), None);
    assert_eq!((rig.ex.hub.sessions(), ended(&rig)), (1, 0), "it waits for its client");
    assert!((0..MOVING_TOPICS_MAX).all(|n| rig.ex.hub.handle_unsubscribe(session, &topic(n))));
    assert!(rig.ex.release_socket(&name, SocketRequest::Look).is_some());
    // It misses more messages than can move.
    let red: Topic = Room::plain("red").unwrap().into();
    rig.ex.hub.handle_subscribe(session, &red, Policy::Queue, None).unwrap();
    (0..=MOVING_MESSAGES_MAX as u64).for_each(|id| publish(&mut rig, id + 1));
    assert_eq!(rig.ex.release_socket(&name, SocketRequest::Take), None);
    assert_eq!((rig.ex.hub.sessions(), ended(&rig)), (0, 1), "it has ended, and lists show it");
}

#[test]
fn a_client_whose_socket_does_not_arrive_in_time_gets_a_new_session() {
    let (mut rig, others) = node();
    let timeout = rig.ex.options().limits.decision_timeout;
    // Steps: (0) no answer, (1) only the rooms arrive, (2) the socket isn't found, (3) the socket arrives without its rooms.
    for step in 0..4 {
        let (mut conn, number) = waiting(&mut rig, &others, b"");
        match step {
            1 => assert!(rig.ex.expect_socket(number, &moving(vec![], vec![]))),
            2 => rig.ex.deliver_socket(number, None),
            3 => rig.ex.deliver_socket(number, Some(moving(vec![missed(4)], vec![]))),
            _ => {}
        }
        if step < 2 {
            rig.wait(timeout - MILLISECOND);
            assert_eq!(rig.resume_decided(&mut conn), None);
            rig.wait(2 * MILLISECOND);
        }
        let answer = rig.resume_decided(&mut conn).unwrap();
        assert!(begins_anew(&answer), "{step}: {answer}");
        // An answer after the deadline has no effect.
        assert!(!rig.ex.expect_socket(number, &moving(vec![], vec![])));
        rig.ex.deliver_socket(number, Some(moving(vec![missed(4)], vec![])));
        rig.ex.end_unclaimed_arrivals();
        assert_eq!((rig.ex.hub.sessions(), rig.ex.questions.open(), ended(&rig)), (step + 1, 0, 0));
        assert_eq!(rig.ex.shared.session_of(PublicId::parse(ID).unwrap()), None);
    }
    assert!(others.0.lock().is_empty());
}

#[test]
fn a_socket_that_does_not_match_the_request_is_refused() {
    let (mut rig, others) = node();
    let room = |namespace| subscription(Room::new(namespace, "red").unwrap(), true);
    let (mut conn, number) = waiting(&mut rig, &others, b"");
    let foreign = MovingSocket { subscriptions: vec![room("/"), room("/chat")], ..moving(vec![], vec![]) };
    assert!(!rig.ex.expect_socket(number, &foreign));
    assert!(!rig.ex.expect_socket(number + 1, &moving(vec![], vec![])));
    // A socket with the public id of a session on this node is refused too.
    rig.ex.deliver_socket(number, None);
    assert!(begins_anew(&rig.resume_decided(&mut conn).unwrap()));
    let session = rig.engine_client().socketio().unwrap().sockets()[0].session;
    let (_conn, number) = waiting(&mut rig, &others, b"");
    let duplicate = MovingSocket { id: rig.ex.public_id(session), ..moving(vec![], vec![]) };
    assert!(!rig.ex.expect_socket(number, &duplicate));
}

#[test]
fn waiting_clients_are_limited_and_a_disconnected_one_leaves_nothing() {
    let (mut rig, others) = node();
    let (first, number) = waiting(&mut rig, &others, b"");
    let (_second, _) = waiting(&mut rig, &others, b"");
    assert!(rig.ex.expect_socket(number, &moving(vec![], vec![])));
    let (mut third, _) = socket(&mut rig, URL);
    let answer = rig.receive(&mut third, connect(PID, "0000000000000003"));
    assert!(begins_anew(&answer), "{answer}");
    assert!(others.0.lock().is_empty());
    rig.ex.questions.forget(first.id);
    rig.ex.deliver_socket(number, Some(moving(vec![missed(4)], vec![])));
    rig.ex.end_unclaimed_arrivals();
    assert_eq!(rig.ex.hub.sessions(), 1);
    // A client with a malformed offset gets a new session: its socket isn't looked up.
    let (mut other, _) = socket(&mut rig, URL);
    assert!(begins_anew(&rig.receive(&mut other, connect(PID, "nowhere"))));
    assert!(others.0.lock().is_empty());
}

/// The entry of [`Issuer`]'s list that denies presence.
const PRESENCE: &str = "presence";

/// An authenticator that takes a token for its user's name. It denies subscriptions to the rooms of its list.
#[derive(Clone, Debug, Default)]
struct Issuer(Arc<Mutex<Vec<&'static str>>>);

impl Authenticator for Issuer {
    fn authenticate(
        &self,
        _: Asking<'_>,
        credentials: &Credentials<'_>,
        _: &mut SignatureWork,
    ) -> Authentication {
        let Some(token) = credentials.token else { return Authentication::Refused(Denial::TOKEN_MISSING) };
        let identity = Identity::anonymous(Arc::new(self.clone()));
        Authentication::Accepted(Arc::new(Identity { principal: Some(principal(token)), ..identity }))
    }
}

impl Authorizer for Issuer {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        match question.access {
            Access::Subscribe(Topic::Room(room)) if self.0.lock().contains(&room.name()) => {
                Decision::Deny(Denial::new("not_allowed", "closed"))
            }
            Access::Presence(_) if self.0.lock().contains(&PRESENCE) => {
                Decision::Deny(Denial::new("not_allowed", "secret"))
            }
            _ => Decision::Allow,
        }
    }
}

fn principal(subject: &str) -> Principal {
    Principal { issuer: "https://id.example.com".into(), subject: subject.into() }
}

#[test]
fn subscriptions_from_the_other_node_must_be_allowed_here() {
    let issuer = Issuer::default();
    let (mut rig, others) = node_with(Some(Arc::new(issuer.clone())));
    let rooms = ["red", "green"].map(|name| Room::plain(name).unwrap());
    let [red, green] = rooms.clone();
    let everybody = Room::all_members("/").unwrap();
    let moving = || MovingSocket {
        principal: Some(principal("42")),
        subscriptions: vec![
            subscription(everybody.clone(), false),
            subscription(red.clone(), true),
            subscription(green.clone(), false),
        ],
        ..moving(vec![missed(4)], vec![])
    };
    // The client requested `red`, so the subscription must be allowed. The application added the socket to `green`.
    for (closed, is_recovered) in [(vec!["red"], false), (vec!["green"], true)] {
        *issuer.0.lock() = closed;
        let (mut conn, number) = waiting(&mut rig, &others, b"");
        assert!(rig.ex.expect_socket(number, &moving()));
        rig.ex.deliver_socket(number, Some(moving()));
        let answer = rig.resume_decided(&mut conn).unwrap();
        assert_eq!(answer.contains(&news(4)), is_recovered, "{answer}");
        assert_eq!(begins_anew(&answer), !is_recovered, "{answer}");
    }
    // After the move, `red` still counts as requested by the client: for the next node, and when rights change on this one.
    let (_, session) = rig.ex.shared.session_of(PublicId::parse(ID).unwrap()).unwrap();
    let name = SocketName {
        pid: Pid::parse(PID).unwrap(),
        namespace: "/".into(),
        last: Some(5),
        claimant: Claimant::User(principal("42")),
    };
    let mut moved = rig.ex.release_socket(&name, SocketRequest::Describe).unwrap().subscriptions;
    moved.sort_by_key(|subscription| subscription.is_granted);
    assert_eq!(moved.pop(), Some(subscription(red.clone(), true)));
    assert!(moved.iter().all(|other| !other.is_granted && other.topic != red.clone().into()), "{moved:?}");
    *issuer.0.lock() = vec!["red", "green"];
    rig.ex.reauthorize(session);
    assert_eq!(rooms.map(|room| rig.ex.hub.has_joined(session, &room)), [false, true]);
}

#[test]
fn the_socket_of_another_user_is_not_changed() {
    let (mut rig, others) = node_with(Some(Arc::new(Issuer::default())));
    let (mut conn, number) = waiting(&mut rig, &others, b"");
    let moving = MovingSocket { principal: Some(principal("42")), ..moving(vec![missed(4)], vec![4]) };
    assert!(rig.ex.expect_socket(number, &moving));
    rig.ex.deliver_socket(number, Some(moving));
    assert!(!begins_anew(&rig.resume_decided(&mut conn).unwrap()));
    let (_, session) = rig.ex.shared.session_of(PublicId::parse(ID).unwrap()).unwrap();
    let mut request = |claimant: Claimant, request| {
        let (pid, last) = (Pid::parse(PID).unwrap(), Some(4));
        let name = SocketName { pid, namespace: "/".into(), last, claimant };
        let socket = rig.ex.release_socket(&name, request);
        (socket.is_some(), rig.ex.suspended_socket(session).is_some(), rig.ex.hub.sessions())
    };
    for claimant in [Claimant::User(principal("43")), Claimant::Anonymous] {
        assert_eq!(request(claimant, SocketRequest::Describe), (false, false, 1), "its client is connected");
    }
    let owner = Claimant::User(principal("42"));
    assert_eq!(request(owner.clone(), SocketRequest::Describe), (true, true, 1));
    assert_eq!(request(Claimant::User(principal("43")), SocketRequest::Take), (false, true, 1));
    assert_eq!(request(owner, SocketRequest::Take), (true, false, 0));
}

#[test]
fn a_node_names_the_user_of_a_client_that_requests_a_socket() {
    for (authenticator, expected) in
        [(None, Claimant::Unverified), (Some(Issuer::default()), Claimant::User(principal("42")))]
    {
        let authenticator = authenticator.map(|issuer| Arc::new(issuer) as Arc<dyn Authenticator>);
        let (mut rig, others) = node_with(authenticator);
        let (mut conn, _) = socket(&mut rig, URL);
        assert_eq!(rig.receive(&mut conn, connect(PID, "0000000000000003")), "");
        assert_eq!(others.0.lock().pop().unwrap().name.claimant, expected);
    }
}

#[test]
fn a_client_that_watches_the_members_of_a_room_does_so_after_each_move_if_it_may() {
    let issuer = Issuer::default();
    let (mut rig, others) = node_with(Some(Arc::new(issuer.clone())));
    let red = Room::plain("red").unwrap();
    let watched = Topic::Presence(red.clone());
    let watching = MovingSubscription { topic: watched.clone(), ..subscription(red.clone(), true) };
    let moving = || MovingSocket {
        principal: Some(principal("42")),
        subscriptions: vec![subscription(red.clone(), true), watching.clone()],
        ..moving(vec![], vec![])
    };
    let name = SocketName {
        pid: Pid::parse(PID).unwrap(),
        namespace: "/".into(),
        last: None,
        claimant: Claimant::User(principal("42")),
    };
    for denied in [vec![], vec![PRESENCE]] {
        let is_allowed = denied.is_empty();
        *issuer.0.lock() = denied;
        let (mut conn, number) = waiting(&mut rig, &others, b"");
        assert!(rig.ex.expect_socket(number, &moving()));
        rig.ex.deliver_socket(number, Some(moving()));
        let answer = rig.resume_decided(&mut conn).unwrap();
        assert!(!begins_anew(&answer), "{answer}");
        let (_, session) = rig.ex.shared.session_of(PublicId::parse(ID).unwrap()).unwrap();
        assert_eq!(rig.ex.hub.is_subscribed(session, &watched), is_allowed);
        let is_told = rig.ex.effects.take_others().iter().any(|effect| {
            matches!(effect, Effect::Session(_, ToSession::Withdrawn(topic, _)) if *topic == watched)
        });
        assert_eq!(is_told, !is_allowed);
        let described = rig.ex.release_socket(&name, SocketRequest::Describe).unwrap();
        assert_eq!(described.subscriptions.contains(&watching), is_allowed);
        let slot = rig.ex.suspended_socket(session).unwrap();
        rig.ex.end_suspended(slot, End::Closed);
    }
}

#[test]
fn without_identities_each_room_counts_as_requested_by_the_client() {
    let (mut rig, others) = node();
    let (mut conn, number) = waiting(&mut rig, &others, b"");
    assert!(rig.ex.expect_socket(number, &moving(vec![], vec![])));
    rig.ex.deliver_socket(number, Some(moving(vec![], vec![])));
    rig.resume_decided(&mut conn).unwrap();
    let name = SocketName {
        pid: Pid::parse(PID).unwrap(),
        namespace: "/".into(),
        last: None,
        claimant: Claimant::Unverified,
    };
    let moved = rig.ex.release_socket(&name, SocketRequest::Describe).unwrap().subscriptions;
    for MovingSubscription { topic, is_granted, .. } in moved {
        assert_eq!(is_granted, topic == Room::plain("red").unwrap().into(), "{topic:?}");
    }
}
