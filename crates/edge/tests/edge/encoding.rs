//! While a core makes a large encoding, another core that also needs it serves its clients, and doesn't make the
//! encoding itself.

use crate::harness::{Server, Ws, until};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_edge::{Application, Context, CustomProtocol, Message};
use stentor_hub::{Body, Data, Key, Policy, SessionId, Topic};

/// Size of a document that a core doesn't encode for itself.
const DOCUMENT_BYTES: usize = 100_000;

/// Number of encodings that have begun. The first one isn't finished while a test holds the gate.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static GATE: Mutex<()> = Mutex::new(());

fn encode(body: &Body) -> Option<Data> {
    let Body::Snapshot { document, .. } = body else { return None };
    if BEGUN.fetch_add(1, Ordering::SeqCst) == 0 {
        drop(GATE.lock().unwrap());
    }
    Some(Data::Text(document.body.clone()))
}

/// An application whose sessions subscribe to the feed `k` with any message.
struct Gated;

impl Application for Gated {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, _: Message<'_>) {
        let feed = Topic::Feed(Key::parse("k").unwrap());
        ctx.subscribe(session, &feed, Policy::Latest, None, |_, _, subscribed| subscribed.unwrap());
    }
}

/// A client of each core.
fn on_each_core(server: &Server, target: &str) -> [Ws; 2] {
    let mut found = [None, None];
    while found.iter().any(Option::is_none) {
        let before = server.by_core("sessions");
        let client = server.ws(target);
        let count = before.iter().sum::<u64>() + 1;
        server.until_metric("sessions", |sessions| sessions == count);
        let core = usize::from(server.by_core("sessions")[0] == before[0]);
        match &mut found[core] {
            // Excess connections of this core are closed before the next one is counted.
            Some(_) => {
                drop(client);
                server.until_metric("sessions", |sessions| sessions == count - 1);
            }
            found => *found = Some(client),
        }
    }
    found.map(Option::unwrap)
}

#[test]
fn only_the_core_that_makes_a_large_encoding_is_busy_with_it() {
    let server = Server::on_sockets(2, |options| {
        options.protocols.push(CustomProtocol { path: "/gated".into(), app: |_| Box::new(Gated), encode });
    });
    let [mut plain, mut gated] = ["/ws", "/gated"].map(|target| on_each_core(&server, target));
    // Both cores have the document, but not this encoding.
    let document = format!("\"{}\"", "x".repeat(DOCUMENT_BYTES));
    for ws in &mut plain {
        ws.next_json();
        ws.ask(json!({"type": "subscribe", "feed": "k"}));
    }
    server.wait_wanted("k", true);
    server.document("k", &document);
    for ws in &mut plain {
        assert!(ws.next_text().contains(&document));
    }
    let closed = GATE.lock().unwrap();
    gated[0].send_text("subscribe");
    until("the encoding to begin", || BEGUN.load(Ordering::SeqCst) == 1);
    // The other core needs the encoding as well, and serves its clients meanwhile.
    let before = server.metric("messages_received");
    gated[1].send_text("subscribe");
    server.until_metric("messages_received", |received| received > before);
    plain[1].fence();
    assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
    drop(closed);
    for ws in &mut gated {
        assert_eq!(ws.next_text(), document);
    }
    assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
}
