//! Connections of workers: refusals, violations, heartbeats.

use crate::recovery::pass;
use crate::rig::{Rig, now};
use std::time::Duration;
use stentor_link::{ApplicationOptions, ServerEntry, WorkerEntry};
use stentor_ports::{LinkApp, LinkState};
use stentor_wire::ws::{Opcode, encode};
use stentor_workers::AppOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_refused_learns_why() {
    let application = ApplicationOptions { workers_max: 1, ..ApplicationOptions::default() };
    let rig = Rig::with(AppOptions { application, ..AppOptions::default() });
    let check = async |query: &str, token: Option<&str>, fields: &str, expect: &str| {
        let mut worker = rig.connect(query, token).await;
        worker.hello("x", None, fields).await;
        assert_eq!(worker.error().await, expect);
        assert_eq!(worker.closed, Some(1008));
    };
    let message = "the token of the application, or the admin token, is missing or wrong";
    let expect = format!(r#"{{"code":"token","message":"{message}"}}"#);
    check("app=shop", None, "", &expect).await;
    check("app=shop", Some("wrong"), "", &expect).await;
    let expect = r#"{"code":"app_unknown","message":"there is no [[links]] with the app \"none\""}"#;
    check("app=none", None, "", expect).await;
    let expect =
        r#"{"code":"app_unknown","message":"there are several [[links]]; name one: /link/v1?app=NAME"}"#;
    check("", None, "", expect).await;
    let expect = r#"{"code":"version","message":"the worker speaks the versions [2]; the server speaks 1"}"#;
    check("app=chat", None, r#","v":[2]"#, expect).await;
    let (_first, _) = rig.start("first").await;
    let expect = r#"{"code":"too_many_workers","message":"the application has 1 workers already"}"#;
    check("app=chat", None, "", expect).await;
    assert_eq!(rig.metric("link_workers_refused", &["token"]), 2);
    assert_eq!(rig.metric("link_workers_refused", &[]), 6);
}

#[tokio::test(start_paused = true)]
async fn a_first_message_is_hello_and_comes_in_time() {
    let rig = Rig::new();
    let mut worker = rig.connect("app=chat", None).await;
    let begun = now();
    assert_eq!(worker.error().await, r#"{"code":"protocol","message":"HELLO didn't arrive in time"}"#);
    assert_eq!(now() - begun, Duration::from_secs(10));
    let mut worker = rig.connect("app=chat", None).await;
    worker.message(Opcode::Text, b"hello").await;
    let expect = r#"{"code":"protocol","message":"a message is a text; frames are binary messages"}"#;
    assert_eq!(worker.error().await, expect);
    let mut worker = rig.connect("app=chat", None).await;
    worker.message(Opcode::Binary, b"hello").await;
    let expect = r#"{"code":"protocol","message":"the frame ends within its header"}"#;
    assert_eq!(worker.error().await, expect);
}

#[tokio::test(start_paused = true)]
async fn a_violation_ends_the_link() {
    let check = async |opcode: Opcode, payload: &[u8], expect: &str| {
        let rig = Rig::new();
        let (mut worker, _) = rig.start("a").await;
        worker.message(opcode, payload).await;
        assert_eq!(worker.error().await, expect);
        assert_eq!(rig.metric("link_ends", &["failed"]), 1);
        drop(worker);
        rig.workers.stop();
        rig.service.await.unwrap();
    };
    let expect = r#"{"code":"protocol","message":"the frame has an entry of the unknown type 99"}"#;
    check(Opcode::Binary, &[1, 0, 0, 0, 0, 0, 0, 0, 99], expect).await;
    let expect = r#"{"code":"protocol","message":"a message is a text; frames are binary messages"}"#;
    check(Opcode::Text, b"x", expect).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_answer_is_replaced() {
    let rig = Rig::new();
    let (mut worker, link) = rig.start("a").await;
    // A worker that answers pings stays.
    assert_eq!(worker.entries_of(Duration::from_secs(100)).await, ["PEERS"]);
    assert_eq!(rig.workers.links()[0].state, LinkState::Up);
    worker.is_alive = false;
    rig.open(1);
    assert!(matches!(worker.entry().await, ServerEntry::Open { .. }));
    let expect = r#"{"code":"replaced","message":"no answer for 30s"}"#;
    assert_eq!(worker.error().await, expect);
    assert_eq!((rig.sessions_of(link), rig.metric("link_ends", &["hung"])), (None, 1));
    assert_eq!(rig.metric("link_waiting_sessions", &["chat"]), 1);
}

/// The connection of a worker that reads nothing is closed, although its last frame can't be written.
#[tokio::test(start_paused = true)]
async fn a_worker_that_hangs_with_full_buffers_is_replaced() {
    let mut rig = Rig::new();
    let (mut worker, _) = rig.start("a").await;
    rig.open(1);
    rig.core().await;
    // The stream's buffer takes the first message, and a part of the second one.
    rig.say(1, &"x".repeat(250_000));
    rig.say(1, &"x".repeat(250_000));
    pass(35_000).await;
    assert_eq!(rig.metric("link_ends", &["hung"]), 1);
    assert!(rig.workers.links().is_empty());
    assert!(rig.held_bytes() < 10_000, "{}", rig.held_bytes());
    let rest = timeout(Duration::from_secs(1), worker.io.read_to_end(&mut Vec::new())).await;
    assert!(rest.expect("the connection ends").unwrap() > 250_000);
}

/// A worker that sends pings and reads no pongs.
#[tokio::test(start_paused = true)]
async fn pings_whose_pongs_are_not_read_end_the_connection() {
    let mut ping = Vec::new();
    encode(&mut ping, Opcode::Ping, &[b'x'; 125], false, Some([0; 4]));
    let pings = ping.repeat(1_000);
    for has_link in [false, true] {
        let rig = Rig::new();
        let mut worker = match has_link {
            true => rig.start("a").await.0,
            false => rig.connect("app=chat", None).await,
        };
        let mut sent = 0;
        while worker.io.write_all(&pings).await.is_ok() {
            sent += 1;
            assert!(sent < 100, "the server reads pings forever");
            pass(50).await;
            assert!(rig.held_bytes() < 250_000, "{} bytes after {sent}", rig.held_bytes());
        }
        let (name, label) =
            if has_link { ("link_ends", "failed") } else { ("link_workers_refused", "limit") };
        assert_eq!(rig.metric(name, &[label]), 1);
    }
}

/// Processes that connect and end at once, as fast as they can: each holds one of the places for `rejoin`.
#[tokio::test(start_paused = true)]
async fn workers_that_connect_again_and_again_leave_nothing_behind() {
    let application = ApplicationOptions { workers_max: 4, ..ApplicationOptions::default() };
    let mut rig = Rig::with(AppOptions { application, ..AppOptions::default() });
    let (mut good, link) = rig.start("good").await;
    rig.open(1);
    rig.core().await;
    assert!(matches!(good.entry().await, ServerEntry::Open { .. }));
    let held = rig.held_bytes();
    let (mut welcomed, mut refused) = (0, 0);
    for n in 0..1_000 {
        let mut worker = rig.connect("app=chat", None).await;
        worker.hello(&format!("bad-{n}"), None, "").await;
        match worker.next().await {
            Some(ServerEntry::Welcome { .. }) => welcomed += 1,
            _ => refused += 1,
        }
        pass(1).await;
    }
    assert!(welcomed > 3 && refused > 900, "{welcomed} {refused}");
    good.entries_of(Duration::from_secs(2)).await;
    good.write_handled(&[]).await;
    let links: Vec<u32> = rig.workers.links().iter().map(|info| info.link).collect();
    assert_eq!((links, rig.sessions_of(link)), (vec![link], Some(1)));
    assert!(rig.held_bytes() < held + 10_000, "{} {held}", rig.held_bytes());
    let (_next, _) = rig.start("next").await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_acknowledged_after_a_while_or_at_once() {
    let rig = Rig::new();
    let (mut worker, _) = rig.start("a").await;
    let nsp = WorkerEntry::Nsp { namespace: stentor_link::Namespace(0), name: "/".into() };
    let begun = now();
    worker.write(&[nsp]).await;
    while worker.exchange.acknowledged() < 1 {
        let until = now() + Duration::from_millis(1);
        _ = tokio::time::timeout_at(until.into(), worker.next()).await;
    }
    assert!((20..=22).contains(&(now() - begun).as_millis()));
    let begun = now();
    worker.write(&[WorkerEntry::Nop {}]).await;
    while worker.exchange.acknowledged() < 2 {
        let until = now() + Duration::from_millis(1);
        _ = tokio::time::timeout_at(until.into(), worker.next()).await;
    }
    assert!(now() - begun < Duration::from_millis(2));
}

#[tokio::test(start_paused = true)]
async fn the_options_of_the_first_worker_apply_and_others_are_refused() {
    let rig = Rig::with(AppOptions { message_bytes_max: 100, ..AppOptions::default() });
    let refused = async |app: &str, name: &str, options: &str, expect: &str| {
        let mut worker = rig.connect(app, Some("shop-token")).await;
        worker.hello_with(name, None, "", options).await;
        let expect = format!(r#"{{"code":"options_conflict","message":"{expect}"}}"#);
        assert_eq!(worker.error().await, expect);
    };
    let options = r#"{"path":"/a","pingInterval":300,"maxHttpBufferSize":1000}"#;
    let mut worker = rig.connect("app=chat", None).await;
    worker.hello_with("first", None, "", options).await;
    let ServerEntry::Welcome { welcome } = worker.next().await.unwrap() else { panic!("no WELCOME") };
    let effective = r#""options":{"maxHttpBufferSize":100,"path":"/a/","pingInterval":300}}"#;
    assert!(welcome.as_str().ends_with(effective), "{}", welcome.as_str());
    let (app, found) = rig.workers.engines().find("/a/b").unwrap();
    assert_eq!((app, found.ping_interval), (LinkApp(0), Some(Duration::from_millis(300))));
    assert_eq!(found.message_bytes_max, Some(100));
    let begin = "the options differ from those of the running workers:";
    let expect = format!("{begin} `pingInterval` is 400, and 300 there");
    refused("app=chat", "second", r#"{"path":"/a","pingInterval":400,"maxHttpBufferSize":100}"#, &expect)
        .await;
    let expect = format!("{begin} `path` is \\\"/b/\\\", and \\\"/a/\\\" there");
    refused("app=chat", "second", r#"{"path":"/b","pingInterval":300,"maxHttpBufferSize":100}"#, &expect)
        .await;
    let expect = "the option `pingTimeout` must be a number from 1 to 3600000, and is -1";
    refused("app=chat", "second", r#"{"pingTimeout":-1}"#, expect).await;
    let expect = r#"the application \"chat\" has the path \"/a/\" already"#;
    refused("app=shop", "third", r#"{"path":"/a/"}"#, expect).await;
}
