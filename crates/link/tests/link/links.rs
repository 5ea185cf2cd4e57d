//! A link's life: HELLO, acknowledgements, limits, heartbeats, farewells and crashes.

use crate::{hello_frame, json, name, names, text};
use bytes::Bytes;
use smallvec::smallvec;
use std::time::{Duration, Instant};
use stentor_link::{
    ACK_BYTES, ACK_DELAY, Aftermath, Change, Code, End, Entry, Event, Exchange, FRAME_BYTES, FrameError,
    HELLO_BYTES_MAX, Handle, Hello, Link, LinkError, LinkOptions, Message, NAMESPACE_BYTES_MAX,
    NAMESPACE_NAME_BYTES_MAX, Namespace, Received, Select, SelectFlags, SendFlags, ServerEntry, Transmit,
    WorkerEntry, Writer,
};

/// A link whose worker is a part of the test.
struct Rig {
    now: Instant,
    link: Link,
    worker: Exchange<ServerEntry, WorkerEntry>,
}

impl Rig {
    fn new(on_crash: &str) -> Self {
        Self::with(on_crash, LinkOptions::default())
    }

    fn with(on_crash: &str, options: LinkOptions) -> Self {
        let now = Instant::now();
        let hello = Hello::read(hello_frame("one", (None, 0), on_crash)).unwrap();
        let mut rig = Self { now, link: Link::new(3, hello, 2, options, now), worker: Exchange::default() };
        assert_eq!(
            rig.transmitted(),
            [
                r#"WELCOME {"v":1,"link":3,"resumed":false,"received":0,"servers":2,"window":262144,"options":{"path":"/a"}}"#
            ]
        );
        rig
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.link.handle_timeout(self.now);
    }

    /// The worker writes entries, and the link receives them in a frame.
    fn worker_writes(&mut self, entries: &[WorkerEntry]) -> Vec<Event> {
        entries.iter().for_each(|entry| self.worker.write(entry));
        let mut events = Vec::new();
        while let Some(frame) = self.worker.poll_transmit(self.now) {
            self.link.handle_frame(frame.to_bytes(), self.now);
            events.extend(std::iter::from_fn(|| self.link.poll_event()));
        }
        events
    }

    /// The link's transmissions, which the worker handles: names of entries, or `ack`, `ping` and `close`.
    fn transmitted(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(transmit) = self.link.poll_transmit(self.now) {
            let frame = match transmit {
                Transmit::Ping => {
                    found.push("ping".to_owned());
                    continue;
                }
                Transmit::Close => {
                    found.push("close".to_owned());
                    continue;
                }
                Transmit::Frame(frame) => frame.to_bytes(),
            };
            let entries: Vec<ServerEntry> =
                Received::new(frame.clone()).unwrap().map(Result::unwrap).collect();
            if entries.is_empty() {
                found.push("ack".to_owned());
            }
            found.extend(entries.iter().map(|entry| match entry {
                ServerEntry::Welcome { welcome: body } | ServerEntry::Error { error: body } => {
                    format!("{} {}", entry.name(), body.as_str())
                }
                _ => entry.name().to_owned(),
            }));
            self.worker.handle_frame(frame, self.now).unwrap();
            while self.worker.poll_entry().unwrap().is_some() {}
        }
        found
    }
}

fn send(content: &'static str) -> WorkerEntry {
    WorkerEntry::Send { handle: Handle(1), flags: SendFlags::default(), messages: smallvec![text(content)] }
}

fn message(handle: u32, content: &'static str) -> ServerEntry {
    ServerEntry::Message { handle: Handle(handle), messages: smallvec![text(content)] }
}

fn bye(mode: &str) -> WorkerEntry {
    WorkerEntry::Bye { bye: json(&format!(r#"{{"mode":"{mode}"}}"#)) }
}

#[test]
fn hello_is_read_or_refused() {
    let frame = |text: &str| {
        let mut writer = Writer::default();
        writer.entry(&WorkerEntry::Hello { hello: json(text) });
        writer.finish(0, 0).to_bytes()
    };
    let valid = r#"{"v":[9,1],"name":"a","instance":"b","parser":"opaque","options":{},"asks":true,"new":1}"#;
    let hello = Hello::read(frame(valid)).unwrap();
    assert_eq!((hello.name.as_str(), hello.asks, hello.received), ("a", true, 0));
    let check = |frame: Bytes, code: Code, message: &str| {
        let refusal = Hello::read(frame).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
    };
    let incomplete = "HELLO has a missing or wrong field";
    check(
        frame(&valid.replace("[9,1]", "[2,3]")),
        Code::Version,
        "the worker speaks the versions [2, 3]; the server speaks 1",
    );
    check(frame("{}"), Code::Protocol, incomplete);
    check(frame(&valid.replace("opaque", "other")), Code::Protocol, incomplete);
    check(frame(&valid.replace("\"a\"", "\"\"")), Code::Protocol, incomplete);
    check(frame(&valid.replace("\"b\"", &format!("\"{}\"", "b".repeat(256)))), Code::Protocol, incomplete);
    check(Bytes::from_static(&[0; 8]), Code::Protocol, incomplete);
    check(Bytes::from_static(b"abc"), Code::Protocol, "the frame ends within its header");
    check(Bytes::from_static(b"\0\0\0\0\0\0\0\0\x15"), Code::Protocol, "NOP isn't allowed now");
    let mut numbered = frame(valid).to_vec();
    numbered[0] = 1;
    check(numbered.into(), Code::Protocol, "HELLO isn't allowed now");
    let longer = [&frame(valid)[..], b"\x15"].concat();
    check(longer.into(), Code::Protocol, incomplete);
    let large = frame(&valid.replace("\"b\"", &format!("\"{}\"", "b".repeat(HELLO_BYTES_MAX))));
    check(large.clone(), Code::Limit, &format!("HELLO has {} bytes; the maximum is 65536", large.len()));
}

#[test]
fn an_acknowledgement_travels_alone_after_20_ms() {
    let mut rig = Rig::new("drop");
    assert_eq!(rig.worker_writes(&[send("1")]).len(), 1);
    assert_eq!(rig.transmitted(), Vec::<String>::new());
    assert_eq!(rig.link.poll_timeout(), Some(rig.now + ACK_DELAY));
    rig.advance(ACK_DELAY / 2);
    rig.worker_writes(&[send("2")]);
    rig.advance(ACK_DELAY / 2);
    assert_eq!(rig.transmitted(), ["ack"]);
    assert_eq!(rig.worker.unacknowledged_bytes(), 0);
    // It isn't repeated.
    rig.advance(ACK_DELAY);
    assert_eq!(rig.transmitted(), Vec::<String>::new());
}

#[test]
fn an_acknowledgement_travels_with_the_next_frame() {
    let mut rig = Rig::new("drop");
    rig.worker_writes(&[send("1")]);
    rig.link.write(&message(1, "reply"));
    assert_eq!(rig.transmitted(), ["MESSAGE"]);
    assert_eq!(rig.worker.unacknowledged_bytes(), 0);
    rig.advance(ACK_DELAY);
    assert_eq!(rig.transmitted(), Vec::<String>::new());
}

#[test]
fn an_acknowledgement_travels_at_once_after_a_nop_and_after_32_kib() {
    let mut rig = Rig::new("drop");
    assert_eq!(rig.worker_writes(&[WorkerEntry::Nop {}]), []);
    assert_eq!(rig.transmitted(), ["ack"]);
    let half = Message::Binary(vec![0; ACK_BYTES / 2].into());
    let half =
        WorkerEntry::Send { handle: Handle(1), flags: SendFlags::default(), messages: smallvec![half] };
    rig.worker_writes(std::slice::from_ref(&half));
    assert_eq!(rig.transmitted(), Vec::<String>::new());
    rig.worker_writes(&[half]);
    assert_eq!(rig.transmitted(), ["ack"]);
    assert_eq!(rig.worker.unacknowledged_bytes(), 0);
}

#[test]
fn a_frame_is_acknowledged_after_its_last_entry() {
    let mut rig = Rig::new("drop");
    [send("1"), send("2")].iter().for_each(|entry| rig.worker.write(entry));
    let frame = rig.worker.poll_transmit(rig.now).unwrap();
    rig.link.handle_frame(frame.to_bytes(), rig.now);
    assert!(rig.link.poll_event().is_some() && rig.link.poll_event().is_some());
    rig.advance(ACK_DELAY);
    assert!(!rig.link.is_idle());
    assert_eq!(rig.transmitted(), Vec::<String>::new());
    assert_eq!(rig.link.poll_event(), None);
    assert!(rig.link.is_idle());
    assert_eq!(rig.transmitted(), ["ack"]);
}

#[test]
fn messages_wait_at_the_window_and_the_link_ends_at_its_bound() {
    let options = LinkOptions { unacknowledged_bytes_max: 300_000, ..LinkOptions::default() };
    let mut rig = Rig::with("drop", options);
    let mut count = 0;
    while rig.link.has_room() {
        rig.link.write(&message(1, "0123456789"));
        count += 1;
    }
    // 22 bytes each, and a header for each frame of at most 64 KiB.
    assert_eq!(count, (262_144 - 5 * 8) / 21 + 1, "{}", rig.link.unacknowledged_bytes());
    while !rig.link.is_ended() {
        rig.link.write(&ServerEntry::Receipt { handle: Handle(1) });
    }
    assert!(rig.link.unacknowledged_bytes() < 300_100);
    assert_eq!(rig.link.poll_event(), Some(Event::Ended(End::Failed(LinkError::Unacknowledged))));
    assert_eq!(rig.link.poll_event(), None);
    assert_eq!(
        rig.transmitted(),
        [r#"ERROR {"code":"limit","message":"too many bytes aren't acknowledged"}"#, "close"]
    );
    rig.link.write(&ServerEntry::Receipt { handle: Handle(1) });
    assert_eq!(rig.transmitted(), Vec::<String>::new());
}

/// The link ends with this error when the worker sends a frame.
fn check_refused(frame: &[u8], error: LinkError) {
    let mut rig = Rig::new("drop");
    rig.link.handle_frame(Bytes::copy_from_slice(frame), rig.now);
    let events: Vec<Event> = std::iter::from_fn(|| rig.link.poll_event()).collect();
    assert_eq!(events, [Event::Ended(End::Failed(error))], "{frame:?}");
    let expect = format!(r#"ERROR {{"code":"{}","message":"{error}"}}"#, error.code().name());
    assert_eq!(rig.transmitted(), [&expect, "close"]);
}

#[test]
fn a_frame_that_breaks_a_rule_ends_the_link() {
    use LinkError::*;
    check_refused(b"\x02\0\0\0\0\0\0\0\x15", Number { expected: 1, found: 2 });
    check_refused(b"\x01\0\0\0\x01\0\0\0\x15", Ack { found: 1, last: 0 });
    check_refused(b"\0\0\0\0\0\0\0\0\x15", Misplaced("NOP"));
    check_refused(b"\x01\0\0\0\0\0\0\0\x01\x02\0\0\0{}", Misplaced("HELLO"));
    check_refused(b"\0\0\0\0\0\0\0\0\x01\x02\0\0\0{}", Unexpected("HELLO"));
    check_refused(b"\x01\0\0\0\0\0\0\0\x07\x01\0\0\0\0\0", Namespace(0));
    check_refused(b"\x01\0\0\0\0\0\0\0\x12\x01\0\x01\0/", Namespace(1));
    check_refused(b"\x01\0\0\0\0\0\0\0\x11\x02\0\0\0{}", Field("BYE"));
    check_refused(b"\x01\0\0\0\0\0\0\0\x11\x0f\0\0\0{\"mode\":\"done\"}", Unexpected("BYE"));
}

/// The workers of the changed sockets receive the rooms, unless the change is local.
#[test]
fn the_rooms_that_a_select_joins_are_bounded() {
    let mut rig = Rig::new("drop");
    let select = |count: usize, is_local: bool| {
        let targets = vec![name(&"x".repeat(1_024)); count];
        let (flags, rooms, except) = (SelectFlags { is_local, closes: false }, names([]), names([]));
        let select = Select { change: Change::Join, flags, rooms, except, targets };
        WorkerEntry::Select { namespace: Namespace(0), select }
    };
    let declare = WorkerEntry::Nsp { namespace: Namespace(0), name: name("/") };
    assert_eq!(rig.worker_writes(&[declare, select(1_024, false)]), [Event::Entry(select(1_024, false))]);
    assert_eq!(rig.worker_writes(&[select(2_000, true)]), [Event::Entry(select(2_000, true))]);
    assert_eq!(rig.worker_writes(&[select(1_025, false)]), [Event::Ended(End::Failed(LinkError::Targets))]);
}

/// 16 MiB of short entries would need several hundred MiB when they are read.
#[test]
fn a_frame_with_several_entries_has_a_lower_bound() {
    let nops = |count: usize| [b"\x01\0\0\0\0\0\0\0", &b"\x15".repeat(count)[..]].concat();
    check_refused(&nops(FRAME_BYTES - 7), LinkError::Frame(FrameError::SeveralEntries(FRAME_BYTES + 1)));
    let mut rig = Rig::new("drop");
    rig.link.handle_frame(nops(FRAME_BYTES - 8).into(), rig.now);
    assert_eq!((rig.link.poll_event(), rig.link.is_ended()), (None, false));
    // A long entry has a frame of its own.
    let long: &'static str = "x".repeat(FRAME_BYTES).leak();
    let mut writer = Writer::default();
    writer.entry(&send(long));
    rig.link.handle_frame(writer.finish(2, 0).to_bytes(), rig.now);
    assert_eq!(rig.link.poll_event(), Some(Event::Entry(send(long))));
}

#[test]
fn a_malformed_frame_ends_the_link_after_its_valid_entries() {
    let mut rig = Rig::new("drop");
    rig.link.handle_frame(Bytes::from_static(b"\x01\0\0\0\0\0\0\0\x05\x01\0\0\0\0\x63"), rig.now);
    let events: Vec<Event> = std::iter::from_fn(|| rig.link.poll_event()).collect();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], Event::Entry(WorkerEntry::Close { handle: Handle(1), discard: false }));
    assert_eq!(
        rig.transmitted(),
        [r#"ERROR {"code":"protocol","message":"the frame has an entry of the unknown type 99"}"#, "close"]
    );
}

#[test]
fn namespaces_are_known_by_index_and_by_name() {
    let mut rig = Rig::new("drop");
    let declare = |index: u16, text: &str| WorkerEntry::Nsp { namespace: Namespace(index), name: name(text) };
    let join = WorkerEntry::Join { handle: Handle(1), namespace: Namespace(1), rooms: names(["r"]) };
    let events = rig.worker_writes(&[declare(0, "/"), declare(1, "/chat"), join.clone()]);
    assert_eq!(events, [Event::Entry(join)]);
    assert_eq!(rig.link.namespace(Namespace(1)).map(|name| &**name), Some("/chat"));
    assert_eq!(rig.link.namespace_index("/chat"), Some(Namespace(1)));
    assert!(rig.link.held_bytes() >= "//chat".len(), "{}", rig.link.held_bytes());
    assert_eq!(rig.link.namespace_index("/other"), None);
    // A client chooses the name of a dynamic namespace: many long names, and a longer one.
    let long = "n".repeat(NAMESPACE_NAME_BYTES_MAX);
    let count = (NAMESPACE_BYTES_MAX / long.len()) as u16;
    let many: Vec<WorkerEntry> = (0..=count).map(|index| declare(2 + index, &long)).collect();
    assert_eq!(rig.worker_writes(&many), [Event::Ended(End::Failed(LinkError::TooManyNamespaces))]);
    let longer = declare(0, &"n".repeat(NAMESPACE_NAME_BYTES_MAX + 1));
    let failed = Event::Ended(End::Failed(LinkError::NamespaceName(257)));
    assert_eq!(Rig::new("drop").worker_writes(&[longer]), [failed]);
}

#[test]
fn the_name_and_the_index_of_a_namespace_that_is_gone_are_free() {
    let mut rig = Rig::new("drop");
    let declare = |index: u16, text: &str| WorkerEntry::Nsp { namespace: Namespace(index), name: name(text) };
    let gone = |index: u16| WorkerEntry::Gone { namespace: Namespace(index) };
    let delete = |index| WorkerEntry::Del { handle: Handle(1), namespace: Namespace(index) };
    let failed = |index| Event::Ended(End::Failed(LinkError::Namespace(index)));
    rig.worker_writes(&[declare(0, "/"), declare(1, "/chat")]);
    rig.transmitted();
    // The entries of the same frame are resolved after it.
    assert_eq!(rig.worker_writes(&[delete(1), gone(1)]), [Event::Entry(delete(1))]);
    assert_eq!(rig.link.namespace(Namespace(1)).map(|name| &**name), Some("/chat"));
    assert_eq!(rig.link.namespace_index("/chat"), None, "no entry has the index after VACANT");
    assert_eq!(rig.transmitted(), ["VACANT"]);
    assert_eq!(rig.worker_writes(&[declare(1, "/other"), declare(2, "/chat"), delete(1)]).len(), 1);
    let found = ["/other", "/chat"].map(|name| rig.link.namespace_index(name));
    assert_eq!(found, [Some(Namespace(1)), Some(Namespace(2))]);
    // Any number of names, one after the other.
    let long = |n: u16| format!("{n:0width$}", width = NAMESPACE_NAME_BYTES_MAX);
    for n in 0..20_000 {
        assert_eq!(rig.worker_writes(&[declare(3, &long(n))]), []);
        assert_eq!(rig.worker_writes(&[gone(3)]), []);
        rig.transmitted();
    }
    for entries in [&[gone(3)][..], &[gone(2), gone(2)], &[gone(2), declare(2, "/")], &[delete(3)]] {
        let mut rig = Rig::new("drop");
        rig.worker_writes(&[declare(0, "/"), declare(1, "/a"), declare(2, "/b"), declare(3, "/c"), gone(3)]);
        let index = if matches!(entries[0], WorkerEntry::Del { .. }) || entries.len() == 1 { 3 } else { 2 };
        assert_eq!(rig.worker_writes(entries), [failed(index)], "{entries:?}");
    }
}

#[test]
fn a_worker_that_hands_over_receives_no_further_messages() {
    let mut rig = Rig::new("drop");
    rig.link.write(&message(1, "last"));
    assert_eq!(rig.worker_writes(&[bye("handover")]), [Event::Draining]);
    assert!(!rig.link.has_room() && !rig.link.takes_sessions());
    assert_eq!(rig.transmitted(), ["MESSAGE", "DRAINED"]);
    // Entries other than messages still arrive, and the worker still sends.
    rig.link.write(&ServerEntry::Receipt { handle: Handle(1) });
    assert_eq!(rig.transmitted(), ["RECEIPT"]);
    assert_eq!(rig.worker_writes(&[send("1"), bye("done")]).len(), 2);
    assert!(rig.link.is_ended());
    assert_eq!(rig.transmitted(), ["ack", "close"]);
    assert_eq!(rig.worker.unacknowledged_bytes(), 0);
    assert_eq!(rig.link.aftermath(), Aftermath::default());
}

#[test]
#[should_panic(expected = "MESSAGE after DRAINED")]
fn a_message_after_drained_is_a_bug() {
    let mut rig = Rig::new("drop");
    rig.worker_writes(&[bye("handover")]);
    rig.link.write(&message(1, "late"));
}

#[test]
fn a_worker_that_stops_ends_its_link() {
    let mut rig = Rig::new("drop");
    rig.link.write(&ServerEntry::Receipt { handle: Handle(1) });
    assert_eq!(rig.worker_writes(&[bye("stop"), send("ignored")]), [Event::Ended(End::Stopped)]);
    assert_eq!(rig.transmitted(), ["RECEIPT", "close"]);
    assert_eq!(rig.worker.unacknowledged_bytes(), 0);
}

#[test]
fn a_broken_connection_is_continued_within_its_time() {
    let mut rig = Rig::new("drop");
    rig.link.write(&message(1, "a"));
    rig.transmitted();
    rig.link.write(&message(1, "b"));
    assert!(rig.link.poll_transmit(rig.now).is_some(), "a frame that is lost");
    rig.link.handle_disconnect(rig.now);
    assert!(rig.link.is_lost() && !rig.link.has_room());
    assert!(rig.link.poll_transmit(rig.now).is_none());
    rig.advance(Duration::from_millis(199));
    let hello = Hello::read(hello_frame("one", (None, rig.worker.received()), "drop")).unwrap();
    rig.link.handle_rejoin(&hello, 1, rig.now);
    let again = rig.transmitted();
    assert!(again[0].starts_with(r#"WELCOME {"v":1,"link":3,"resumed":true,"received":0,"#), "{again:?}");
    assert_eq!(again[1..], ["MESSAGE"]);
    // Once more, without a return.
    rig.link.handle_disconnect(rig.now);
    assert_eq!(rig.link.poll_timeout(), Some(rig.now + Duration::from_millis(200)));
    rig.advance(Duration::from_millis(200));
    assert_eq!(rig.link.poll_event(), Some(Event::Ended(End::Lost)));
}

#[test]
fn a_process_that_names_frames_it_cannot_have_is_refused() {
    let mut rig = Rig::new("drop");
    rig.link.handle_disconnect(rig.now);
    let hello = Hello::read(hello_frame("one", (None, 5), "drop")).unwrap();
    rig.link.handle_rejoin(&hello, 1, rig.now);
    assert_eq!(rig.link.poll_event(), Some(Event::Ended(End::Failed(LinkError::Ack { found: 5, last: 0 }))));
}

#[test]
fn a_worker_without_an_answer_is_replaced() {
    let mut rig = Rig::new("drop");
    for _ in 0..5 {
        let at = rig.link.poll_timeout().unwrap();
        rig.advance(at - rig.now);
        assert_eq!(rig.transmitted(), ["ping"]);
        rig.link.handle_pong(rig.now);
    }
    let silent_since = rig.now;
    let mut pings = 0;
    while !rig.link.is_ended() {
        let at = rig.link.poll_timeout().unwrap();
        rig.advance(at - rig.now);
        pings += rig.transmitted().iter().filter(|what| *what == "ping").count();
    }
    assert_eq!((rig.now - silent_since, pings), (Duration::from_secs(30), 2));
    assert_eq!(rig.link.poll_event(), Some(Event::Ended(End::Hung)));
}

/// A frame that isn't acknowledged causes a ping. A worker that answers it responds, whatever its handlers wait for.
#[test]
fn a_worker_responds_while_it_answers_frames_or_pings() {
    let ms = Duration::from_millis;
    let mut rig = Rig::new("drop");
    rig.link.write(&message(1, "a"));
    rig.transmitted();
    rig.advance(ms(99));
    assert_eq!(rig.transmitted(), [""; 0]);
    rig.advance(ms(1));
    assert_eq!((rig.transmitted(), rig.link.responds()), (vec!["ping".to_owned()], true));
    rig.link.handle_pong(rig.now);
    rig.advance(ms(1_000));
    assert_eq!((rig.transmitted(), rig.link.responds()), (vec![], true));
    rig.link.write(&message(1, "b"));
    rig.transmitted();
    // A frame that doesn't acknowledge the last one.
    rig.advance(ms(200));
    let mut early = Exchange::<ServerEntry, WorkerEntry>::default();
    early.write(&send("c"));
    let frame = early.poll_transmit(rig.now).unwrap();
    rig.link.handle_frame(frame.to_bytes(), rig.now);
    while rig.link.poll_event().is_some() {}
    rig.advance(ms(249));
    assert!(rig.link.responds());
    rig.advance(ms(1));
    assert!(!rig.link.responds());
    rig.link.handle_pong(rig.now);
    assert!(rig.link.responds());
}

/// Its heartbeat is there, but it doesn't end its handover.
#[test]
fn a_worker_that_never_leaves_is_replaced() {
    let mut rig = Rig::new("redeliver");
    rig.advance(Duration::from_secs(5));
    rig.worker_writes(&[bye("handover")]);
    let begun = rig.now;
    let mut last = Vec::new();
    for _ in 0..20 {
        if rig.link.is_ended() {
            break;
        }
        let at = rig.link.poll_timeout().unwrap();
        rig.advance(at - rig.now);
        last = rig.transmitted();
        rig.link.handle_pong(rig.now);
    }
    assert_eq!(rig.now - begun, Duration::from_secs(30));
    let error = r#"ERROR {"code":"replaced","message":"the handover hasn't ended for 30s"}"#;
    assert_eq!(last, [error, "close"]);
    assert_eq!(rig.link.poll_event(), Some(Event::Ended(End::Overdue)));
}

#[test]
fn the_policy_decides_about_unacknowledged_messages() {
    let aftermath = |on_crash: &str| {
        let mut rig = Rig::new(on_crash);
        rig.link.write(&message(1, "handled"));
        rig.transmitted();
        rig.worker_writes(&[send("and acknowledged")]);
        rig.link.write(&message(2, "a"));
        rig.link.write(&message(1, "b"));
        assert!(rig.link.poll_transmit(rig.now).is_some(), "a frame that is lost");
        // Not transmitted.
        rig.link.write(&ServerEntry::Release { handle: Handle(3) });
        rig.link.write(&message(2, "c"));
        rig.link.handle_disconnect(rig.now);
        rig.advance(Duration::from_millis(200));
        rig.link.aftermath()
    };
    let (one, two) = (Handle(1), Handle(2));
    assert_eq!(aftermath("disconnect"), Aftermath { closed: vec![one, two], ..Aftermath::default() });
    assert_eq!(aftermath("drop"), Aftermath { dropped: vec![two, one, two], ..Aftermath::default() });
    let redelivered =
        vec![(two, smallvec![text("a")]), (one, smallvec![text("b")]), (two, smallvec![text("c")])];
    assert_eq!(aftermath("redeliver"), Aftermath { redelivered, ..Aftermath::default() });
}
