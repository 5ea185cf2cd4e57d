//! A core's work for one connection before others have their turn (`limits.turn_bytes_max`).
//!
//! The tests check an order, not a time: the core is stopped until all input has arrived, then continues. A message
//! of another client must not wait until all earlier input of an attacker is handled.

use crate::harness::io::{body, post};
use crate::harness::{Io, Server, Way, Ws, pass, until};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{Application, Context, Envelope, Message, Options, Page};
use stentor_hub::SessionId;
use stentor_wire::engineio::Version;
use stentor_wire::http1::Request;
use stentor_wire::ws::{Deflater, Opcode};

const OTHER: &str = "somebody else";

/// The application's input, in order.
#[derive(Default)]
struct Log {
    handled: Mutex<Vec<String>>,
}

impl Log {
    fn count(&self) -> usize {
        self.handled.lock().unwrap().len()
    }
}

struct Recorder(Arc<Log>);

impl Application for Recorder {
    fn page(&mut self, _: &mut Context<'_>, request: &Request<'_>) -> Option<Page> {
        self.0.handled.lock().unwrap().push(request.path().to_owned());
        let (content_type, body) = ("text/plain".to_owned(), "page".into());
        Some(Page { status: 200, content_type, headers: Vec::new(), body, later: Vec::new() })
    }

    fn envelope(&self) -> Envelope {
        Envelope::Raw
    }

    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        match message {
            Message::Text(text) => {
                let short: String = text.chars().take(20).collect();
                self.0.handled.lock().unwrap().push(short);
                if text == OTHER {
                    ctx.send(session, message);
                }
            }
            Message::Binary(_) => {}
        }
    }
}

fn start(set: impl FnOnce(&mut Options)) -> (Server, Arc<Log>) {
    let log = Arc::new(Log::default());
    let for_app = log.clone();
    let app = Arc::new(move |_| Box::new(Recorder(for_app.clone())) as Box<dyn Application>);
    (Server::with_app(1, app, set), log)
}

/// Returns how many messages of the attackers were handled before a message that another client sent right after
/// them. `prepare` makes the data that `attack` sends at once, and `messages` is the number of messages in it.
fn handled_before<A>(
    messages: usize,
    set: impl FnOnce(&mut Options),
    prepare: impl FnOnce(&Server) -> A,
    attack: impl FnOnce(&mut A),
) -> usize {
    let (server, log) = start(set);
    let mut attackers = prepare(&server);
    let mut other = server.ws("/ws");
    server.stop_core(0, true);
    attack(&mut attackers);
    other.send_text(OTHER);
    // All data is in the server's sockets.
    pass(Duration::from_secs(1));
    server.stop_core(0, false);
    assert_eq!(other.next_text(), OTHER);
    until("all messages to be handled", || log.count() > messages);
    let handled = log.handled.lock().unwrap();
    assert_eq!(handled.len(), messages + 1, "each is handled once");
    handled.iter().position(|text| text == OTHER).unwrap()
}

/// Numbered texts, so that their order shows.
fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("m{n}")).collect()
}

#[test]
fn many_small_messages_wait_for_others() {
    let before = handled_before(
        8_000,
        |_| {},
        |server| server.ws("/ws"),
        |ws| {
            let frames: Vec<u8> =
                (0..8_000).flat_map(|_| crate::harness::ws::frame(Opcode::Text, b"a", true, false)).collect();
            ws.send_raw(&frames);
        },
    );
    assert!(before < 2_000, "{before} of 8,000 were handled first");
}

#[test]
fn deflated_messages_wait_for_others() {
    let numbers = "1,".repeat(150_000);
    let deflated = Deflater::new(9).deflate(numbers.as_bytes(), 15).to_vec();
    let frame = crate::harness::ws::frame(Opcode::Text, &deflated, true, true);
    let before = handled_before(
        10 * 20,
        |_| {},
        |server| -> Vec<Ws> { (0..10).map(|_| Ws::open(server.addr, "/ws", &[], true).unwrap()).collect() },
        |all| all.iter_mut().for_each(|ws| ws.send_raw(&frame.repeat(20))),
    );
    assert!(before <= 1, "{before} of 200 were handled first");
}

#[test]
fn large_messages_wait_for_others() {
    let text = "1,".repeat(400_000);
    let frame = crate::harness::ws::frame(Opcode::Text, text.as_bytes(), true, false);
    let (start, end) = frame.split_at(frame.len() - 1_000);
    let before = handled_before(
        6,
        |_| {},
        |server| -> Vec<Ws> {
            let mut all: Vec<Ws> = (0..6).map(|_| server.ws("/ws")).collect();
            all.iter_mut().for_each(|ws| ws.send_raw(start));
            let bytes = 6 * start.len() as u64;
            server.until_metric("received_bytes", |received| received > bytes);
            all
        },
        |all| all.iter_mut().for_each(|ws| ws.send_raw(end)),
    );
    assert!(before <= 1, "{before} of 6 were handled first");
}

#[test]
fn a_body_with_many_packets_waits_for_others() {
    let mut order = Vec::new();
    for version in [Version::V4, Version::V3] {
        let packets: Vec<String> = numbered(6_000).iter().map(|text| format!("4{text}")).collect();
        let packets: Vec<&str> = packets.iter().map(String::as_str).collect();
        let body = body(version, &packets);
        let before = handled_before(
            6_000,
            |options| options.engine.packets_max = 10_000,
            |server| Io::open(server.addr, "/engine.io/", version, Way::Polling, ""),
            |io| {
                let request = post(&io.target("polling"), "text/plain;charset=UTF-8", body.as_bytes());
                io.posts().send(request);
            },
        );
        order.push(before);
    }
    assert!(order.iter().all(|before| *before < 2_000), "{order:?} of 6,000 were handled first");
}

#[test]
fn a_sockjs_body_with_many_messages_waits_for_others() {
    let list = serde_json::to_string(&numbered(8_000)).unwrap();
    let before = handled_before(
        8_000,
        |_| {},
        |server| {
            let mut http = server.http();
            http.send("POST /sockjs/0/s/xhr HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(http.response().text(), "o\n");
            http
        },
        |http| {
            let length = list.len();
            let head =
                format!("POST /sockjs/0/s/xhr_send HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            http.send(head + &list);
        },
    );
    assert!(before < 2_000, "{before} of 8,000 were handled first");
}

#[test]
fn a_sockjs_frame_with_many_messages_waits_for_others() {
    let list = serde_json::to_string(&numbered(8_000)).unwrap();
    let before = handled_before(
        8_001,
        |_| {},
        |server| server.ws("/sockjs/0/s/websocket"),
        |ws| {
            ws.send_text(&list);
            ws.send_text(r#"["after it"]"#);
        },
    );
    assert!(before < 2_000, "{before} of 8,000 were handled first");
}

#[test]
fn pipelined_requests_wait_for_others() {
    let before = handled_before(
        1_000,
        |_| {},
        |server| server.http(),
        |http| http.send("GET /page HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1_000)),
    );
    assert!(before < 300, "{before} of 1,000 were handled first");
}

#[test]
fn the_processor_time_of_turns_is_sampled() {
    let (server, _log) = start(|_| {});
    let mut ws = server.ws("/ws");
    let measured = || {
        let histograms = server.plane().histograms();
        let histogram = histograms.iter().find(|histogram| histogram.name == "turn_cpu_seconds").unwrap();
        let sample = &histogram.samples[0];
        assert_eq!(sample.buckets.len(), histogram.bounds.len() + 1);
        (sample.buckets.iter().sum::<u64>(), sample.sum)
    };
    // One of 64 turns is, and each message has at least one.
    for _ in 0..200 {
        ws.echoes(OTHER);
    }
    until("the last turn to end", || measured().0 >= 2);
    assert!(measured().1 > 0.0);
}
