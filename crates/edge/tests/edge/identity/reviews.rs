//! Subscriptions continue while the authorizer's backend is down.

use super::{Issuer, Node, expect_withdrawn, join, subscribe};
use crate::harness::{Server, Ws, advance, on_one_and_three};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use stentor_ports::{
    Asking, Authentication, Authenticator, Authorizer, Credentials, Decision, Done, Identity, IdentityFilter,
    Question, Recheck, RecheckAction, SignatureWork,
};

#[test]
fn subscriptions_continue_while_the_authorizer_is_unavailable() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |options| {
            options.limits.decision_timeout = Duration::from_millis(200);
        });
        let mut ws: Vec<Ws> = (0..3).map(|_| node.user("42.1")).collect();
        for ws in &mut ws {
            assert_eq!(subscribe(ws, "public"), "ok");
            assert_eq!(subscribe(ws, "user:42"), "ok");
        }
        let mut io = node.socketio_user("42");
        join(&mut io, "public");
        for down in [1, 2] {
            node.issuer.rules.down.store(down, Ordering::Relaxed);
            let everybody = node.recheck(IdentityFilter::default(), RecheckAction::Authorize);
            assert_eq!((everybody.sessions, everybody.refused), (4, 0));
            ws[0].ask(json!({"type": "auth", "token": format!("42.{}", down + 1)}));
            // Waits until no question is open.
            node.until_metric("decisions_pending", |pending| pending == 0);
            node.publish("public", "1");
            for ws in &mut ws {
                assert_eq!(ws.next_json()["data"], 1);
            }
            assert_eq!(io.event()[0], "message");
            // A new subscription doesn't wait until the existing ones are reviewed.
            assert_eq!(subscribe(&mut ws[0], "public:new"), "unavailable");
        }
        // The subscriptions are decided again, by the new rules.
        node.issuer.rules.forbidden.lock().unwrap().insert("public".into());
        node.issuer.rules.down.store(0, Ordering::Relaxed);
        for ws in &mut ws {
            expect_withdrawn(ws, "public");
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
    let mut all: Vec<Ws> = (0..400).map(|_| node.user("42")).collect();
    for ws in &mut all {
        assert_eq!(subscribe(ws, "public"), "ok");
    }
    node.issuer.rules.down.store(2, Ordering::Relaxed);
    node.recheck(IdentityFilter::default(), RecheckAction::Authorize);
    node.until_metric("decisions_pending", |pending| pending == 256);
}

/// An authorizer that allows all actions and counts the questions.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl Authenticator for Counting {
    fn authenticate(&self, _: Asking<'_>, _: &Credentials<'_>, _: &mut SignatureWork) -> Authentication {
        Authentication::Accepted(Arc::new(Identity::anonymous(Arc::new(self.clone()))))
    }
}

impl Authorizer for Counting {
    fn authorize(&self, _: &Question<'_>) -> Decision {
        self.0.fetch_add(1, Ordering::Relaxed);
        Decision::Allow
    }
}

#[test]
fn a_recheck_of_many_subscriptions_takes_many_turns() {
    let authenticator = Counting::default();
    let questions = authenticator.0.clone();
    let server = Server::start(1, |options| options.authenticator = Some(Arc::new(authenticator)));
    let mut all = server.clients(20);
    for ws in &mut all {
        for room in 0..200 {
            ws.send_json(json!({"type": "subscribe", "room": format!("r{room}")}));
        }
        ws.fence();
    }
    let first = questions.load(Ordering::Relaxed);
    let (done, is_done) = channel();
    let recheck = Recheck { filter: IdentityFilter::default(), action: RecheckAction::Authorize };
    server.plane().recheck(recheck, Done::new(move |answer| _ = done.send(answer)));
    let mut asked = 0;
    let concerned = loop {
        advance();
        let total = questions.load(Ordering::Relaxed) - first;
        assert!(total - asked < 2_000, "a turn had {} questions", total - asked);
        asked = total;
        if let Ok(concerned) = is_done.try_recv() {
            break concerned.unwrap();
        }
    };
    assert_eq!((concerned.sessions, asked), (20, 4_000));
}
