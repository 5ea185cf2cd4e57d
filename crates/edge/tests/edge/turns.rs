//! The maximum work of a core for one connection before it serves others (`limits.turn_bytes_max`).
//!
//! The tests check an order, not a time: the core is stopped until all input has arrived, then continues. A message
//! of another client must not wait until all earlier input of an attacker is handled.

use crate::harness::io::{body, post};
use crate::harness::ws::frame;
use crate::harness::{Io, Server, VERSIONS, Way, Ws, pass, request, until};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stentor_edge::{Application, Context, Envelope, Message, Options, Page};
use stentor_hub::SessionId;
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

/// Sends messages of an attacker, and right after them one of another client. At most `before_max` of the attacker's
/// messages may be handled before the other client's. `prepare` returns a function that sends the whole attack at once.
fn check<F: FnOnce()>(name: &str, messages: usize, before_max: usize, prepare: impl FnOnce(&Server) -> F) {
    let (server, log) = start(|options| options.engine.packets_max = 10_000);
    let attack = prepare(&server);
    let mut other = server.ws("/ws");
    server.stop_core(0, true);
    attack();
    other.send_text(OTHER);
    // All data is in the server's sockets.
    pass(Duration::from_secs(1));
    server.stop_core(0, false);
    assert_eq!(other.next_text(), OTHER);
    until("all messages to be handled", || log.count() > messages);
    let handled = log.handled.lock().unwrap();
    assert_eq!(handled.len(), messages + 1, "{name}: each is handled once");
    let before = handled.iter().position(|text| text == OTHER).unwrap();
    assert!(before <= before_max, "{name}: {before} of {messages} were handled first");
}

/// Numbered texts, so that their order shows.
fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("m{n}")).collect()
}

#[test]
fn messages_of_websockets_wait_for_others() {
    check("many small messages", 8_000, 2_000, |server| {
        let mut ws = server.ws("/ws");
        move || ws.send_raw(&frame(Opcode::Text, b"a", true, false).repeat(8_000))
    });
    check("deflated messages", 10 * 20, 1, |server| {
        let deflated = Deflater::new(9).deflate("1,".repeat(150_000).as_bytes(), 15).to_vec();
        let frames = frame(Opcode::Text, &deflated, true, true).repeat(20);
        let mut all: Vec<Ws> = (0..10).map(|_| Ws::open(server.addr, "/ws", &[], true).unwrap()).collect();
        move || all.iter_mut().for_each(|ws| ws.send_raw(&frames))
    });
    check("ends of large messages", 6, 1, |server| {
        let mut start = frame(Opcode::Text, "1,".repeat(400_000).as_bytes(), true, false);
        let end = start.split_off(start.len() - 1_000);
        let mut all: Vec<Ws> = (0..6).map(|_| server.ws("/ws")).collect();
        all.iter_mut().for_each(|ws| ws.send_raw(&start));
        let bytes = 6 * start.len() as u64;
        server.until_metric("received_bytes", |received| received > bytes);
        move || all.iter_mut().for_each(|ws| ws.send_raw(&end))
    });
}

#[test]
fn requests_and_bodies_wait_for_others() {
    for version in VERSIONS {
        let packets: Vec<String> = numbered(6_000).iter().map(|text| format!("4{text}")).collect();
        let packets: Vec<&str> = packets.iter().map(String::as_str).collect();
        let body = body(version, &packets);
        check(&format!("many packets, {version:?}"), 6_000, 2_000, |server| {
            let mut io = Io::open(server.addr, "/engine.io/", version, Way::Polling, "");
            let request = post(&io.target("polling"), "text/plain;charset=UTF-8", body.as_bytes());
            move || io.posts().send(request)
        });
    }
    let list = serde_json::to_string(&numbered(8_000)).unwrap();
    check("a body of SockJS", 8_000, 2_000, |server| {
        let mut http = server.http();
        assert_eq!(http.ask(post("/sockjs/0/s/xhr", "text/plain", b"")).text(), "o\n");
        let request = post("/sockjs/0/s/xhr_send", "text/plain", list.as_bytes());
        move || http.send(request)
    });
    check("a frame of SockJS", 8_001, 2_000, |server| {
        let mut ws = server.ws("/sockjs/0/s/websocket");
        let list = list.clone();
        move || {
            ws.send_text(&list);
            ws.send_text(r#"["after it"]"#);
        }
    });
    check("pipelined requests", 1_000, 300, |server| {
        let mut http = server.http();
        move || http.send(request("GET", "/page", "").repeat(1_000))
    });
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
    // One of 64 turns is measured, and each message takes at least one turn.
    for _ in 0..200 {
        ws.echoes(OTHER);
    }
    until("the last turn to end", || measured().0 >= 2);
    assert!(measured().1 > 0.0);
}
