//! Subscriptions outlive what decides about them.

use super::{Issuer, Node, subscribe};
use crate::harness::{Io, PATIENCE, Server, Way, Ws, on_one_and_three};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{
    Authentication, Authenticator, Authorizer, Credentials, Decision, Done, Identity, IdentityFilter,
    Question, Recheck, RecheckAction, Ticket,
};

#[test]
fn subscriptions_stay_while_it_is_not_known_whether_they_are_allowed() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |options| {
            options.limits.decision_timeout = Duration::from_millis(200);
        });
        let mut ws: Vec<Ws> = (0..3).map(|_| node.ws("/ws?token=42.1")).collect();
        for ws in &mut ws {
            ws.next_json();
            assert_eq!(subscribe(ws, "public"), "ok");
            assert_eq!(subscribe(ws, "user:42"), "ok");
        }
        let mut io = Io::socket(&node, Way::Socket);
        io.connect("", json!({"token": "42"}));
        assert_eq!(io.ask("join", &[json!("public")]), json!([{"ok": true}]));
        for down in [1, 2] {
            node.issuer.rules.down.store(down, Ordering::Relaxed);
            let everybody = node.recheck(IdentityFilter::default(), RecheckAction::Authorize);
            assert_eq!((everybody.sessions, everybody.refused), (4, 0));
            ws[0].ask(json!({"type": "auth", "token": format!("42.{}", down + 1)}));
            // Until nobody waits for answers any more.
            node.until_metric("decisions_pending", |pending| pending == 0);
            node.publish("public", "1");
            for ws in &mut ws {
                assert_eq!(ws.next_json()["data"], 1);
            }
            assert_eq!(io.event()[0], "message");
            // What isn't subscribed yet waits for nobody.
            assert_eq!(subscribe(&mut ws[0], "public:new"), "unavailable");
        }
        // Late, what it would have said then.
        node.issuer.rules.forbidden.lock().unwrap().insert("public".into());
        node.issuer.rules.down.store(0, Ordering::Relaxed);
        for ws in &mut ws {
            let notice = ws.next_json();
            assert_eq!((&notice["code"], &notice["room"]), (&json!("not_allowed"), &json!("public")));
        }
        assert_eq!(io.event()[0], "stentor:unsubscribed");
        node.publish("public", "2");
        node.publish("user:42", "3");
        for ws in &mut ws {
            assert_eq!(ws.next_json()["data"], 3);
        }
    });
}

#[test]
fn questions_about_subscriptions_leave_room_for_those_of_clients() {
    let node = Node::start(1, Issuer::default(), |options| {
        options.limits.decision_timeout = Duration::from_secs(60);
    });
    let mut all: Vec<Ws> = (0..400).map(|_| node.ws("/ws?token=42")).collect();
    for ws in &mut all {
        ws.next_json();
        assert_eq!(subscribe(ws, "public"), "ok");
    }
    node.issuer.rules.down.store(2, Ordering::Relaxed);
    node.recheck(IdentityFilter::default(), RecheckAction::Authorize);
    node.until_metric("decisions_pending", |pending| pending == 256);
}

/// Allows everything. Once it is watched, it waits at its first question until a ping has been sent, and at a later one until this
/// has been answered, which needs another turn.
#[derive(Clone, Debug)]
struct Watched(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    is_on: AtomicBool,
    questions: AtomicU64,
    began: Mutex<Sender<()>>,
    sent: Mutex<Receiver<()>>,
    answered: Mutex<Receiver<()>>,
    is_answered: AtomicBool,
}

impl Authenticator for Watched {
    fn authenticate(&self, _: Ticket, _: &Credentials<'_>) -> Authentication {
        Authentication::Accepted(Arc::new(Identity::anonymous(Arc::new(self.clone()))))
    }
}

impl Authorizer for Watched {
    fn authorize(&self, _: &Question<'_>) -> Decision {
        let Self(watch) = self;
        if watch.is_on.load(Ordering::Relaxed) {
            match watch.questions.fetch_add(1, Ordering::Relaxed) {
                0 => {
                    watch.began.lock().unwrap().send(()).unwrap();
                    watch.sent.lock().unwrap().recv_timeout(PATIENCE).unwrap();
                }
                2_000 => {
                    let answered = watch.answered.lock().unwrap().recv_timeout(Duration::from_secs(5));
                    watch.is_answered.store(answered.is_ok(), Ordering::Relaxed);
                }
                _ => {}
            }
        }
        Decision::Allow
    }
}

#[test]
fn a_recheck_of_many_subscriptions_takes_many_turns() {
    let ((began, begins), (sent, is_sent), (answered, is_answered)) = (channel(), channel(), channel());
    let watch = Arc::new(Watch {
        is_on: AtomicBool::new(false),
        questions: AtomicU64::new(0),
        began: Mutex::new(began),
        sent: Mutex::new(is_sent),
        answered: Mutex::new(is_answered),
        is_answered: AtomicBool::new(false),
    });
    let authenticator = Watched(watch.clone());
    let server = Server::start(1, |options| options.authenticator = Some(Arc::new(authenticator)));
    let mut all: Vec<Ws> = (0..20).map(|_| server.ws("/ws")).collect();
    for ws in &mut all {
        ws.next_json();
        for room in 0..200 {
            ws.send_json(json!({"type": "subscribe", "room": format!("r{room}")}));
        }
        ws.fence();
    }
    let mut other = server.ws("/ws");
    other.next_json();
    watch.is_on.store(true, Ordering::Relaxed);
    let (done, is_done) = channel();
    let recheck = Recheck { filter: IdentityFilter::default(), action: RecheckAction::Authorize };
    server.plane().recheck(recheck, Done::new(move |answer| _ = done.send(answer)));
    begins.recv_timeout(PATIENCE).unwrap();
    other.send_json(json!({"type": "ping"}));
    sent.send(()).unwrap();
    other.expect_json(json!({"type": "ok"}));
    answered.send(()).unwrap();
    assert_eq!(is_done.recv_timeout(PATIENCE).unwrap().unwrap().sessions, 21);
    assert_eq!(watch.questions.load(Ordering::Relaxed), 4_000);
    assert!(watch.is_answered.load(Ordering::Relaxed), "a turn had more than 2,000 questions");
}
