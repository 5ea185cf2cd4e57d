//! Late answers, possibly after tokens have been revoked or rules have changed.

use super::{Issuer, Node, request, subscribe};
use crate::harness::{self, Io, Way, Ws, id_of, on_one_and_three, until};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use stentor_edge::LinkRoutes;
use stentor_ports::fake::{Link, LinkCall};
use stentor_ports::{
    Command, Denial, Done, EngineOptions, Identity, IdentityFilter, LinkApps, LinkCloseReason, LinkEntry,
    LinkReport, RecheckAction, Target,
};

fn taken<T>(replies: &Mutex<Vec<T>>) -> T {
    let mut reply = None;
    until("a question", || {
        reply = replies.lock().unwrap().pop();
        reply.is_some()
    });
    reply.unwrap()
}

#[test]
fn an_identity_may_come_later() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        node.document("public", "1");
        let identify = |answer: Result<Arc<Identity>, Denial>| {
            taken(&node.issuer.later).send(answer).unwrap();
        };
        let known = || Ok(Arc::new(node.issuer.identity("42")));
        let mut get = node.http();
        get.send(request("/feed/public?token=later1", &[]));
        identify(known());
        assert_eq!(get.response().status, 200);
        get.send(request("/feed/public?token=later2", &[]));
        identify(Err(Denial::new("token_invalid", "no")));
        assert_eq!(get.response().status, 401);
        let upgrade = Ws::begin_open(node.addr, "/ws?token=later3");
        identify(known());
        let mut ws = Ws::answered(upgrade, None).unwrap();
        assert_eq!(ws.next_json()["type"], "welcome");
        let mut io = Io::socket(&node, Way::Socket);
        io.send(r#"40{"token":"later4"}"#);
        identify(known());
        let answer = io.next_text();
        assert!(answer.starts_with(r#"40{"sid""#), "{answer}");
        ws.send_json(json!({"type": "auth", "id": 1, "token": "later5"}));
        ws.send_json(json!({"type": "ping", "id": 2}));
        identify(Err(Denial::new("token_revoked", "no")));
        ws.expect_json(
            json!({"type": "error", "id": 1, "code": "token_revoked", "message": "no", "retry": false}),
        );
        ws.expect_json(json!({"type": "ok", "id": 2}));
        assert_eq!(node.issuer.asked.lock().unwrap().len(), 5, "each token is asked about once");
    });
}

/// The server cancels questions about tokens, and questions about subscriptions that were allowed before.
#[test]
fn questions_of_clients_that_have_gone_are_cancelled() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        let cancelled = &node.issuer.rules.cancelled;
        let mut ws = node.ws("/ws?token=42");
        let id = id_of(&ws.next_json()["session"]);
        ws.send_json(json!({"type": "auth", "id": 1, "token": "later"}));
        let question = taken(&node.issuer.later);
        let command = Command::Disconnect { close: true, done: Done::new(|_| ()) };
        node.plane().command(Target::of("/").unwrap().session(id), command);
        assert_eq!(taken(cancelled), question.ticket());
        let mut ws = node.user("42");
        for room in ["public", "public:2"] {
            assert_eq!(subscribe(&mut ws, room), "ok");
        }
        let mut other = node.user("42");
        assert_eq!(subscribe(&mut other, "public"), "ok");
        node.issuer.rules.down.store(2, Ordering::Relaxed);
        node.recheck(IdentityFilter::default(), RecheckAction::Authorize);
        node.until_metric("decisions_pending", |pending| pending == 3);
        drop(ws);
        node.until_metric("decisions_pending", |pending| pending == 1);
        assert_eq!(cancelled.lock().unwrap().len(), 2);
        drop(other);
        node.until_metric("memory_bytes{decisions}", |bytes| bytes == 0);
        assert_eq!(cancelled.lock().unwrap().len(), 3);
    });
}

/// The server refuses an identity whose user has been revoked since the question, although the authenticator accepts it.
#[test]
fn a_user_may_be_revoked_while_the_answer_is_awaited() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        let mut ws = node.user("42.1");
        ws.send_json(json!({"type": "auth", "id": 1, "token": "later"}));
        let question = taken(&node.issuer.later);
        node.issuer.rules.revoked.lock().unwrap().insert("42".into());
        question.send(Ok(Arc::new(node.issuer.identity("42.2")))).unwrap();
        let answer = ws.next_json();
        assert!(answer["type"] == "error" && answer["code"] == "token_revoked", "{answer}");
    });
}

/// A worker may accept a client so late that the client's user has been revoked, or the limit of its user or address is reached.
#[test]
fn a_client_is_checked_again_when_its_worker_accepts_it() {
    let link = Arc::new(Link::default());
    let sink = link.clone();
    let node = Node::start(1, Issuer::default(), |options| {
        options.link = Some(LinkRoutes {
            sink,
            apps: Arc::new(LinkApps::new([EngineOptions::of_path("/app/")])),
            http: None,
        });
        options.user_limits.sessions_max = 1;
        options.address_limits.sessions_max = 2;
    });
    let ask = |token: &str| {
        let mut http = node.http();
        http.send(harness::request("GET", &format!("/app/?EIO=4&transport=polling&token={token}"), ""));
        let mut opened = None;
        until("a request", || {
            let sessions = link.take().into_iter().find_map(|call| match call {
                LinkCall::Report(session, LinkReport::Opened(..)) => Some(session),
                _ => None,
            });
            opened = opened.or(sessions);
            opened.is_some()
        });
        (http, opened.unwrap())
    };
    let accept = |session| {
        let mut entries = vec![LinkEntry::Accept(session, Box::default())];
        node.plane().carry_out(1, &mut entries).unwrap();
    };
    let asking = ["42", "42", "7", "8", "9"].map(ask);
    node.issuer.rules.revoked.lock().unwrap().insert("7".into());
    let expect = [(200, ""), (429, "user_limits"), (401, "revoked"), (200, ""), (429, "address_limits")];
    for ((mut http, session), (status, why)) in asking.into_iter().zip(expect) {
        accept(session);
        let answer = http.response();
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(why), "{}", answer.text());
        if status != 200 {
            let reason = LinkCloseReason::ForcedClose;
            let closed = LinkCall::Report(session, LinkReport::Closed { reason, sockets: Vec::new() });
            until("the end", || link.take().contains(&closed));
        }
    }
    node.until_metric("sessions", |sessions| sessions == 2);
}

/// A permission that was granted by the old rules is decided again by the new rules.
#[test]
fn rules_may_change_while_an_answer_is_awaited() {
    on_one_and_three(|cores| {
        let node = Node::start(cores, Issuer::default(), |_| {});
        let mut ws = node.user("42");
        let mut ask = |id: u64, changes: bool| {
            ws.send_json(json!({"type": "subscribe", "id": id, "room": "public-later"}));
            let question = taken(&node.issuer.rules.later);
            if changes {
                node.change_rules("public-later");
            }
            question.send(Ok(())).unwrap();
            let answer = ws.next_json();
            assert_eq!(answer["id"], id, "{answer}");
            answer["type"].clone()
        };
        assert_eq!(ask(1, false), "ok");
        assert_eq!(ask(2, true), "error");
    });
}
