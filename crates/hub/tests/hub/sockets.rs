//! What Socket.IO needs, one test per rule: emits to several rooms with exceptions, other formats while a
//! session lives, and sessions that come back after their connection was gone.

use crate::node::{Node, feed_at_0, kept_at_0};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{
    Body, Data, Disconnect, Dispatch, Emit, FeedState, FormatId, HistoryLimits, LogStats, Notice, Policy,
    RECOVERY_ENTRY_BYTES, RecoveryLimits, ResumeError, Room, Rooms, SessionId, Topic,
};

const NOTHING: [&str; 0] = [];

impl Node {
    /// With a log of so many publications, if their bodies are short, for a minute.
    fn recovering(cores: usize, publications_max: usize) -> Self {
        Self::with(cores, |options| {
            let bytes_max = publications_max * (RECOVERY_ENTRY_BYTES + 10);
            options.recovery = Some(RecoveryLimits { bytes_max, age_max: Duration::from_secs(60) });
            options.send_buffer_bytes_max = 100;
        })
    }

    fn member(&mut self, core: usize, rooms: &[&Room]) -> SessionId {
        let session = self.open(core);
        for room in rooms {
            self.subscribe(core, session, &Topic::from((*room).clone()), Policy::Queue);
        }
        session
    }

    fn emit(&mut self, core: usize, rooms: &Rooms, text: &str, how: Emit) {
        let data = Data::Text(Bytes::from(text.to_owned()));
        self.hubs[core].handle_emit(self.now, rooms, None, data, how);
    }

    fn publish_how(&mut self, core: usize, room: &Room, text: &str, how: Emit) {
        self.emit(core, &room.clone().into(), text, how);
    }

    /// What a session gets if it takes all, and the id that its client remembers after it.
    fn take_last(&mut self, core: usize, session: SessionId) -> (Vec<String>, Option<u64>) {
        self.take_some(core, session, usize::MAX)
    }

    fn take_some(&mut self, core: usize, session: SessionId, max: usize) -> (Vec<String>, Option<u64>) {
        let (mut got, mut last) = (Vec::new(), None);
        self.hubs[core].take(session, usize::MAX, max, |publication, frame| {
            got.push(frame.0.to_string());
            if publication.is_recoverable() {
                last = Some(publication.id());
            }
        });
        self.hubs[core].handle_sent(session);
        (got, last)
    }

    fn suspend(&mut self, core: usize, session: SessionId) {
        assert!(self.hubs[core].handle_suspend(session));
        assert!(self.hubs[core].counters().balanced());
    }

    /// The connection is gone and back at once.
    fn blink(&mut self, core: usize, session: SessionId, last: Option<u64>) {
        self.suspend(core, session);
        assert_eq!(self.hubs[core].handle_resume(session, last), Ok(()));
    }
}

fn room(name: &str) -> Room {
    Room::plain(name).unwrap()
}

fn rooms<const N: usize>(names: [&str; N]) -> Rooms {
    Rooms::new("/", names).unwrap()
}

// ---- several rooms ----

#[test]
fn an_emit_to_several_rooms_reaches_each_core_and_each_session_once() {
    let mut node = Node::new(3);
    let [a, b, c] = ["a", "b", "c"].map(room);
    let here = node.member(0, &[&a, &b]);
    let [one, two, none] = [node.member(1, &[&b, &a]), node.member(1, &[&b]), node.member(1, &[&c])];
    let elsewhere = node.member(2, &[&c]);
    node.run_until_idle();
    node.emit(0, &rooms(["a", "b", "a"]), "hello", Emit::default());
    assert_eq!(node.hubs[0].outgoing(1).len(), 1);
    assert_eq!(node.hubs[0].outgoing(2).len(), 0, "nobody there is interested");
    node.run_until_idle();
    assert_eq!(node.take(0, here), ["hello"]);
    assert_eq!(node.take(1, one), ["hello"]);
    assert_eq!(node.take(1, two), ["hello"]);
    assert_eq!(node.take(1, none), NOTHING);
    assert_eq!(node.take(2, elsewhere), NOTHING);
    assert_eq!(node.hubs[1].counters().due, 2);
}

#[test]
fn exceptions_apply_on_all_cores() {
    for names in [&["a"][..], &["a", "b"]] {
        let mut node = Node::new(2);
        let [a, b, not] = ["a", "b", "not"].map(room);
        let [sender, other] = [node.member(0, &[&a, &b]), node.member(0, &[&a])];
        let [named, member, left] =
            [node.member(1, &[&a]), node.member(1, &[&not, &a]), node.member(1, &[&a])];
        node.subscribe(1, left, &not.clone().into(), Policy::Queue);
        assert!(node.hubs[1].handle_unsubscribe(left, &not.clone().into()));
        node.run_until_idle();
        // A room that nobody knows and a session of another core with the same number make no difference.
        let how = Emit::default().except_session(0, sender).except_session(1, named).except_room(not);
        let how = how.except_room(room("unknown")).except_session(1, sender);
        assert_eq!(sender, named, "numbered alike");
        let names = Rooms::new("/", names.iter().copied()).unwrap();
        node.emit(0, &names, "hello", how);
        node.run_until_idle();
        let got: Vec<_> = [(0, sender), (0, other), (1, named), (1, member), (1, left)]
            .map(|(core, session)| node.take(core, session).len())
            .into();
        assert_eq!(got, [0, 1, 0, 0, 1], "{names:?}");
    }
}

#[test]
fn an_exception_doesnt_apply_to_a_reused_slot() {
    let mut node = Node::new(1);
    let chat = room("chat");
    let gone = node.member(0, &[&chat]);
    let other = node.member(0, &[&chat]);
    node.hubs[0].handle_close(gone);
    let successor = node.member(0, &[&chat]);
    node.publish_how(0, &chat, "one", Emit::default().except_session(0, gone));
    let how = Emit::default().except_session(0, gone).except_session(0, other);
    node.publish_how(0, &chat, "two", how);
    assert_eq!(node.take(0, successor), ["one", "two"]);
    assert_eq!(node.take(0, other), ["one"]);
}

#[test]
fn an_emit_to_several_rooms_enters_no_history() {
    let mut node = Node::new(2);
    let (kept, topic) = kept_at_0();
    let plain = room("plain");
    let follower = node.member(1, &[&kept]);
    let home = node.member(0, &[&kept]);
    node.run_until_idle();
    node.publish(1, &kept, "first");
    node.run_until_idle();
    let since = node.position(0, home);
    // From a core that isn't home, and to a core whose interest it can't know.
    let names = Rooms::new("/", [plain.name(), kept.name()]).unwrap();
    node.emit(1, &names, "to both", Emit::default());
    node.run_until_idle();
    let mut positions = Vec::new();
    node.hubs[0].take(home, 999, 9, |publication, _| {
        let Body::Message { room, position, .. } = publication.body() else { unreachable!() };
        positions.push((room.clone(), *position));
    });
    assert_eq!(positions, [(plain, None)]);
    assert_eq!(node.take(1, follower), ["first", "to both"]);
    let later = node.open(0);
    assert_eq!(node.hubs[0].handle_subscribe(later, &topic, Policy::Queue, since), Ok(()));
    assert_eq!(node.take(0, later), NOTHING);
    // Alone it is kept, also through this call.
    node.emit(1, &kept.clone().into(), "alone", Emit::default());
    node.run_until_idle();
    let later = node.open(0);
    assert_eq!(node.hubs[0].handle_subscribe(later, &topic, Policy::Queue, since), Ok(()));
    assert_eq!(node.take(0, later), ["alone"]);
}

#[test]
fn the_room_of_all_members_has_no_history() {
    let all = HistoryLimits { publications_max: 9, bytes_max: 999, age_max: Duration::from_secs(9) };
    let mut node = Node::with(2, |options| options.room_history = vec![(String::new(), all)]);
    let everybody = Room::all_members("/n").unwrap();
    assert_eq!(node.hubs[0].home_of(&everybody.clone().into()), None);
    assert!(node.hubs[0].home_of(&room("any").into()).is_some());
    let [one, two] = [node.member(0, &[&everybody]), node.member(1, &[&everybody])];
    let other = node.member(1, &[&Room::all_members("/").unwrap()]);
    node.run_until_idle();
    node.publish(0, &everybody, "all");
    node.run_until_idle();
    assert_eq!([node.take(0, one), node.take(1, two)], [["all"], ["all"]]);
    assert_eq!(node.take(1, other), NOTHING);
}

#[test]
fn arguments_and_their_attachments_count() {
    let mut node = Node::new(1);
    let chat = room("chat");
    let session = node.member(0, &[&chat]);
    let attachments: Arc<[Bytes]> = [Bytes::from_static(b"abc")].into();
    let data = Data::Arguments { json: Bytes::from_static(b"1,2"), attachments };
    node.hubs[0].handle_emit(node.now, &chat.into(), Some("e".into()), data, Emit::default());
    let mut lens = Vec::new();
    node.hubs[0].take(session, 999, 9, |publication, _| lens.push(publication.body().len()));
    assert_eq!(lens, [7], "with the event's name");
}

// ---- another format ----

#[test]
fn pending_deliveries_are_counted_again_in_the_new_format() {
    let mut node = Node::with(1, |options| options.send_buffer_bytes_max = 20);
    let [must, may] = ["must", "may"].map(room);
    let session = node.member(0, &[&must]);
    node.subscribe(0, session, &may.clone().into(), Policy::DropOldest);
    node.publish(0, &must, "sent");
    node.hubs[0].take(session, 1, 1, |_, _| {});
    for (room, text) in [(&may, "1"), (&must, "2"), (&may, "3"), (&must, "4")] {
        node.publish(0, room, text);
    }
    assert_eq!(node.hubs[0].pending_bytes(), 4 + 4);
    node.hubs[0].set_format(session, FormatId(1));
    // What is in flight left in the old format.
    assert_eq!(node.hubs[0].pending_bytes(), 4 + 4 * 4);
    assert_eq!(node.hubs[0].counters().pending, 5);
    // The third would be one byte too many.
    node.publish(0, &must, "5");
    assert_eq!(node.take(0, session), ["2", "3", "4", "5"]);
    assert_eq!((node.hubs[0].counters().dropped, node.hubs[0].pending_bytes()), (1, 0));
}

#[test]
fn exceeding_the_send_buffer_in_the_new_format_ends_the_session() {
    let mut node = Node::with(1, |options| options.send_buffer_bytes_max = 7);
    let chat = room("chat");
    let session = node.member(0, &[&chat]);
    for text in ["1", "2", "3"] {
        node.publish(0, &chat, text);
    }
    node.hubs[0].set_format(session, FormatId(1));
    assert_eq!(node.hubs[0].poll_terminating(), Some((session, 0, Disconnect::SlowConsumer)));
    let counters = node.hubs[0].counters();
    assert!(counters.balanced() && (counters.pending, counters.dropped_on_disconnect) == (1, 2));
    // Who has to end keeps nothing that wasn't said in its format.
    node.hubs[0].set_format(session, FormatId(0));
    let counters = node.hubs[0].counters();
    assert!(counters.balanced() && (counters.pending, counters.dropped_on_disconnect) == (0, 3));
}

#[test]
fn deliveries_that_the_new_format_doesnt_support_are_dropped() {
    for policy in [Policy::Latest, Policy::Queue] {
        let mut node = Node::new(1);
        let (key, feed) = feed_at_0();
        let chat = room("chat");
        let session = node.open(0);
        node.subscribe(0, session, &feed, policy);
        node.subscribe(0, session, &chat.clone().into(), Policy::Queue);
        node.document(&key, "one", FeedState::Live);
        node.publish(0, &chat, "hello");
        node.state(&key, FeedState::Stale, "why");
        assert_eq!(node.hubs[0].poll_ready(), Some((session, 0)));
        node.hubs[0].set_format(session, FormatId(2));
        assert_eq!(node.hubs[0].counters().dropped_on_disconnect, 1);
        assert_eq!(node.hubs[0].poll_ready(), Some((session, 0)), "something else waits now");
        assert_eq!(node.take(0, session), ["doc one live", "hello"]);
    }
}

// ---- coming back ----

#[test]
fn a_client_gets_what_it_missed_once_and_in_order() {
    let mut node = Node::recovering(1, 100);
    let [a, b, c] = ["a", "b", "c"].map(room);
    let session = node.member(0, &[&a, &b]);
    let _all = node.member(0, &[&a, &b, &c]);
    node.publish(0, &a, "1");
    let (_, last) = node.take_last(0, session);
    // In flight, and waiting.
    node.publish(0, &b, "2");
    node.hubs[0].take(session, 1, 1, |_, _| {});
    node.publish(0, &a, "3");
    let abandoned = node.hubs[0].counters().dropped_on_disconnect;
    node.suspend(0, session);
    assert_eq!(node.hubs[0].counters().dropped_on_disconnect - abandoned, 2);
    let before = node.hubs[0].counters();
    node.publish(0, &b, "4");
    node.publish(0, &c, "not its");
    node.publish_volatile(0, &a, "now");
    node.publish(0, &a, "5");
    assert!(!node.hubs[0].has_pending(session));
    assert_eq!(node.hubs[0].counters().due - before.due, 4, "for the other one");
    assert_eq!(node.hubs[0].suspended(), 1);
    assert_eq!(node.hubs[0].handle_resume(session, last), Ok(()));
    assert_eq!(node.hubs[0].suspended(), 0);
    node.publish(0, &a, "6");
    assert_eq!(node.take(0, session), ["2", "3", "4", "5", "6"]);
}

#[test]
fn a_client_without_an_event_resumes_too() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let early = node.member(0, &[&a]);
    node.publish(0, &a, "before");
    let session = node.member(0, &[&a]);
    node.blink(0, session, None);
    assert_eq!(node.take(0, session), NOTHING);
    node.suspend(0, session);
    node.publish(0, &a, "1");
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    // This never arrived either.
    assert_eq!(node.take(0, session), ["1"]);
    node.suspend(0, session);
    node.publish(0, &a, "2");
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    assert_eq!(node.take(0, session), ["1", "2"]);
    assert_eq!(node.take(0, early), ["before", "1", "2"]);
}

#[test]
fn a_session_resumes_twice_in_a_row() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    node.publish(0, &a, "1");
    let (_, last) = node.take_last(0, session);
    node.suspend(0, session);
    node.publish(0, &a, "2");
    node.publish(0, &a, "3");
    assert_eq!(node.hubs[0].handle_resume(session, last), Ok(()));
    // Only the first of both arrives, before it is gone again.
    let (got, second) = node.take_some(0, session, 1);
    assert_eq!(got, ["2"]);
    node.suspend(0, session);
    node.publish(0, &a, "4");
    assert_eq!(node.hubs[0].handle_resume(session, second), Ok(()));
    assert_eq!(node.take(0, session), ["3", "4"]);
    // Nothing arrived, and nothing new came.
    node.blink(0, session, second);
    let (got, third) = node.take_last(0, session);
    assert_eq!(got, ["3", "4"]);
    node.blink(0, session, third);
    assert_eq!(node.take(0, session), NOTHING);
}

#[test]
fn publications_in_transit_between_cores_arrive_once() {
    // The publication arrives before the connection is gone, while it is, or when it is back.
    for arrives in 0..3 {
        let mut node = Node::recovering(2, 100);
        let [a, b] = ["a", "b"].map(room);
        let session = node.member(1, &[&a, &b]);
        node.run_until_idle();
        node.publish(0, &a, "1");
        node.pass(0, 1);
        let (_, last) = node.take_last(1, session);
        node.publish(0, &a, "2");
        node.emit(0, &rooms(["b", "a"]), "3", Emit::default());
        let both = |node: &mut Node| (0..2).for_each(|_| node.pass(0, 1));
        if arrives == 0 {
            both(&mut node);
        }
        node.suspend(1, session);
        if arrives == 1 {
            both(&mut node);
        }
        node.publish(1, &b, "own");
        assert_eq!(node.hubs[1].handle_resume(session, last), Ok(()));
        if arrives == 2 {
            both(&mut node);
        }
        let expect = if arrives == 2 { ["own", "2", "3"] } else { ["2", "3", "own"] };
        assert_eq!(node.take(1, session), expect);
    }
}

#[test]
fn exceptions_apply_to_resumed_sessions() {
    let mut node = Node::recovering(1, 100);
    let [a, b, not] = ["a", "b", "not"].map(room);
    let session = node.member(0, &[&a]);
    let other = node.member(0, &[&a, &b, &not]);
    node.suspend(0, session);
    node.suspend(0, other);
    node.publish_how(0, &a, "not to one", Emit::default().except_session(0, session));
    let both = Emit::default().except_session(0, session).except_session(0, other);
    node.publish_how(0, &a, "to nobody", both);
    node.emit(0, &rooms(["a", "b"]), "not to members", Emit::default().except_room(not));
    node.emit(0, &rooms(["b", "a"]), "to both", Emit::default());
    for (who, expect) in [(session, ["not to members", "to both"]), (other, ["not to one", "to both"])] {
        assert_eq!(node.hubs[0].handle_resume(who, None), Ok(()));
        assert_eq!(node.take(0, who), expect);
    }
}

#[test]
fn a_resumed_session_gets_only_what_was_sent_during_its_memberships() {
    let mut node = Node::recovering(1, 100);
    let [a, later, left] = ["a", "later", "left"].map(room);
    let _keeps_them_alive = node.member(0, &[&later, &left]);
    let session = node.member(0, &[&a, &left]);
    node.publish(0, &a, "1");
    let (_, last) = node.take_last(0, session);
    node.publish(0, &later, "too early");
    node.publish(0, &left, "given up");
    node.suspend(0, session);
    // Rooms change while it is away, and a slot is used again.
    assert!(node.hubs[0].handle_unsubscribe(session, &left.clone().into()));
    node.publish(0, &later, "too early too");
    node.subscribe(0, session, &later.clone().into(), Policy::Queue);
    node.publish(0, &left, "too late");
    node.publish(0, &later, "2");
    assert_eq!(node.hubs[0].handle_resume(session, last), Ok(()));
    assert_eq!(node.take(0, session), ["2"]);
}

#[test]
fn a_reused_topic_number_isnt_taken_for_the_older_topic() {
    let mut node = Node::recovering(1, 100);
    let [old, new, other] = ["old", "new", "other"].map(room);
    let session = node.member(0, &[&other]);
    let brief = node.member(0, &[&old]);
    node.publish(0, &old, "old");
    node.hubs[0].handle_close(brief);
    node.subscribe(0, session, &new.clone().into(), Policy::Queue);
    node.publish(0, &new, "new");
    node.blink(0, session, None);
    assert_eq!(node.take(0, session), ["new"]);
}

#[test]
fn sessions_of_quiet_rooms_resume_on_busy_servers() {
    let mut node = Node::recovering(1, 3);
    let [quiet, busy] = ["quiet", "busy"].map(room);
    let [one, none, late] = [(); 3].map(|()| node.member(0, &[&quiet]));
    let _hears_it_all = node.member(0, &[&busy]);
    assert!(node.hubs[0].handle_unsubscribe(none, &quiet.clone().into()));
    node.publish(0, &quiet, "1");
    let (_, last) = node.take_last(0, one);
    assert_eq!(node.take(0, late), ["1"]);
    for _ in 0..5 {
        node.publish(0, &busy, "much");
    }
    for session in [one, none, late] {
        node.suspend(0, session);
    }
    node.publish(0, &busy, "more");
    node.publish(0, &quiet, "2");
    assert_eq!(node.hubs[0].handle_resume(one, last), Ok(()));
    assert_eq!(node.take(0, one), ["2"]);
    assert_eq!(node.hubs[0].handle_resume(none, None), Ok(()));
    // It says that it had nothing, so it missed what is gone.
    assert_eq!(node.hubs[0].handle_resume(late, None), Err(ResumeError::NotCovered));
}

#[test]
fn what_the_log_doesnt_cover_is_refused() {
    fn check(what: &str, loses: impl Fn(&mut Node, &Room), figures: LogStats) {
        let mut node = Node::recovering(1, 3);
        let a = room("a");
        let session = node.member(0, &[&a]);
        node.publish(0, &a, "1");
        let (_, last) = node.take_last(0, session);
        node.publish(0, &a, "2");
        node.suspend(0, session);
        loses(&mut node, &a);
        assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered), "{what}");
        assert_eq!(node.hubs[0].handle_resume(session, None), Err(ResumeError::NotCovered), "{what}");
        let got = node.hubs[0].log_stats();
        assert_eq!((got.expired, got.evicted), (figures.expired, figures.evicted), "{what}");
        assert_eq!(node.hubs[0].suspended(), 1, "{what}: it waits to be closed");
        node.hubs[0].handle_close(session);
        assert_eq!((node.hubs[0].suspended(), node.hubs[0].sessions()), (0, 0), "{what}");
    }
    let bytes = |node: &mut Node, a: &Room| (0..3).for_each(|_| node.publish(0, a, "more"));
    check("bytes", bytes, LogStats { evicted: 2, ..LogStats::default() });
    let age = |node: &mut Node, _: &Room| {
        node.now += Duration::from_secs(61);
        node.hubs[0].handle_tick(node.now);
    };
    check("age", age, LogStats { expired: 2, ..LogStats::default() });
    let overload = |node: &mut Node, _: &Room| {
        assert_eq!(node.hubs[0].handle_overload(RECOVERY_ENTRY_BYTES), RECOVERY_ENTRY_BYTES + 1);
    };
    check("overload", overload, LogStats { evicted: 1, ..LogStats::default() });
}

#[test]
fn a_publication_that_the_session_was_never_sent_is_refused() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let other = node.member(0, &[&a]);
    node.publish(0, &a, "before");
    let (_, before) = node.take_last(0, other);
    let session = node.member(0, &[&a]);
    node.publish(0, &a, "1");
    let mut volatile = None;
    node.publish_volatile(0, &a, "now");
    assert_eq!(node.take(0, session), ["1"]);
    node.publish_volatile(0, &a, "now");
    node.hubs[0].take(session, 999, 9, |publication, _| {
        assert!(!publication.is_recoverable());
        volatile = Some(publication.id());
    });
    assert!(volatile.is_some());
    node.suspend(0, session);
    for last in [before, volatile, Some(0), Some(12345)] {
        assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered), "{last:?}");
    }
}

#[test]
fn missing_more_than_the_send_buffer_is_refused() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    node.suspend(0, session);
    node.publish(0, &a, &"x".repeat(100));
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    node.suspend(0, session);
    node.publish(0, &a, "x");
    assert_eq!(node.hubs[0].handle_resume(session, None), Err(ResumeError::TooMuch));
    // Under a policy that may leave something out, it does.
    node.subscribe(0, session, &a.into(), Policy::DropOldest);
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    assert_eq!(node.take(0, session), ["x"]);
    assert_eq!(node.hubs[0].poll_terminating(), None);
}

#[test]
fn nothing_is_duplicated_where_the_order_isnt_the_logs() {
    // A room under `Latest`: the newest leaves at the place of an older one.
    let mut node = Node::recovering(1, 100);
    let [news, chat] = ["news", "chat"].map(room);
    let session = node.member(0, &[&chat]);
    node.subscribe(0, session, &news.clone().into(), Policy::Latest);
    for (room, text) in [(&news, "1"), (&chat, "2"), (&news, "3")] {
        node.publish(0, room, text);
    }
    let (got, first) = node.take_some(0, session, 1);
    assert_eq!(got, ["3"]);
    let (got, second) = node.take_last(0, session);
    assert_eq!(got, ["2"]);
    node.suspend(0, session);
    for last in [None, first, second] {
        assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered));
    }
    // What waited there wasn't recoverable itself.
    let mut node = Node::recovering(1, 100);
    let session = node.member(0, &[&chat]);
    node.subscribe(0, session, &news.clone().into(), Policy::Latest);
    node.publish_volatile(0, &news, "1");
    node.publish(0, &chat, "2");
    node.publish(0, &news, "3");
    let (got, last) = node.take_some(0, session, 1);
    assert_eq!(got, ["3"]);
    node.suspend(0, session);
    assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered));
    // A change of policy leaves only the newest, at the end.
    let mut node = Node::recovering(1, 100);
    let session = node.member(0, &[&news, &chat]);
    node.publish(0, &news, "1");
    node.publish(0, &chat, "2");
    node.subscribe(0, session, &news.clone().into(), Policy::Latest);
    let (got, last) = node.take_some(0, session, 1);
    assert_eq!(got, ["2"]);
    node.suspend(0, session);
    assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered));
    // A room with history, and a client that was told what it missed there.
    let mut node = Node::recovering(1, 100);
    let (kept, topic) = kept_at_0();
    let other = node.member(0, &[&kept]);
    node.publish(0, &kept, "0");
    let since = node.position(0, other);
    let session = node.member(0, &[&chat]);
    node.publish(0, &kept, "1");
    node.publish(0, &chat, "2");
    assert_eq!(node.hubs[0].handle_subscribe(session, &topic, Policy::Queue, since), Ok(()));
    let (got, last) = node.take_last(0, session);
    assert_eq!(got, ["2", "1"]);
    node.suspend(0, session);
    assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered));
    assert_eq!(node.hubs[0].handle_resume(session, None), Err(ResumeError::NotCovered));
}

#[test]
fn later_publications_are_in_order_again() {
    let mut node = Node::recovering(1, 100);
    let [news, chat] = ["news", "chat"].map(room);
    let session = node.member(0, &[&chat]);
    node.subscribe(0, session, &news.clone().into(), Policy::Latest);
    for (room, text) in [(&news, "1"), (&news, "2"), (&chat, "3"), (&chat, "4")] {
        node.publish(0, room, text);
    }
    let (got, last) = node.take_some(0, session, 2);
    assert_eq!(got, ["2", "3"]);
    node.blink(0, session, last);
    assert_eq!(node.take(0, session), ["4"]);
}

#[test]
fn a_suspended_session_gets_the_newest_of_its_feeds_when_it_resumes() {
    let mut node = Node::recovering(2, 100);
    let (key, feed) = feed_at_0();
    let session = node.open(1);
    node.subscribe(1, session, &feed, Policy::Latest);
    node.run_until_idle();
    node.document(&key, "one", FeedState::Live);
    node.run_until_idle();
    assert_eq!(node.take(1, session), ["doc one live"]);
    node.suspend(1, session);
    node.document(&key, "two", FeedState::Live);
    node.state(&key, FeedState::Stale, "why");
    node.run_until_idle();
    assert_eq!(node.hubs[1].counters().pending, 0);
    assert_eq!(node.hubs[1].handle_resume(session, None), Ok(()));
    assert_eq!(node.take(1, session), ["doc two live", "stale why"]);
    assert_eq!(node.hubs[1].log_stats(), LogStats::default(), "feeds aren't in the log");
}

#[test]
fn notices_wait_for_a_suspended_session() {
    let mut node = Node::recovering(1, 100);
    let (key, feed) = feed_at_0();
    let [session, other] = [node.open(0), node.open(0)];
    node.subscribe(0, session, &feed, Policy::Latest);
    node.subscribe(0, other, &feed, Policy::Latest);
    node.suspend(0, session);
    node.state(&key, FeedState::NotFound, "gone");
    assert_eq!(node.hubs[0].poll_notice(), Some(Notice::NotFound { session: other, key: key.clone() }));
    assert_eq!(node.hubs[0].poll_notice(), None);
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    assert_eq!(node.hubs[0].poll_notice(), Some(Notice::NotFound { session, key }));
    assert_eq!(node.hubs[0].poll_notice(), None);
}

#[test]
fn a_new_connection_may_have_another_format() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    node.suspend(0, session);
    node.publish(0, &a, "1");
    node.hubs[0].set_format(session, FormatId(1));
    assert_eq!(node.hubs[0].poll_ready(), None);
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    assert_eq!(node.hubs[0].poll_ready(), Some((session, 0)));
    assert_eq!(node.hubs[0].pending_bytes(), 4);
    assert_eq!(node.take(0, session), ["1"]);
}

#[test]
fn suspended_sessions_are_not_polled() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    node.publish(0, &a, "1");
    node.suspend(0, session);
    assert_eq!(node.hubs[0].poll_ready(), None);
    assert_eq!(node.take(0, session), NOTHING);
    assert_eq!(node.hubs[0].handle_overload(usize::MAX), RECOVERY_ENTRY_BYTES + 1, "it holds nothing");
    assert_eq!(node.hubs[0].poll_terminating(), None);
}

#[test]
fn only_open_sessions_are_suspended_and_only_suspended_ones_resume() {
    let mut node = Node::new(1);
    let session = node.open(0);
    assert!(!node.hubs[0].handle_suspend(session), "recovery is off");
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    assert_eq!(node.hubs[0].handle_resume(session, None), Err(ResumeError::NotSuspended));
    node.suspend(0, session);
    assert!(node.hubs[0].handle_suspend(session), "it is");
    node.publish(0, &a, "1");
    assert!(node.hubs[0].handle_suspend(session), "it is since then");
    assert_eq!(node.hubs[0].handle_resume(session, None), Ok(()));
    assert_eq!(node.take(0, session), ["1"]);
    for _ in 0..2 {
        node.publish(0, &a, &"x".repeat(60));
    }
    assert_eq!(node.hubs[0].poll_terminating(), Some((session, 0, Disconnect::SlowConsumer)));
    assert!(!node.hubs[0].handle_suspend(session), "it has to end");
    node.hubs[0].handle_close(session);
    assert!(!node.hubs[0].handle_suspend(session), "it is gone");
    assert_eq!(node.hubs[0].handle_resume(session, None), Err(ResumeError::NotSuspended));
}

#[test]
fn the_log_charges_live_bytes_and_releases_them() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    node.publish(0, &a, "12345");
    assert_eq!(node.take(0, session), ["12345"]);
    let figures = node.hubs[0].log_stats();
    assert_eq!((figures.publications, figures.bytes), (1, RECOVERY_ENTRY_BYTES + 5));
    assert!(node.live.bytes() > 5);
    node.hubs[0].handle_close(session);
    node.publish(0, &a, "for nobody");
    assert_eq!(node.hubs[0].log_stats(), figures);
    node.hubs[0].handle_overload(1);
    assert_eq!((node.hubs[0].log_stats().publications, node.live.bytes()), (0, 0));
}

#[test]
fn ids_differ_between_cores_and_are_kept_in_transit() {
    let mut node = Node::recovering(2, 100);
    let a = room("a");
    let session = node.member(0, &[&a]);
    node.run_until_idle();
    let mut ids = Vec::new();
    for core in [0, 1, 0, 1] {
        node.publish(core, &a, "x");
        if let Some(Dispatch::Publish(_, publication, _)) = node.hubs[1].outgoing(0).messages().next() {
            ids.push(publication.id());
        }
        node.run_until_idle();
    }
    let mut taken = Vec::new();
    node.hubs[0].take(session, 999, 9, |publication, _| taken.push(publication.id()));
    assert_eq!([taken[1], taken[3]], ids[..]);
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 4);
}

// ---- what is sent to one session ----

impl Node {
    fn send(&mut self, core: usize, session: SessionId, text: &str) {
        let data = Data::Text(Bytes::from(text.to_owned()));
        let room = Room::all_members("/").unwrap();
        self.hubs[core].handle_send(self.now, &[session], &room, None, data, false);
    }
}

#[test]
fn a_message_to_one_session_arrives_in_order_and_only_there() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let [one, other] = [node.member(0, &[&a]), node.member(0, &[&a])];
    node.publish(0, &a, "1");
    node.send(0, one, "2");
    node.publish(0, &a, "3");
    node.send(0, one, "4");
    assert_eq!(node.hubs[0].pending_bytes_of(one), 4);
    assert_eq!(node.take(0, one), ["1", "2", "3", "4"]);
    assert_eq!(node.take(0, other), ["1", "3"]);
    node.hubs[0].handle_close(one);
    node.send(0, one, "nobody is there");
    assert!(node.hubs[0].counters().balanced());
}

#[test]
fn a_message_to_one_session_is_recovered_in_order() {
    let mut node = Node::recovering(1, 100);
    let a = room("a");
    let [one, other] = [node.member(0, &[&a]), node.member(0, &[&a])];
    node.send(0, one, "1");
    let (got, last) = node.take_last(0, one);
    assert_eq!(got, ["1"]);
    // Owed and never taken, missed, and sent while nobody was there: each once, in order.
    node.publish(0, &a, "2");
    node.send(0, one, "3");
    node.suspend(0, one);
    node.send(0, other, "not for you");
    node.send(0, one, "4");
    node.publish(0, &a, "5");
    assert_eq!(node.hubs[0].handle_resume(one, last), Ok(()));
    let (got, last) = node.take_last(0, one);
    assert_eq!(got, ["2", "3", "4", "5"]);
    // Its own id is a place to come back to.
    node.send(0, one, "6");
    let (got, sixth) = node.take_last(0, one);
    assert_eq!(got, ["6"]);
    node.blink(0, one, last);
    assert_eq!(node.take(0, one), ["6"]);
    node.blink(0, one, sixth);
    assert_eq!(node.take(0, one), NOTHING);
}

#[test]
fn a_message_to_one_session_stays_in_its_budget_and_takes_no_subscription() {
    let mut node = Node::with(1, |options| {
        options.send_buffer_bytes_max = 100;
        options.subscriptions_max = 1;
    });
    let session = node.open(0);
    node.send(0, session, &"x".repeat(60));
    // What waits for it alone doesn't count as a topic.
    node.subscribe(0, session, &room("a").into(), Policy::Queue);
    node.send(0, session, &"x".repeat(40));
    assert_eq!(node.hubs[0].pending_bytes_of(session), 100);
    assert!(!node.hubs[0].is_in_flight(session));
    node.hubs[0].take(session, usize::MAX, 1, |_, _| {});
    assert!(node.hubs[0].is_in_flight(session));
    node.send(0, session, "x");
    assert_eq!(
        node.hubs[0].poll_terminating().map(|(who, _, why)| (who, why)),
        Some((session, Disconnect::SlowConsumer))
    );
    assert!(node.hubs[0].counters().balanced());
}
