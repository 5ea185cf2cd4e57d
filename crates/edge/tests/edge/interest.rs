//! Messages between two cores are bounded, even if one of the cores is busy.
//!
//! The second core is stopped, so that its mailbox isn't read meanwhile.

use crate::harness::{Server, Ws};
use std::sync::Arc;
use stentor_edge::{Application, Context, Message, Options};
use stentor_hub::{Data, Key, Policy, Room, SessionId, Topic};
use stentor_wire::ws::Opcode;

/// An application that carries out its clients' commands.
struct Obedient {
    core: usize,
}

impl Application for Obedient {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        let Message::Text(text) = message else { return };
        let (word, name) = text.split_once(' ').unwrap_or((text, ""));
        let topic = || match name.strip_prefix("feed:") {
            Some(key) => Topic::Feed(Key::parse(key).unwrap()),
            None => Topic::Room(Room::plain(name).unwrap()),
        };
        match word {
            "where" => ctx.send(session, Message::Text(&self.core.to_string())),
            "done" => ctx.send(session, message),
            "join" => {
                ctx.subscribe(session, &topic(), Policy::Queue, None, |_, _, joined| joined.unwrap());
            }
            "leave" => {
                ctx.unsubscribe(session, &topic());
            }
            _ => {
                let data = Data::Text(text.to_owned().into());
                let _ = ctx.publish(&Room::plain("large").unwrap(), None, data, Default::default());
            }
        }
    }
}

/// A server of two cores, a client of the first and one of the second, which is stopped after `prepare`.
struct Stopped {
    first: Ws,
    second: Ws,
    server: Server,
}

impl Stopped {
    fn new(set: impl FnOnce(&mut Options), prepare: impl FnOnce(&Server, &mut Ws)) -> Self {
        let app = Arc::new(|core| Box::new(Obedient { core }) as Box<dyn Application>);
        let server = Server::with_app(2, app, set);
        let on = |core: &str| {
            // All connections are kept until one is on the right core. Otherwise, the kernel might choose the same core for ever.
            let mut others = Vec::new();
            loop {
                let mut ws = server.ws("/ws");
                ws.send_text("where");
                if ws.next_text() == core {
                    return ws;
                }
                others.push(ws);
            }
        };
        let (first, mut second) = (on("0"), on("1"));
        prepare(&server, &mut second);
        server.stop_core(1, true);
        Self { first, second, server }
    }

    fn waiting(&self) -> u64 {
        self.server.metric("mailbox_overflow_messages")
    }

    fn go_on(&self) {
        self.server.stop_core(1, false);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn frames(texts: impl Iterator<Item = String>) -> Vec<u8> {
    texts.flat_map(|text| crate::harness::ws::frame(Opcode::Text, text.as_bytes(), true, false)).collect()
}

const LOOPS: usize = 10_000;
const RING: usize = 64;

#[test]
fn joining_and_leaving_rooms_in_a_loop_queues_no_messages() {
    for rooms in [1, LOOPS] {
        let mut node = Stopped::new(|options| options.limits.mailbox_messages_max = RING, |_, _| {});
        let loops =
            (0..LOOPS).flat_map(|n| [format!("join r{}", n % rooms), format!("leave r{}", n % rooms)]);
        node.first.send_raw(&frames(loops.chain(["join last".to_owned(), "done".to_owned()])));
        assert_eq!(node.first.next_text(), "done");
        node.server.until_metric("mailbox_overflow_messages", |waiting| waiting < 10);
        node.go_on();
        // Only the final state is sent.
        node.server.until_metric("topics", |topics| topics == 2);
        assert_eq!(node.server.by_core("topics"), [1, 1]);
    }
}

#[test]
fn a_client_that_subscribes_and_unsubscribes_in_a_loop_is_paused() {
    let mut node = Stopped::new(|options| options.limits.mailbox_messages_max = RING, |_, _| {});
    let loops =
        (0..LOOPS).flat_map(|n| [format!("join feed:k/{}", n % 16), format!("leave feed:k/{}", n % 16)]);
    let frames = frames(loops.chain(["done".to_owned()]));
    let (begin, rest) = frames.split_at(frames.len() / 2);
    node.first.stream().enqueue(begin);
    node.server.until_metric("connections_paused", |held| held == 1);
    // At most the messages of one turn wait.
    assert!(node.waiting() < 2_000, "{} messages wait", node.waiting());
    node.go_on();
    node.first.stream().enqueue(rest);
    assert_eq!(node.first.next_text(), "done");
    node.server.until_metric("mailbox_overflow_messages", |waiting| waiting == 0);
    node.server.until_metric("connections_paused", |held| held == 0);
}

#[test]
fn large_messages_count_by_their_size() {
    const MESSAGES: usize = 100;
    let text = "x".repeat(100_000);
    let mut node = Stopped::new(
        |options| {
            options.limits.mailbox_bytes_max = 1_000_000;
            options.limits.send_buffer_bytes_max = 64 << 20;
        },
        |server, second| {
            second.send_text("join large");
            // Both cores know the room after they have exchanged their interest.
            server.until_metric("topics", |topics| topics == 2);
        },
    );
    let frames = frames(std::iter::repeat_n(text.clone(), MESSAGES));
    node.first.stream().enqueue(&frames);
    node.server.until_metric("connections_paused", |held| held == 1);
    let bytes = node.server.metric("memory_bytes{publications}");
    assert!(bytes < 4_000_000, "{bytes} bytes wait");
    node.go_on();
    for _ in 0..MESSAGES {
        assert_eq!(node.second.next_text().len(), text.len());
    }
}
