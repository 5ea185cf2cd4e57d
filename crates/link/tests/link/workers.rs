//! Rules about workers and sessions: the choice of a worker, waiting, and the ends of links.

use crate::{hello_frame, json, name, names, text};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_link::{
    Action, Application, ApplicationOptions, Code, Entry, Exchange, Handle, Hello, LINK_BITS, LinkOptions,
    Message, Namespace, QueuedBytes, Received, ServerEntry, SessionId, Transmit, WorkerEntry,
};

/// An application and its workers, by link. A worker acknowledges at once.
pub(crate) struct Rig {
    pub(crate) now: Instant,
    pub(crate) app: Application,
    pub(crate) workers: BTreeMap<u32, Exchange<ServerEntry, WorkerEntry>>,
}

impl Rig {
    pub(crate) fn new(options: ApplicationOptions) -> Self {
        Self { now: Instant::now(), app: Application::new(options, 1), workers: BTreeMap::new() }
    }

    pub(crate) fn start(&mut self, instance: &str) -> u32 {
        self.start_with(instance, "disconnect")
    }

    pub(crate) fn start_with(&mut self, instance: &str, on_crash: &str) -> u32 {
        let hello = Hello::read(hello_frame(instance, (None, 0), on_crash)).unwrap();
        let link = self.app.handle_hello(hello, self.now).unwrap();
        self.workers.insert(link, Exchange::default());
        link
    }

    pub(crate) fn advance(&mut self, by: Duration) -> String {
        self.now += by;
        self.app.handle_timeout(self.now);
        self.actions()
    }

    pub(crate) fn request(&mut self, id: u64) -> String {
        self.app.handle_request(SessionId(id), json("{}"), QueuedBytes::default(), self.now);
        self.actions()
    }

    /// Opens a session. The bytes of its messages that wait.
    pub(crate) fn request_counted(&mut self, id: u64) -> QueuedBytes {
        let queued = QueuedBytes::default();
        self.app.handle_request(SessionId(id), json("{}"), queued.clone(), self.now);
        self.actions();
        queued
    }

    pub(crate) fn message(&mut self, id: u64, content: &'static str) -> String {
        self.app.handle_message(SessionId(id), smallvec![text(content)], self.now);
        self.actions()
    }

    /// The actions so far: `Accept 1`.
    pub(crate) fn actions(&mut self) -> String {
        let actions = std::iter::from_fn(|| self.app.poll_action()).map(|action| match action {
            Action::Accept(id, None) => format!("Accept {}", id.0),
            Action::Accept(id, Some(headers)) => format!("Accept {} with {}", id.0, headers.as_str()),
            Action::Refuse(id, None) => format!("Refuse {}", id.0),
            Action::Refuse(id, Some(response)) => format!("Refuse {} with {}", id.0, response.as_str()),
            Action::Close(id, closing) => format!("Close {} {closing:?}", id.0),
            Action::Pause(id) => format!("Pause {}", id.0),
            Action::Continue(id) => format!("Continue {}", id.0),
            Action::Handled(id) => format!("Handled {}", id.0),
            Action::Describe(id, handle) => format!("Describe {} as {}", id.0, handle.0),
            Action::Session(_, id, entry) => format!("{} of {}", entry.name(), id.0),
            Action::Namespace(link, entry) => format!("{} of link {link}", entry.name()),
        });
        actions.collect::<Vec<_>>().join(", ")
    }

    /// The entries that a worker receives: `OPEN 1`.
    pub(crate) fn received(&mut self, link: u32) -> String {
        let mut found = Vec::new();
        while let Some(transmit) = self.app.poll_transmit(link, self.now) {
            let Transmit::Frame(frame) = transmit else { continue };
            let worker = self.workers.get_mut(&link).unwrap();
            worker.handle_frame(frame.to_bytes(), self.now).unwrap();
            while let Some(entry) = worker.poll_entry().unwrap() {
                let of = match &entry {
                    ServerEntry::Open { handle, .. }
                    | ServerEntry::Message { handle, .. }
                    | ServerEntry::Resume { handle, .. }
                    | ServerEntry::Closed { handle, .. }
                    | ServerEntry::Upgrade { handle, .. }
                    | ServerEntry::Release { handle } => format!(" {}", handle.0),
                    ServerEntry::Peers { count } => format!(" {count}"),
                    _ => String::new(),
                };
                found.push(format!("{}{of}", entry.name()));
            }
        }
        found.join(", ")
    }

    pub(crate) fn worker_writes(&mut self, link: u32, entry: WorkerEntry) -> String {
        let worker = self.workers.get_mut(&link).unwrap();
        worker.write(&entry);
        // Acknowledgements, too.
        let later = self.now + Duration::from_millis(20);
        while let Some(frame) = worker.poll_transmit(later) {
            self.app.handle_frame(link, frame.to_bytes(), self.now);
        }
        self.actions()
    }

    pub(crate) fn bye(&mut self, link: u32, mode: &str) -> String {
        self.worker_writes(link, WorkerEntry::Bye { bye: json(&format!(r#"{{"mode":"{mode}"}}"#)) })
    }
}

#[test]
fn a_session_goes_to_the_worker_with_the_fewest() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let (a, b) = (rig.start("a"), rig.start("b"));
    for id in 1..=4 {
        assert_eq!(rig.request(id), format!("Accept {id}"));
    }
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b)), (2, 2));
    assert_eq!(rig.received(a), "WELCOME, PEERS 1, PEERS 2, OPEN 1, OPEN 2");
    assert_eq!(rig.received(b), "WELCOME, PEERS 2, OPEN 1, OPEN 2");
    assert_eq!(rig.app.owner_of(SessionId(3)), Some((a, Handle(2))));
    rig.app.handle_closed(SessionId(3), name("transport close"), None, rig.now);
    assert_eq!(rig.received(a), "CLOSED 2");
    // Handles aren't used again.
    rig.request(5);
    assert_eq!(rig.received(a), "OPEN 3");
}

/// A worker receives what waits for it, and acknowledges it.
fn answer(rig: &mut Rig, link: u32) -> String {
    let received = rig.received(link);
    rig.worker_writes(link, WorkerEntry::Nop {});
    received
}

#[test]
fn a_worker_that_hangs_gets_no_new_sessions_while_another_one_responds() {
    let ms = Duration::from_millis;
    let link = LinkOptions { window_bytes: 60, ..LinkOptions::default() };
    let mut rig = Rig::new(ApplicationOptions { link, ..ApplicationOptions::default() });
    let (a, b) = (rig.start("a"), rig.start("b"));
    answer(&mut rig, a);
    answer(&mut rig, b);
    // The first session's worker doesn't acknowledge it, and answers no ping.
    rig.request(1);
    rig.request(2);
    assert_eq!(rig.received(a), "OPEN 1");
    assert_eq!(answer(&mut rig, b), "OPEN 1");
    rig.advance(ms(249));
    rig.received(a);
    assert!(rig.app.link(a).unwrap().responds());
    rig.advance(ms(1));
    assert!(!rig.app.link(a).unwrap().responds());
    for id in [3, 4] {
        assert_eq!(rig.request(id), format!("Accept {id}"));
    }
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b)), (1, 3));
    // Sessions wait for the other one's window.
    while rig.app.link(b).unwrap().has_room() {
        rig.app.write(SessionId(2), |handle| ServerEntry::Receipt { handle }, rig.now);
    }
    assert_eq!(rig.request(5), "");
    rig.received(b);
    assert_eq!(rig.worker_writes(b, WorkerEntry::Nop {}), "Accept 5");
    // A pong is enough.
    rig.app.handle_pong(a, rig.now);
    rig.request(6);
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b)), (2, 4));
    // If none responds, the one with the fewest gets them.
    rig.received(a);
    rig.received(b);
    rig.advance(ms(250));
    rig.request(7);
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b)), (3, 4));
}

#[test]
fn a_worker_that_asks_accepts_or_refuses() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    assert_eq!(
        rig.worker_writes(a, WorkerEntry::Config { config: json(r#"{"asks":true,"http":null}"#) }),
        ""
    );
    for id in 1..=3 {
        assert_eq!(rig.request(id), "");
    }
    rig.received(a);
    let accept = WorkerEntry::Accept { handle: Handle(1), headers: json("[]") };
    assert_eq!(rig.worker_writes(a, accept.clone()), "Accept 1 with []");
    assert_eq!(rig.worker_writes(a, accept), "");
    let refuse = WorkerEntry::Refuse { handle: Handle(2), response: json("{}") };
    assert_eq!(rig.worker_writes(a, refuse), "Refuse 2 with {}");
    // A request that isn't answered is asked again when its worker has crashed.
    let b = rig.start("b");
    rig.received(b);
    rig.app.handle_disconnect(a, rig.now);
    assert_eq!(rig.advance(Duration::from_millis(200)), "Accept 3, Describe 1 as 2");
    assert_eq!(rig.received(b), "PEERS 1, OPEN 1");
}

#[test]
fn a_request_that_a_worker_does_not_answer_is_refused() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    let config = json(r#"{"asks":true,"http":null}"#);
    rig.worker_writes(a, WorkerEntry::Config { config });
    rig.request(1);
    assert_eq!(rig.received(a), "WELCOME, PEERS 1, OPEN 1");
    assert_eq!(rig.advance(Duration::from_millis(9_999)), "");
    assert_eq!(rig.advance(Duration::from_millis(1)), "Refuse 1");
    assert_eq!(rig.received(a), "CLOSED 1");
    let accept = WorkerEntry::Accept { handle: Handle(1), headers: json("[]") };
    assert_eq!(rig.worker_writes(a, accept), "");
    assert_eq!((rig.app.held_bytes(), rig.app.stats().requests_refused), (0, 1));
    // A request doesn't wait longer because its worker has crashed.
    rig.request(2);
    rig.advance(Duration::from_secs(5));
    rig.app.handle_disconnect(a, rig.now);
    assert_eq!(rig.advance(Duration::from_millis(4_999)), "");
    assert_eq!(rig.advance(Duration::from_millis(1)), "Refuse 2");
    assert_eq!(rig.app.held_bytes(), 0);
}

#[test]
fn requests_wait_for_a_worker_within_their_bounds() {
    let mut rig = Rig::new(ApplicationOptions { requests_max: 2, ..ApplicationOptions::default() });
    assert_eq!(rig.request(1), "");
    rig.advance(Duration::from_secs(9));
    assert_eq!(rig.request(2), "");
    assert_eq!(rig.request(3), "Refuse 3");
    assert_eq!(rig.app.poll_timeout(), Some(rig.now + Duration::from_secs(1)));
    assert_eq!(rig.advance(Duration::from_secs(1)), "Refuse 1");
    rig.start("a");
    assert_eq!(rig.actions(), "Accept 2");
    assert_eq!((rig.app.len(), rig.request(4).as_str()), (1, "Accept 4"));
}

#[test]
fn a_handover_repeats_and_loses_nothing() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    rig.request(1);
    rig.message(1, "first");
    assert_eq!(rig.received(a), "WELCOME, PEERS 1, OPEN 1, MESSAGE 1");
    assert_eq!(rig.bye(a, "handover"), "");
    assert_eq!(rig.message(1, "second"), "");
    assert_eq!(rig.request(2), "");
    assert_eq!(rig.received(a), "DRAINED, PEERS 0");
    let b = rig.start("b");
    assert_eq!(rig.actions(), "Accept 2");
    let data = WorkerEntry::Nsp { namespace: Namespace(0), name: name("/") };
    rig.worker_writes(a, data);
    let join = WorkerEntry::Join { handle: Handle(1), namespace: Namespace(0), rooms: names(["r"]) };
    assert_eq!(rig.worker_writes(a, join), "JOIN of 1");
    assert_eq!(rig.bye(a, "done"), "Describe 1 as 2");
    assert_eq!(rig.message(1, "third"), "");
    // A description for another worker has no effect.
    rig.app.handle_description(SessionId(1), Handle(1), json("{}"), rig.now);
    assert_eq!(rig.received(b), "WELCOME, PEERS 1, OPEN 1");
    rig.app.handle_description(SessionId(1), Handle(2), json("{}"), rig.now);
    assert_eq!(rig.received(b), "RESUME 2, MESSAGE 2, MESSAGE 2");
    assert_eq!(rig.actions(), "");
}

#[test]
fn sessions_end_with_an_application_that_stops() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let (a, b) = (rig.start("a"), rig.start("b"));
    rig.request(1);
    rig.request(2);
    assert_eq!(rig.bye(a, "stop"), "Close 1 Stopped");
    assert_eq!(rig.request(3), "Accept 3");
    assert_eq!(rig.bye(b, "stop"), "Close 2 Stopped, Close 3 Stopped");
    // No worker is expected until another one has connected.
    assert_eq!(rig.request(4), "Refuse 4");
    rig.start("c");
    assert_eq!(rig.request(5), "Accept 5");
}

#[test]
fn sessions_with_messages_that_a_crashed_worker_had_are_closed() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    rig.request(1);
    rig.request(2);
    rig.request(3);
    rig.message(1, "handled");
    rig.received(a);
    rig.worker_writes(a, WorkerEntry::Nop {});
    rig.message(2, "not acknowledged");
    rig.received(a);
    rig.app.handle_disconnect(a, rig.now);
    rig.message(3, "not sent");
    // The next process of the worker takes the sessions at once.
    let b = rig.start("b");
    assert_eq!(rig.actions(), "Close 2 Crashed, Describe 1 as 1, Describe 3 as 2");
    rig.app.handle_description(SessionId(3), Handle(2), json("{}"), rig.now);
    assert_eq!(rig.received(b), "WELCOME, PEERS 1, RESUME 2, MESSAGE 2");
    assert!(rig.app.link(a).is_none());
    // Without a worker, the sessions are closed after the grace.
    rig.app.handle_disconnect(b, rig.now);
    assert_eq!(rig.advance(Duration::from_millis(200)), "Close 3 Crashed");
    assert_eq!(rig.advance(Duration::from_secs(10)), "Close 1 NoWorker");
    assert!(rig.app.is_empty());
}

#[test]
fn a_client_that_its_core_has_paused_continues_when_its_messages_have_left() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    rig.request(1);
    rig.received(a);
    // The messages have left before the core's report.
    rig.app.handle_full(SessionId(1), rig.now);
    assert_eq!(rig.actions(), "Continue 1");
    let large = Message::Text(vec![b'.'; 300_000].into());
    rig.app.handle_message(SessionId(1), smallvec![large], rig.now);
    for _ in 0..7 {
        assert_eq!(rig.message(1, "0123456789"), "");
    }
    rig.app.handle_full(SessionId(1), rig.now);
    assert_eq!(rig.actions(), "");
    // 74 bytes for each message: its content, and its place in the queue.
    assert_eq!(rig.app.queued_bytes(), 518);
    rig.app.confirm(SessionId(1), rig.now);
    assert_eq!(rig.received(a), "MESSAGE 1");
    assert_eq!(rig.worker_writes(a, WorkerEntry::Nop {}), "Continue 1");
    assert_eq!(rig.received(a), "MESSAGE 1, ".repeat(7) + "NOP");
    // A NOP is acknowledged at once. The client's POST is answered before the effects of its messages.
    let close = WorkerEntry::Close { handle: Handle(1), discard: false };
    assert_eq!(rig.worker_writes(a, close), "Handled 1, CLOSE of 1");
    assert_eq!(rig.app.queued_bytes(), 0);
}

/// The core of a client knows how much the client's messages hold, so that it ends this client first while memory is short.
#[test]
fn the_bytes_that_wait_are_counted_for_their_client() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    let queued: Vec<QueuedBytes> = (1..=2).map(|id| rig.request_counted(id)).collect();
    let bytes = || queued.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect::<Vec<_>>();
    rig.received(a);
    let large = Message::Text(vec![b'.'; 300_000].into());
    rig.app.handle_message(SessionId(1), smallvec![large], rig.now);
    assert_eq!(bytes(), [0, 0], "the window is open");
    rig.message(1, "0123456789");
    rig.message(1, "0123456789");
    rig.message(2, "0123456789");
    assert_eq!(bytes(), [148, 74]);
    rig.received(a);
    rig.worker_writes(a, WorkerEntry::Nop {});
    assert_eq!(bytes(), [0, 0]);
    // A session that has ended holds nothing.
    rig.app.handle_disconnect(a, rig.now);
    rig.message(2, "0123456789");
    assert_eq!(bytes(), [0, 74]);
    rig.app.handle_closed(SessionId(2), name("transport close"), None, rig.now);
    assert_eq!(bytes(), [0, 0]);
}

#[test]
fn clients_are_paused_at_the_bound_of_all_queues() {
    let options = ApplicationOptions { total_queue_bytes: 140, ..ApplicationOptions::default() };
    let mut rig = Rig::new(options);
    let a = rig.start("a");
    rig.request(1);
    rig.request(2);
    rig.received(a);
    rig.app.handle_disconnect(a, rig.now);
    assert_eq!([rig.message(1, "0123456789"), rig.message(2, "0123456789")], ["", "Pause 2"]);
    assert_eq!(rig.message(1, "0123456789"), "Pause 1");
    // A client whose messages needn't wait isn't paused.
    let b = rig.start("b");
    rig.advance(Duration::from_millis(200));
    rig.request(3);
    assert_eq!(rig.message(3, "0123456789"), "");
    for (id, handle) in [(1, 1), (2, 2)] {
        rig.app.handle_description(SessionId(id), Handle(handle), json("{}"), rig.now);
        assert_eq!(rig.actions(), format!("Continue {id}"));
    }
    assert_eq!((rig.received(b).matches("MESSAGE").count(), rig.app.queued_bytes()), (4, 0));
}

#[test]
fn a_session_without_a_worker_can_be_disconnected() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    for id in 1..=3 {
        rig.request(id);
    }
    rig.received(a);
    assert!(!rig.app.disconnect_waiting(SessionId(1), rig.now), "its worker does that");
    // One that moves, one that waits, and one whose description is awaited.
    rig.app.release(SessionId(1), rig.now);
    assert!(rig.app.disconnect_waiting(SessionId(1), rig.now));
    assert_eq!(
        (rig.received(a).as_str(), rig.actions().as_str()),
        ("RELEASE 1, CLOSED 1", "Close 1 Disconnected")
    );
    rig.app.handle_disconnect(a, rig.now);
    rig.advance(Duration::from_millis(200));
    assert!(rig.app.disconnect_waiting(SessionId(2), rig.now));
    assert_eq!(rig.actions(), "Close 2 Disconnected");
    rig.start("b");
    assert_eq!(rig.actions(), "Describe 3 as 1");
    assert!(rig.app.disconnect_waiting(SessionId(3), rig.now));
    assert_eq!(rig.actions(), "Close 3 Disconnected");
    assert!(!rig.app.disconnect_waiting(SessionId(3), rig.now));
    assert!(rig.app.is_empty());
}

/// Another worker has disconnected its socket, which the next worker wouldn't have.
#[test]
fn a_session_that_a_crashed_worker_had_to_disconnect_is_closed() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    for id in 1..=3 {
        rig.request(id);
    }
    rig.worker_writes(a, WorkerEntry::Nsp { namespace: Namespace(0), name: name("/") });
    let kick =
        |closes, handle| ServerEntry::Kick { namespace: Namespace(0), closes, handles: vec![Handle(handle)] };
    rig.app.write_to_link(a, &kick(true, 1), rig.now);
    rig.received(a);
    rig.worker_writes(a, WorkerEntry::Nop {});
    rig.app.write_to_link(a, &kick(true, 2), rig.now);
    rig.app.write_to_link(a, &kick(false, 3), rig.now);
    rig.received(a);
    rig.app.handle_disconnect(a, rig.now);
    assert_eq!(rig.advance(Duration::from_millis(200)), "Close 2 Disconnected");
    assert_eq!(rig.app.waiting(), 2);
}

#[test]
fn workers_have_the_same_options_and_are_bounded() {
    let mut rig = Rig::new(ApplicationOptions { workers_max: 2, ..ApplicationOptions::default() });
    let first = rig.start("a");
    let other = |instance: &str| {
        let mut hello = Hello::read(hello_frame(instance, (None, 0), "drop")).unwrap();
        hello.options["path"] = "/other".into();
        hello
    };
    let conflict =
        "the options differ from those of the running workers: `path` is \"/other\", and \"/a\" there";
    let refusal = rig.app.handle_hello(other("b"), rig.now).unwrap_err();
    assert_eq!((refusal.code, &*refusal.message), (Code::OptionsConflict, conflict));
    // Options may change while there is neither a worker nor a session.
    rig.request(1);
    rig.app.handle_disconnect(first, rig.now);
    assert!(rig.app.handle_hello(other("b"), rig.now).is_err());
    rig.app.handle_closed(SessionId(1), name("transport close"), None, rig.now);
    assert!(rig.app.handle_hello(other("b"), rig.now).is_ok());
    assert!(rig.app.handle_hello(other("c"), rig.now).is_ok());
    let refusal = rig.app.handle_hello(other("d"), rig.now).unwrap_err();
    assert_eq!(refusal.code, Code::TooManyWorkers);
    assert_eq!(refusal.message, "the application has 2 workers already");
    let frame = refusal.frame().to_bytes();
    let Some(Ok(ServerEntry::Error { error })) = Received::new(frame).unwrap().next() else { panic!() };
    assert_eq!(
        error.as_str(),
        r#"{"code":"too_many_workers","message":"the application has 2 workers already"}"#
    );
}

#[test]
fn a_process_that_missed_its_welcome_gets_another_link() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    rig.request(1);
    // WELCOME and OPEN are lost with the connection.
    let again = rig.start("a");
    assert_ne!(a, again);
    assert_eq!(rig.actions(), "Describe 1 as 1");
    assert!(rig.app.link(a).is_none());
    // A process that knows its link keeps it.
    let hello = Hello::read(hello_frame("a", (Some(again), 0), "disconnect")).unwrap();
    assert_eq!(rig.app.handle_hello(hello, rig.now), Ok(again));
}

/// Its worker's link would end, and then that of the next worker.
#[test]
fn a_session_that_no_link_can_carry_is_closed() {
    let link = LinkOptions { unacknowledged_bytes_max: 1_000, ..LinkOptions::default() };
    let mut rig = Rig::new(ApplicationOptions { link, ..ApplicationOptions::default() });
    let (a, b) = (rig.start("a"), rig.start("b"));
    rig.request(1);
    rig.app.handle_disconnect(a, rig.now);
    assert_eq!(rig.advance(link.rejoin), "Describe 1 as 1");
    let long = json(&format!("\"{}\"", "x".repeat(500)));
    rig.app.handle_description(SessionId(1), Handle(1), long, rig.now);
    assert_eq!(rig.actions(), "Close 1 TooLarge");
    assert_eq!((rig.app.is_empty(), rig.app.stats().sessions_without_worker), (true, 1));
    assert!(rig.app.link(b).is_some_and(|link| !link.is_ended()));
}

/// Otherwise a worker that connects again and again would get numbers of another application's links.
#[test]
fn numbers_of_links_stay_within_their_application() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let last = (2 << LINK_BITS) - 1;
    rig.app = Application::new(ApplicationOptions::default(), last - 1);
    let first = 1 << LINK_BITS;
    assert_eq!([(); 3].map(|()| rig.start("a")), [last - 1, last, first + 1]);
}

#[test]
fn sessions_of_a_link_that_ends_at_its_bound_go_to_others() {
    let link = LinkOptions { window_bytes: 100, unacknowledged_bytes_max: 120, ..LinkOptions::default() };
    let check = |is_closed_by_worker: bool| {
        let mut rig = Rig::new(ApplicationOptions { link, ..ApplicationOptions::default() });
        let a = rig.start("a");
        rig.request(1);
        let nop = ServerEntry::Nop {};
        while rig.app.link(a).unwrap().unacknowledged_bytes() < link.unacknowledged_bytes_max {
            rig.app.write_to_link(a, &nop, rig.now);
        }
        assert!(!rig.app.link(a).unwrap().is_ended());
        // PEERS is too much.
        rig.start("b");
        assert!(rig.app.link(a).unwrap().is_ended());
        if is_closed_by_worker {
            rig.app.handle_disconnect(a, rig.now);
        } else {
            let transmits: Vec<Transmit> = std::iter::from_fn(|| rig.app.poll_transmit(a, rig.now)).collect();
            assert!(matches!(transmits[..], [Transmit::Frame(_), Transmit::Frame(_), Transmit::Close]));
        }
        assert!(rig.app.link(a).is_none());
        assert_eq!(rig.actions(), "Describe 1 as 1");
    };
    check(false);
    check(true);
}
