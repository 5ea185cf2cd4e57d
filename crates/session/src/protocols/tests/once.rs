//! Messages, CONNECTs and requests that wait for a decision: no handler runs again when the decision arrives.

use super::rig::{Machine, Rig, get, post, text, upgrade};
use super::socket;
use crate::app::{
    Admission, Application, Connect, Context, Effect, Envelope, Message, NamespaceRequest, RoomsApp,
    ToSession,
};
use crate::core::decided;
use crate::options::SockJs;
use crate::ports::{
    Access, Asking, Authentication, Authenticator, Authorizer, Broadcast, Broker, Busy, Credentials,
    Decision, Denial, Identity, PermissionReply, Question, SignatureWork, Ticket,
};
use crate::rule::Rooms;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stentor_frame::ConnId;
use stentor_hub::{HistoryLimits, Key, Room, SessionId, Topic};
use stentor_wire::http1::Request;

/// An engine that orders rooms with history, and an authorizer that decides later. It allows connections and publishing to the
/// room `kept` at once.
#[derive(Debug, Default)]
struct Engine(Mutex<Vec<PermissionReply>>);

impl Broker for Engine {
    fn publish(&self, _: &Broadcast) -> Result<(), Busy> {
        Ok(())
    }

    fn orders_history(&self) -> bool {
        true
    }

    fn publish_with_history(
        &self,
        _: &Broadcast,
        publisher: Option<PermissionReply>,
        _: Option<u64>,
        _: Option<Arc<str>>,
    ) -> Result<(), Busy> {
        self.0.lock().extend(publisher);
        Ok(())
    }

    fn confirm_history(&self, _: &Room) {}

    fn confirm_feed(&self, _: &Key) -> u64 {
        0
    }

    fn set_interest(&self, _: &Topic, _: bool) {}
}

impl Authorizer for Engine {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        let is_allowed = match question.access {
            Access::Publish(room) => room.name() == "kept",
            access => matches!(access, Access::Connect { .. }),
        };
        if is_allowed {
            return Decision::Allow;
        }
        self.0.lock().push(question.later());
        Decision::Pending
    }

    fn cancel(&self, _: Ticket) {}
}

/// The application for rooms. Counts the messages that it handles.
struct Counting(RoomsApp, Arc<AtomicUsize>);

impl Application for Counting {
    fn envelope(&self) -> Envelope {
        self.0.envelope()
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.message(ctx, session, message);
    }
}

#[test]
fn a_handler_whose_message_waits_runs_once() {
    let limits = HistoryLimits { publications_max: 9, bytes_max: 1_000, age_max: Duration::from_secs(300) };
    let rooms = Rooms { publish: true, history: vec![("kept".into(), limits)], ..Rooms::default() };
    let (engine, handled) = (Arc::new(Engine::default()), Arc::new(AtomicUsize::new(0)));
    let app = Box::new(Counting(RoomsApp::new(rooms.clone()), handled.clone()));
    let (broker, authorizer) = (engine.clone(), engine.clone());
    let mut rig = Rig::new(app, |options| {
        options.rooms = rooms;
        options.broker = Some(broker);
        options.authorizer = Some(authorizer);
    });
    let (mut conn, _) = socket(&mut rig, "/ws");
    let refused = Denial { retry: true, ..Denial::new("unavailable", "the engine is away") };
    let error = r#","code":"unavailable","message":"the engine is away","retry":true}"#;
    let mut id = 0;
    let mut answer = |message: &str, outcome: Result<(), Denial>| {
        id += 1;
        let expect = match outcome {
            Ok(()) => format!(r#"{{"type":"ok","id":{id}}}"#),
            Err(_) => format!(r#"{{"type":"error","id":{id}{error}"#),
        };
        let message = format!(r#"{{"type":{message},"id":{id}}}"#);
        assert_eq!(rig.receive(&mut conn, text(&message)), "", "the outcome isn't known yet");
        let reply = engine.0.lock().pop().unwrap();
        rig.ex.questions.decide(reply.ticket().number, outcome);
        assert_eq!(rig.ex.questions.waiting.poll_decided(), Some(conn.id));
        assert!(decided::resume(&mut rig.ex, &mut rig.clients, conn.id));
        let Some(Effect::Session(_, ToSession::Write(sent))) = rig.ex.effects.pop() else {
            panic!("no answer")
        };
        assert!(sent.ends_with(expect.as_bytes()), "{:?}", String::from_utf8_lossy(&sent));
        assert_eq!(handled.load(Ordering::Relaxed), id);
        assert!(!rig.ex.questions.waiting.is_waiting(conn.id));
    };
    for message in [
        r#""publish","room":"kept","data":1"#,
        r#""publish","room":"asked","data":1"#,
        r#""subscribe","room":"asked""#,
        r#""presence","room":"asked""#,
    ] {
        if !message.contains("presence") {
            answer(message, Ok(()));
        }
        answer(message, Err(refused.clone()));
    }
}

/// An authenticator that accepts each token at once. The authorizer of its identities decides later. Both count their questions.
#[derive(Clone, Debug, Default)]
struct Later(Arc<Mutex<LaterState>>);

#[derive(Debug, Default)]
struct LaterState {
    /// Number of verified tokens.
    verified: usize,
    /// Number of questions to the authorizer.
    asked: usize,
    open: Vec<PermissionReply>,
}

impl Authenticator for Later {
    fn authenticate(
        &self,
        _: Asking<'_>,
        credentials: &Credentials<'_>,
        _: &mut SignatureWork,
    ) -> Authentication {
        if credentials.token.is_none() {
            return Authentication::Refused(Denial::TOKEN_MISSING);
        }
        self.0.lock().verified += 1;
        Authentication::Accepted(Arc::new(Identity::anonymous(Arc::new(self.clone()))))
    }
}

impl Authorizer for Later {
    fn authorize(&self, question: &Question<'_>) -> Decision {
        let mut state = self.0.lock();
        state.asked += 1;
        state.open.push(question.later());
        Decision::Pending
    }
}

impl Later {
    /// Answers all open questions. Returns the connection whose questions have been answered.
    fn decide(&self, rig: &mut Rig, answer: Result<(), Denial>) -> Option<ConnId> {
        let open = std::mem::take(&mut self.0.lock().open);
        for reply in open {
            rig.ex.questions.decide(reply.ticket().number, answer.clone());
        }
        rig.ex.questions.waiting.poll_decided()
    }

    fn counts(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.verified, state.asked)
    }
}

/// Counts the connections and namespaces about which it decides. `is_late` is `true` if it decides about connections later.
struct Connecting {
    decided: Arc<AtomicUsize>,
    is_late: bool,
}

impl Application for Connecting {
    fn envelope(&self) -> Envelope {
        Envelope::V1
    }

    fn connect(&mut self, _: &mut Context<'_>, _: &Request<'_>) -> Connect {
        self.decided.fetch_add(1, Ordering::Relaxed);
        if self.is_late { Connect::Pending } else { Connect::Accept }
    }

    fn connect_namespace(&mut self, _: &mut Context<'_>, _: &NamespaceRequest<'_>) -> Admission {
        self.decided.fetch_add(1, Ordering::Relaxed);
        Admission::Accept
    }

    fn message(&mut self, _: &mut Context<'_>, _: SessionId, _: Message<'_>) {}
}

/// A core whose authorizer decides later, with the number of decisions of its application.
fn late_core(is_late: bool) -> (Rig, Later, Arc<AtomicUsize>) {
    let (later, decided) = (Later::default(), Arc::new(AtomicUsize::new(0)));
    let port = Arc::new(later.clone());
    let rig = Rig::new(Box::new(Connecting { decided: decided.clone(), is_late }), |options| {
        options.authenticator = Some(port);
        options.sockjs = vec![SockJs::at("/sockjs")];
    });
    (rig, later, decided)
}

/// Requests, with the number of questions to the authorizer about each, and the number of decisions of the application.
fn requests() -> Vec<(String, usize, usize)> {
    let token = "token=a";
    vec![
        (get(&format!("/feed/a?{token}")), 1, 0),
        (get(&format!("/sse/a?{token}")), 1, 0),
        (get(&format!("/sse?feed=a&feed=b&{token}")), 2, 0),
        (post(&format!("/sse?{token}"), r#"{"feeds":{"a":"","b":"","c":""}}"#), 3, 0),
        (upgrade(&format!("/ws?{token}")), 1, 1),
        (upgrade(&format!("/primus/?{token}")), 1, 1),
        (upgrade(&format!("/sockjs/websocket?{token}")), 1, 1),
        (post(&format!("/sockjs/0/a/xhr?{token}"), ""), 1, 1),
        (get(&format!("/ndjson?{token}")), 1, 1),
        (post(&format!("/ndjson?{token}"), "{}\n"), 1, 1),
        (get(&format!("/engine.io/?EIO=4&transport=polling&{token}")), 1, 1),
        (upgrade(&format!("/engine.io/?EIO=4&transport=websocket&{token}")), 1, 1),
        (get(&format!("/socket.io/?EIO=4&transport=polling&{token}")), 1, 1),
        // A client of Socket.IO protocol 4 is connected to the main namespace with its handshake.
        (get(&format!("/socket.io/?EIO=3&transport=polling&{token}")), 1, 2),
    ]
}

fn is_accepted(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 ") || response.starts_with("HTTP/1.1 101 ")
}

#[test]
fn a_request_that_waits_for_decisions_runs_once() {
    for (request, questions, decisions) in requests() {
        for answer in [Ok(()), Err(Denial::new("not_allowed", "no"))] {
            let (mut rig, later, decided) = late_core(false);
            let mut conn = rig.connect();
            // The next request waits for the response to the first one.
            let next =
                if request.starts_with("POST") { "" } else { "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" };
            assert_eq!(rig.receive(&mut conn, format!("{request}{next}")), "", "{request}");
            assert_eq!(later.counts(), (1, questions), "{request}");
            assert_eq!(rig.ex.questions.open(), questions, "{request}");
            assert_eq!(later.decide(&mut rig, answer.clone()), Some(conn.id));
            assert!(decided::resume(&mut rig.ex, &mut rig.clients, conn.id));
            let Machine::Http(http) = &mut conn.machine else { panic!("it speaks HTTP no more") };
            http.handle_decision();
            let response = rig.resume(&mut conn);
            let waits = matches!(&conn.machine, Machine::Http(http) if http.response().is_some());
            assert_eq!(
                is_accepted(&response) || response.is_empty() && waits,
                answer.is_ok(),
                "{request}{response}"
            );
            assert_eq!(later.counts(), (1, questions), "{request}");
            let expected = if answer.is_ok() { decisions } else { 0 };
            assert_eq!(decided.load(Ordering::Relaxed), expected, "{request}");
            assert!(
                !rig.ex.questions.waiting.is_waiting(conn.id) && rig.ex.questions.open() == 0,
                "{request}"
            );
        }
    }
}

#[test]
fn a_request_that_waits_for_the_application_runs_once() {
    for (request, questions, decisions) in requests() {
        if decisions == 0 {
            continue;
        }
        for answer in [Connect::Accept, Connect::Refuse { status: 403, message: "no".into() }] {
            let (mut rig, later, decided) = late_core(true);
            let mut conn = rig.connect();
            assert_eq!(rig.receive(&mut conn, &request), "", "{request}");
            assert_eq!(later.decide(&mut rig, Ok(())), Some(conn.id));
            let Machine::Http(http) = &mut conn.machine else { panic!("it speaks HTTP no more") };
            http.handle_decision();
            assert_eq!(rig.resume(&mut conn), "", "{request}");
            let Machine::Http(http) = &mut conn.machine else { panic!("it speaks HTTP no more") };
            assert!(http.handle_admission(answer.clone()), "{request}");
            assert!(!http.handle_admission(answer.clone()), "{request}: it waits for one answer");
            let response = rig.resume(&mut conn);
            assert_eq!(is_accepted(&response), answer == Connect::Accept, "{request}{response}");
            assert_eq!(later.counts(), (1, questions), "{request}");
            let expected = if answer == Connect::Accept { decisions } else { 1 };
            assert_eq!(decided.load(Ordering::Relaxed), expected, "{request}");
        }
    }
}

#[test]
fn a_connect_that_waits_runs_once() {
    for answer in [Ok(()), Err(Denial::new("not_allowed", "no"))] {
        let (mut rig, later, connected) = late_core(false);
        let (mut conn, _) = socket(&mut rig, "/socket.io/?EIO=4&transport=websocket");
        // A CONNECT waits, and the next one waits for it.
        let connects = [text(r#"40/a,{"token":"a"}"#), text(r#"40/b,{"token":"b"}"#)];
        assert_eq!(rig.receive(&mut conn, connects.concat()), "");
        for (number, namespace) in [(1, "a"), (2, "b")] {
            assert_eq!(later.counts(), (number, number), "questions before the answer");
            assert_eq!(later.decide(&mut rig, answer.clone()), Some(conn.id));
            let received = rig.resume_after(&mut conn);
            let kind = if answer.is_ok() { '0' } else { '4' };
            assert!(received.contains(&format!("4{kind}/{namespace},{{")), "{received}");
        }
        assert_eq!(later.counts(), (2, 2));
        assert_eq!(connected.load(Ordering::Relaxed), if answer.is_ok() { 3 } else { 1 });
        assert_eq!(rig.ex.metrics().messages.value(), 2, "each packet is counted once");
        assert_eq!(rig.engine_client().socketio().unwrap().held_bytes(), 0);
        assert!(!rig.ex.questions.waiting.is_waiting(conn.id) && rig.ex.questions.open() == 0);
    }
}
