//! Workers that break, crash, leave and return.

use crate::rig::{Rig, Worker, json, now, socket, text};
use std::time::Duration;
use stentor_link::{Handle, Namespace, ServerEntry, WorkerEntry};
use stentor_ports::{LinkDescription, LinkEntry, LinkReport, LinkSession};

const ONE: LinkSession = LinkSession::from_bits(1);

fn bye(mode: &str) -> WorkerEntry {
    WorkerEntry::Bye { bye: json(&format!(r#"{{"mode":"{mode}"}}"#)) }
}

/// A socket of the session with the handle 1, with data.
fn add() -> [WorkerEntry; 3] {
    let (handle, namespace) = (Handle(1), Namespace(0));
    let state = json(r#"{"auth":{},"time":"t","issued":1}"#);
    [
        WorkerEntry::Nsp { namespace, name: "/".into() },
        WorkerEntry::Add { handle, namespace, id: "i".into(), pid: "".into(), rooms: Vec::new(), state },
        WorkerEntry::State { handle, namespace, data: json(r#"{"name":"x"}"#) },
    ]
}

async fn message(worker: &mut Worker) -> (u32, String) {
    let ServerEntry::Message { handle, messages } = worker.entry().await else { panic!("no MESSAGE") };
    (handle.0, String::from_utf8(messages[0].data().to_vec()).unwrap())
}

/// Answers the request for the description of session 1. Returns the link that gets the session.
async fn describe(rig: &mut Rig) -> u32 {
    let (link, LinkEntry::Own(ONE)) = rig.core().await else { panic!("no Own") };
    let (0, LinkEntry::Describe { session: ONE, request }) = rig.core().await else { panic!("no Describe") };
    let sockets = vec![socket("/", "i", &["i"])];
    rig.report(1, LinkReport::Described(LinkDescription { request, upgraded: true, sockets }));
    link
}

#[tokio::test(start_paused = true)]
async fn another_worker_takes_the_sessions_of_a_crashed_one() {
    let mut rig = Rig::new();
    let (mut a, _) = rig.start("a").await;
    rig.open(1);
    a.entry().await;
    rig.core().await;
    a.write(&add()).await;
    rig.core().await;
    let (mut b, to) = rig.start("b").await;
    let crashed = now();
    drop(a);
    assert_eq!(b.entries_of(Duration::from_millis(100)).await, ["PEERS", "PEERS"]);
    rig.say(1, "waits");
    assert_eq!(describe(&mut rig).await, to);
    assert!((200..=202).contains(&(now() - crashed).as_millis()));
    rig.say(1, "waits, too");
    let ServerEntry::Resume { handle: Handle(1), session } = b.entry().await else { panic!("no RESUME") };
    let sockets = r#""transport":"polling","upgraded":true,"sockets":[{"nsp":"/","id":"i","pid":"","rooms":["i"],"data":{"name":"x"},"auth":{},"issued":1,"time":"t"}]}"#;
    assert!(session.as_str().ends_with(sockets), "{session:?}");
    assert_eq!(message(&mut b).await, (1, "waits".into()));
    assert_eq!(message(&mut b).await, (1, "waits, too".into()));
    assert_eq!((rig.sessions_of(to), rig.metric("link_sessions_resumed", &[])), (Some(1), 1));
}

#[tokio::test(start_paused = true)]
async fn another_worker_takes_the_sessions_of_one_that_never_leaves() {
    let mut rig = Rig::new();
    let (mut a, _) = rig.start("a").await;
    rig.open(1);
    a.entry().await;
    rig.core().await;
    a.write(&[bye("handover")]).await;
    let begun = now();
    assert_eq!(a.entries_of(Duration::from_secs(60)).await, ["DRAINED", "PEERS", "ERROR"]);
    assert_eq!((now() - begun).as_secs(), 30);
    rig.say(1, "waits");
    let (mut b, to) = rig.start("b").await;
    assert_eq!(describe(&mut rig).await, to);
    assert!(matches!(b.entry().await, ServerEntry::Resume { .. }));
    assert_eq!(message(&mut b).await, (1, "waits".into()));
    assert_eq!(rig.metric("link_ends", &["overdue"]), 1);
}

/// A client chooses the depth and size of `auth`. Its session is resumed, at worst without it.
#[tokio::test(start_paused = true)]
async fn a_session_is_resumed_whatever_its_client_has_sent_as_auth() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let long = format!(r#""{}""#, "x".repeat(100_000));
    for (auth, is_kept) in [(nested(119), true), (nested(120), false), (nested(127), false), (long, false)] {
        let mut rig = Rig::new();
        let (mut a, _) = rig.start("a").await;
        rig.open(1);
        a.entry().await;
        rig.core().await;
        let [namespace, mut socket, data] = add();
        if let WorkerEntry::Add { state, .. } = &mut socket {
            *state = json(&format!(r#"{{"auth":{auth},"time":"t","issued":1}}"#));
        }
        a.write(&[namespace, socket, data]).await;
        rig.core().await;
        let (mut b, _) = rig.start("b").await;
        drop(a);
        b.entries_of(Duration::from_millis(100)).await;
        describe(&mut rig).await;
        let ServerEntry::Resume { session, .. } = b.entry().await else { panic!("no RESUME") };
        assert!(session.as_str().contains(r#""data":{"name":"x"}"#), "{session:?}");
        assert_eq!(session.as_str().contains(&auth), is_kept, "{}", auth.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_with_an_unacknowledged_message_is_closed_by_a_crash() {
    for (policy, expect) in [("disconnect", None), ("redeliver", Some("had")), ("drop", Some("later"))] {
        let mut rig = Rig::new();
        let mut a = rig.connect("app=chat", None).await;
        a.hello("a", None, &format!(r#","on_crash":"{policy}""#)).await;
        a.welcome().await;
        rig.open(1);
        a.entry().await;
        rig.core().await;
        rig.say(1, "had");
        assert_eq!(message(&mut a).await, (1, "had".into()));
        drop(a);
        let (mut b, _) = rig.start("b").await;
        let Some(expect) = expect else {
            assert_eq!(rig.core().await, (0, LinkEntry::Close { session: ONE, discards: true }));
            assert_eq!(rig.metric("link_sessions_lost", &["crash"]), 1);
            continue;
        };
        describe(&mut rig).await;
        rig.say(1, "later");
        assert!(matches!(b.entry().await, ServerEntry::Resume { .. }));
        assert_eq!(message(&mut b).await, (1, expect.into()));
        assert_eq!(rig.metric("link_crash_messages", &[policy]), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_restored_without_loss() {
    let mut rig = Rig::new();
    let (mut a, link) = rig.start("a").await;
    rig.open(1);
    a.entry().await;
    rig.core().await;
    rig.say(1, "read");
    assert_eq!(message(&mut a).await, (1, "read".into()));
    // The first frame of the worker arrives. The second one is lost with the connection, and so is a message.
    a.write(&add()).await;
    rig.core().await;
    let received = a.exchange.received();
    let send = WorkerEntry::Send {
        handle: Handle(1),
        flags: Default::default(),
        messages: std::iter::once(text("sent")).collect(),
    };
    a.exchange.write(&send);
    a.exchange.poll_transmit(now()).unwrap();
    let mut again = rig.connect("app=chat", None).await;
    std::mem::swap(&mut again.exchange, &mut a.exchange);
    drop(a);
    rig.say(1, "lost");
    tokio::time::advance(Duration::from_millis(100)).await;
    again.hello("a", Some((link, received)), "").await;
    let ServerEntry::Welcome { welcome } = again.next().await.unwrap() else { panic!("no WELCOME") };
    assert!(welcome.as_str().contains(r#""resumed":true,"received":1,"#), "{welcome:?}");
    again.exchange.reconnect(1, now()).unwrap();
    again.write(&[]).await;
    assert!(matches!(rig.core().await, (of, LinkEntry::Send { .. }) if of == link));
    assert_eq!(message(&mut again).await, (1, "lost".into()));
    assert_eq!(rig.sessions_of(link), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_worker_hands_its_sessions_over() {
    let mut rig = Rig::new();
    let (mut a, _) = rig.start("a").await;
    rig.open(1);
    a.entry().await;
    rig.core().await;
    a.write(&add()).await;
    rig.core().await;
    a.write(&[bye("handover")]).await;
    assert_eq!(a.entry().await, ServerEntry::Drained {});
    rig.say(1, "waits");
    let (mut b, to) = rig.start("b").await;
    let (handle, namespace) = (Handle(1), Namespace(0));
    let data = Some(json(r#"{"name":"y"}"#));
    a.write(&[WorkerEntry::Released { handle, namespace, data }, bye("done")]).await;
    // The last frame is acknowledged, and the connection is closed.
    while a.next().await.is_some() {}
    assert_eq!((a.exchange.unacknowledged_bytes(), a.closed), (0, Some(1000)));
    assert_eq!(describe(&mut rig).await, to);
    let ServerEntry::Resume { session, .. } = b.entry().await else { panic!("no RESUME") };
    assert!(session.as_str().contains(r#""data":{"name":"y"}"#), "{session:?}");
    assert_eq!(message(&mut b).await, (1, "waits".into()));
    // Sessions of a worker that stops the application end.
    b.write(&[bye("stop")]).await;
    assert_eq!(rig.core().await, (0, LinkEntry::Close { session: ONE, discards: true }));
    while b.next().await.is_some() {}
    rig.open(2);
    assert!(matches!(rig.core().await, (0, LinkEntry::Refuse(..))));
}

#[tokio::test(start_paused = true)]
async fn sessions_move_to_a_new_worker() {
    let mut rig = Rig::new();
    let (mut a, _) = rig.start("a").await;
    for session in [1, 2] {
        rig.open(session);
        a.entry().await;
        rig.core().await;
    }
    let (mut b, to) = rig.start("b").await;
    assert_eq!(a.entry().await, ServerEntry::Release { handle: Handle(1) });
    rig.say(1, "waits");
    a.write(&[WorkerEntry::Released { handle: Handle(1), namespace: Namespace::END, data: None }]).await;
    assert_eq!(describe(&mut rig).await, to);
    assert!(matches!(b.entry().await, ServerEntry::Resume { .. }));
    assert_eq!(message(&mut b).await, (1, "waits".into()));
    assert_eq!((rig.metric("link_sessions_moved", &["chat"]), rig.sessions_of(to)), (1, Some(1)));
}
