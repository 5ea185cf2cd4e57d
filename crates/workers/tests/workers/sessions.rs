//! Sessions and their workers' entries.

use crate::rig::{Rig, json, socket, text};
use std::sync::Arc;
use std::time::Duration;
use stentor_link::{
    ApplicationOptions, Broadcast, Change, Handle, LinkOptions, Messages, Namespace, Select, SelectFlags,
    SendFlags, ServerEntry, WorkerEntry,
};
use stentor_ports::{
    LinkApp, LinkChange, LinkDescription, LinkEntry, LinkMessage, LinkRefused, LinkReport, LinkSelect,
    LinkSelected, LinkSession,
};
use stentor_workers::AppOptions;
use tokio::time::timeout;

const ONE: LinkSession = LinkSession::from_bits(1);
const TWO: LinkSession = LinkSession::from_bits(2);
const ROOT: Namespace = Namespace(0);

/// A list with one item.
fn one<T, L: FromIterator<T>>(item: T) -> L {
    std::iter::once(item).collect()
}

fn declare(index: u16, name: &str) -> WorkerEntry {
    WorkerEntry::Nsp { namespace: Namespace(index), name: name.into() }
}

fn send(content: &str) -> WorkerEntry {
    let flags = SendFlags { is_volatile: true, ..SendFlags::default() };
    WorkerEntry::Send { handle: Handle(1), flags, messages: one(text(content)) }
}

#[tokio::test(start_paused = true)]
async fn a_client_talks_to_a_worker() {
    let mut rig = Rig::new();
    let (mut worker, link) = rig.start("a").await;
    rig.open(1);
    let ServerEntry::Open { handle: Handle(1), ask: false, handshake } = worker.entry().await else {
        panic!()
    };
    assert!(handshake.as_str().starts_with(r#"{"sid":"sid","protocol":4,"#), "{handshake:?}");
    assert!(matches!(rig.core().await, (of, LinkEntry::Accept(ONE, _)) if of == link));
    rig.say(1, "hello");
    let messages: Messages = one(text("hello"));
    assert_eq!(worker.entry().await, ServerEntry::Message { handle: Handle(1), messages });
    worker.write(&[send("echo")]).await;
    let messages = one(LinkMessage::Text("echo".into()));
    let (session, is_volatile, is_compressed, wants_receipt) = (ONE, true, true, false);
    let sent = LinkEntry::Send { session, is_volatile, is_compressed, wants_receipt, messages };
    assert_eq!(rig.core().await, (link, sent));
    rig.report(1, LinkReport::Upgraded("websocket"));
    rig.report(1, LinkReport::Pressure(true));
    rig.report(1, LinkReport::Receipt);
    rig.report(1, LinkReport::Confirm);
    let transport = "websocket".into();
    assert_eq!(worker.entry().await, ServerEntry::Upgrade { handle: Handle(1), transport });
    assert_eq!(worker.entry().await, ServerEntry::Pressure { handle: Handle(1), is_on: true });
    assert_eq!(worker.entry().await, ServerEntry::Receipt { handle: Handle(1) });
    assert_eq!(worker.entry().await, ServerEntry::Nop {});
    worker.write(&[WorkerEntry::Close { handle: Handle(1), discard: true }]).await;
    assert_eq!(rig.core().await, (0, LinkEntry::Handled(ONE)));
    assert_eq!(rig.core().await, (link, LinkEntry::Close { session: ONE, discards: true }));
    rig.close(1);
    let reason = "transport close".into();
    assert_eq!(worker.entry().await, ServerEntry::Closed { handle: Handle(1), reason, description: None });
    assert_eq!(rig.sessions_of(link), Some(0));
    // The ledger is empty when the service has ended.
    rig.workers.stop();
    assert_eq!((worker.next().await, worker.closed), (None, Some(1001)));
    drop(worker);
    rig.service.await.unwrap();
    assert_eq!(rig.ledger.by_class().find(|(class, _)| *class == "link"), Some(("link", 0)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_accepts_or_refuses_requests() {
    let mut rig = Rig::new();
    let mut worker = rig.connect("app=chat", None).await;
    worker.hello("a", None, r#","asks":true"#).await;
    worker.welcome().await;
    rig.open(1);
    rig.open(2);
    rig.open(3);
    for _ in 0..3 {
        assert!(matches!(worker.entry().await, ServerEntry::Open { ask: true, .. }));
    }
    let headers = json(r#"{"first":{"set-cookie":["a=1"]},"all":{}}"#);
    worker.write(&[WorkerEntry::Accept { handle: Handle(1), headers }]).await;
    let (_, LinkEntry::Accept(ONE, acceptance)) = rig.core().await else { panic!() };
    assert_eq!(acceptance.first, [("set-cookie".into(), "a=1".into())]);
    worker.write(&[WorkerEntry::Refuse { handle: Handle(2), response: json(r#"{"message":"no"}"#) }]).await;
    let (0, LinkEntry::Refuse(TWO, refusal)) = rig.core().await else { panic!() };
    assert_eq!((refusal.status, &*refusal.body), (403, br#"{"code":4,"message":"no"}"#.as_slice()));
    // The client waits no longer than the grace.
    let (0, LinkEntry::Refuse(_, refusal)) = rig.core().await else { panic!() };
    assert_eq!(refusal.status, 503);
    assert!(matches!(worker.entry().await, ServerEntry::Closed { handle: Handle(3), .. }));
    assert_eq!(rig.metric("link_requests_refused", &["chat"]), 1);
}

#[tokio::test(start_paused = true)]
async fn entries_become_instructions_in_order() {
    let mut rig = Rig::new();
    let (mut worker, link) = rig.start("a").await;
    rig.open(1);
    rig.core().await;
    let (handle, namespace) = (Handle(1), ROOT);
    let add = WorkerEntry::Add {
        handle,
        namespace,
        id: "i".into(),
        pid: "".into(),
        rooms: vec!["i".into()],
        state: json("{}"),
    };
    let broadcast = Broadcast { is_local: true, messages: one(text("all")), ..Broadcast::default() };
    let flags = SelectFlags { closes: true, ..SelectFlags::default() };
    let (rooms, except, targets) = (vec!["r".into()], Vec::new(), Vec::new());
    let select = Select { change: Change::Disconnect, flags, rooms, except, targets };
    worker
        .write(&[
            declare(0, "/"),
            add,
            WorkerEntry::Join { handle, namespace, rooms: vec!["r".into()] },
            WorkerEntry::Broadcast { namespace, broadcast },
            WorkerEntry::Leave { handle, namespace, room: "r".into() },
            WorkerEntry::Select { namespace, select },
            WorkerEntry::Del { handle, namespace },
        ])
        .await;
    let name: Arc<str> = "/".into();
    let (session, app) = (ONE, LinkApp(0));
    let mut core = async || {
        let (of, entry) = rig.core().await;
        assert_eq!(of, link);
        entry
    };
    assert_eq!(core().await, LinkEntry::Add { session, socket: Box::new(socket("/", "i", &["i"])) });
    assert_eq!(core().await, LinkEntry::Join { session, namespace: name.clone(), rooms: vec!["r".into()] });
    assert!(matches!(core().await, LinkEntry::Broadcast(of, _, it) if of == app && it.is_local));
    assert_eq!(core().await, LinkEntry::Leave { session, namespace: name.clone(), room: "r".into() });
    let LinkEntry::Select(_, _, select) = core().await else { panic!() };
    assert_eq!(select.change, LinkChange::Disconnect { closes: true });
    assert_eq!(core().await, LinkEntry::Delete { session, namespace: name });
}

#[tokio::test(start_paused = true)]
async fn workers_learn_what_others_have_changed() {
    let mut rig = Rig::new();
    let (mut a, from) = rig.start("a").await;
    rig.open(1);
    assert!(matches!(a.entry().await, ServerEntry::Open { .. }));
    let (mut b, _) = rig.start("b").await;
    rig.open(2);
    assert!(matches!(b.entry().await, ServerEntry::Open { .. }));
    a.write_handled(&[declare(0, "/"), declare(1, "/only-a")]).await;
    b.write_handled(&[declare(0, "/other"), declare(1, "/")]).await;
    rig.core().await;
    rig.core().await;
    let selected = |change| LinkSelected {
        app: LinkApp(0),
        link: from,
        namespace: "/".into(),
        select: Arc::new(LinkSelect {
            change,
            is_local: false,
            rooms: Vec::new(),
            except: Vec::new(),
            targets: vec!["r".into()],
        }),
        sessions: vec![ONE, TWO],
    };
    rig.sink.report_selected(selected(LinkChange::Leave));
    let (namespace, change, handles, rooms) =
        (Namespace(1), Change::Leave, vec![Handle(1)], vec!["r".into()]);
    assert_eq!(b.entry().await, ServerEntry::Members { namespace, change, handles: handles.clone(), rooms });
    rig.sink.report_selected(selected(LinkChange::Disconnect { closes: true }));
    assert_eq!(b.entry().await, ServerEntry::Kick { namespace, closes: true, handles });
    // Requests and answers between workers.
    let relay = |namespace, link, body: &str| WorkerEntry::Relay {
        namespace,
        link,
        body: json(body),
        messages: one(text("arguments")),
    };
    a.write(&[relay(ROOT, 0, r#"{"id":"x"}"#)]).await;
    let relayed = |namespace, link, body: &str, messages| ServerEntry::Relayed {
        namespace,
        link,
        body: json(body),
        messages,
    };
    let messages: Messages = one(text("arguments"));
    assert_eq!(b.entry().await, relayed(Namespace(1), from, r#"{"id":"x"}"#, messages.clone()));
    b.write(&[relay(Namespace(1), from, "[]")]).await;
    let b_link = rig.workers.links()[1].link;
    assert_eq!(a.entry().await, relayed(ROOT, b_link, "[]", messages));
    a.write(&[relay(Namespace(1), 0, r#"{"id":[7]}"#), relay(Namespace(1), 0, "{}")]).await;
    let none = r#"{"k":"none","id":[7]}"#;
    assert_eq!(a.entry().await, relayed(Namespace(1), b_link, none, Messages::new()));
}

#[tokio::test(start_paused = true)]
async fn questions_of_one_worker_end_no_link_of_another() {
    let link = LinkOptions { unacknowledged_bytes_max: 400_000, ..LinkOptions::default() };
    let application = ApplicationOptions { link, ..ApplicationOptions::default() };
    let rig = Rig::with(AppOptions { application, ..AppOptions::default() });
    let (mut a, _) = rig.start("a").await;
    let (mut b, number) = rig.start("b").await;
    a.write_handled(&[declare(0, "/")]).await;
    b.write_handled(&[declare(0, "/")]).await;
    let long = "x".repeat(100_000);
    let relay = WorkerEntry::Relay { namespace: ROOT, link: 0, body: json("{}"), messages: one(text(&long)) };
    for _ in 0..4 {
        a.write_handled(std::slice::from_ref(&relay)).await;
    }
    // Three quarters of the bound are for such entries.
    assert_eq!((rig.metric("link_relays_dropped", &[]), rig.sessions_of(number)), (2, Some(0)));
    for _ in 0..2 {
        assert!(matches!(b.entry().await, ServerEntry::Relayed { .. }));
    }
    b.write_handled(&[]).await;
    a.write_handled(&[relay]).await;
    assert!(matches!(b.entry().await, ServerEntry::Relayed { .. }));
}

/// A client can cause any number of them, so the cores take one of an application's reports before they describe a request.
#[tokio::test(start_paused = true)]
async fn some_refused_requests_of_each_application_are_reported_to_a_worker_that_listens() {
    let rig = Rig::new();
    let apps = rig.workers.engines();
    let taken = |app| std::iter::repeat_with(|| apps.take_report(app)).take_while(|taken| *taken).count();
    let report = |app| {
        rig.sink.report_refused(LinkRefused {
            app,
            code: 5,
            message: "Unsupported protocol version",
            context: ("protocol", "2".into()),
            request: Box::new(crate::rig::handshake()),
        });
    };
    let (chat, shop) = (LinkApp(0), LinkApp(1));
    let (_deaf, _) = rig.start("a").await;
    assert_eq!([taken(chat), taken(LinkApp(7))], [0, 0]);
    let errors = r#","errors":true"#;
    let (mut worker, _) = rig.start_with("b", errors).await;
    let mut of_shop = rig.connect("app=shop", Some("shop-token")).await;
    of_shop.hello_with("s", None, errors, r#"{"path":"/shop"}"#).await;
    of_shop.welcome().await;
    assert!(apps.take_report(chat));
    report(chat);
    let ServerEntry::ConnError { error } = worker.entry().await else { panic!("no CONN_ERROR") };
    let begin =
        r#"{"code":5,"context":{"protocol":2},"message":"Unsupported protocol version","req":{"sid":"sid","#;
    assert!(error.as_str().starts_with(begin), "{error:?}");
    assert_eq!(taken(chat), 19);
    // One application's reports are used up in each second, another's aren't.
    for _ in 0..3 {
        report(chat);
        assert!(matches!(worker.entry().await, ServerEntry::ConnError { .. }));
        assert!(taken(chat) == 0 && apps.take_report(shop));
        report(shop);
        assert!(matches!(of_shop.entry().await, ServerEntry::ConnError { .. }));
        assert_eq!(worker.entries_of(Duration::from_millis(1_001)).await, [""; 0]);
        assert_eq!(taken(chat), 20);
    }
    assert_eq!(taken(shop), 20);
    let config = json(r#"{"asks":false,"http":null,"errors":false}"#);
    worker.write_handled(&[WorkerEntry::Config { config }]).await;
    worker.entries_of(Duration::from_millis(1_001)).await;
    assert_eq!((taken(chat), taken(shop)), (0, 20));
}

/// Its sockets are in no worker, and its client mustn't connect again by itself.
#[tokio::test(start_paused = true)]
async fn a_session_without_a_worker_is_disconnected_by_another_worker() {
    for (parser, said) in [("json", vec!["1", "1/chat,"]), ("opaque", vec![])] {
        let mut rig = Rig::new();
        let mut a = rig.connect("app=chat", None).await;
        a.hello("a", None, &format!(r#","parser":"{parser}""#)).await;
        let from = a.welcome().await;
        rig.open(1);
        rig.open(2);
        let add = |namespace| WorkerEntry::Add {
            handle: Handle(1),
            namespace: Namespace(namespace),
            id: "i".into(),
            pid: "".into(),
            rooms: Vec::new(),
            state: json("{}"),
        };
        a.write(&[declare(0, "/"), declare(1, "/chat"), add(0), add(1)]).await;
        a.write(&[WorkerEntry::Bye { bye: json(r#"{"mode":"handover"}"#) }]).await;
        while rig.core().await.1.session() != Some(TWO) {}
        a.write(&[WorkerEntry::Bye { bye: json(r#"{"mode":"done"}"#) }]).await;
        while a.next().await.is_some() {}
        let select = |closes| LinkSelected {
            app: LinkApp(0),
            link: from,
            namespace: "/".into(),
            select: Arc::new(LinkSelect {
                change: LinkChange::Disconnect { closes },
                is_local: false,
                rooms: Vec::new(),
                except: Vec::new(),
                targets: Vec::new(),
            }),
            sessions: vec![ONE],
        };
        rig.sink.report_selected(select(false));
        rig.sink.report_selected(select(true));
        let mut found = Vec::new();
        loop {
            match rig.core().await {
                (0, LinkEntry::Send { session: ONE, messages, .. }) => found.extend(messages),
                (0, LinkEntry::Close { session: ONE, discards: false }) => break,
                (_, LinkEntry::Add { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        let expect: Vec<LinkMessage> = said.into_iter().map(|text| LinkMessage::Text(text.into())).collect();
        assert_eq!(found, expect);
        assert_eq!(rig.metric("link_waiting_sessions", &["chat"]), 1, "the other session waits");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_count_for_their_client_and_in_the_ledger() {
    let mut rig = Rig::new();
    let (mut worker, _) = rig.start("a").await;
    let queued = rig.open_counted(1);
    rig.core().await;
    worker.write(&[WorkerEntry::Bye { bye: json(r#"{"mode":"handover"}"#) }]).await;
    while worker.entry().await != (ServerEntry::Drained {}) {}
    let before = rig.held_bytes();
    rig.say(1, &"x".repeat(100_000));
    rig.say(1, "y");
    rig.report(1, LinkReport::Full);
    assert_eq!(queued.bytes(), 100_001, "in the inbox");
    worker.write_handled(&[]).await;
    assert_eq!(queued.bytes(), 100_001 + 2 * 64, "with its places in the queue");
    assert!(rig.held_bytes() > before + 99_000);
    let (mut other, link) = rig.start("b").await;
    worker.write(&[WorkerEntry::Bye { bye: json(r#"{"mode":"done"}"#) }]).await;
    while !matches!(rig.core().await.1, LinkEntry::Describe { .. }) {}
    let description = LinkDescription { request: 1, upgraded: false, sockets: Vec::new() };
    rig.report(1, LinkReport::Described(description));
    assert_eq!(rig.core().await, (0, LinkEntry::Continue(ONE)));
    assert_eq!((queued.bytes(), rig.sessions_of(link)), (0, Some(1)));
    assert!(matches!(other.entry().await, ServerEntry::Resume { .. }));
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_closed_session_count_no_more() {
    let mut rig = Rig::new();
    let queued = rig.open_counted(1);
    let (mut worker, _) = rig.start("a").await;
    rig.core().await;
    worker.write(&[WorkerEntry::Bye { bye: json(r#"{"mode":"handover"}"#) }]).await;
    while worker.entry().await != (ServerEntry::Drained {}) {}
    rig.say(1, &"x".repeat(1_000));
    worker.write_handled(&[]).await;
    assert!(queued.bytes() > 1_000);
    rig.close(1);
    worker.write_handled(&[]).await;
    assert_eq!(queued.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_a_core_that_is_behind() {
    let mut rig = Rig::new();
    let (mut worker, link) = rig.start("a").await;
    rig.open(1);
    rig.core().await;
    *rig.is_full.lock().unwrap() = true;
    worker.write(&[send("0")]).await;
    // The first frames are handled, and wait. No others are read, so the stream's buffer becomes full.
    let large = "x".repeat(60_000);
    let mut written = 0;
    while timeout(Duration::from_secs(5), worker.write(&[send(&large)])).await.is_ok() {
        written += 1;
        assert!(written < 10);
    }
    assert!(rig.held_bytes() < 400_000, "{}", rig.held_bytes());
    *rig.is_full.lock().unwrap() = false;
    rig.sink.space();
    for n in 0..=written {
        let (of, LinkEntry::Send { messages, .. }) = rig.core().await else { panic!() };
        assert_eq!((of, messages[0].data().len()), (link, if n == 0 { 1 } else { large.len() }));
    }
}

#[tokio::test(start_paused = true)]
async fn cores_wait_for_a_service_that_is_behind() {
    let mut rig = Rig::new();
    let message = LinkMessage::Text("x".repeat(1 << 20).into());
    let report = LinkReport::Messages(one(message));
    rig.open_counted(1).enter(8 << 20);
    // The service doesn't run meanwhile: the test has one thread.
    let taken = (0..20).map(|_| rig.sink.report(ONE, report.clone())).take_while(Result::is_ok).count();
    assert_eq!(taken, 8);
    rig.close(1);
    rig.space().await;
    assert_eq!(rig.held_bytes(), 0);
}
