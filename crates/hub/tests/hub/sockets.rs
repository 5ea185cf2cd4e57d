//! Features for Socket.IO: emits to several rooms, changes of the format, and sessions that resume. The random test in
//! `model` covers the rules. Tests here are examples, or cases that the model leaves out.

use crate::node::{Node, kept_at_0, room};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stentor_hub::{
    Body, Data, Emit, FormatId, HistoryLimits, Policy, RECOVERY_ENTRY_BYTES, RecoveryLimits, ResumeError,
    Room, Rooms, SessionId, Topic,
};

const NOTHING: [&str; 0] = [];

impl Node {
    /// Makes shards whose log keeps up to `publications_max` short publications for one minute.
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

    /// Takes all deliveries of a session. Returns them, and the last id that its client remembers.
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
}

// Several rooms

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
    // The emitting core isn't the room's home, and doesn't know that the other core has members.
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
    // An emit to this room alone enters its history.
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

// Another format

// Reconnecting

#[test]
fn a_client_receives_missed_messages_once_and_in_order() {
    let mut node = Node::recovering(1, 100);
    let [a, b, c] = ["a", "b", "c"].map(room);
    let session = node.member(0, &[&a, &b]);
    let _all = node.member(0, &[&a, &b, &c]);
    node.publish(0, &a, "1");
    let (_, last) = node.take_last(0, session);
    // One message in flight, and one waiting.
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
fn out_of_order_deliveries_are_never_duplicated() {
    let [news, chat] = ["news", "chat"].map(room);
    // The change to `Latest` keeps only the room's newest message and moves it to the end of the outbox.
    let mut node = Node::recovering(1, 100);
    let session = node.member(0, &[&news, &chat]);
    node.publish(0, &news, "1");
    node.publish(0, &chat, "2");
    node.subscribe(0, session, &news.clone().into(), Policy::Latest);
    let (got, last) = node.take_some(0, session, 1);
    assert_eq!(got, ["2"]);
    node.suspend(0, session);
    assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered));
    // A room with history, and a client that was sent the messages it missed there.
    let mut node = Node::recovering(1, 100);
    let (kept, topic) = kept_at_0();
    let other = node.member(0, &[&kept]);
    node.publish(0, &kept, "0");
    let since = node.position(0, other);
    let session = node.member(0, &[&chat]);
    node.publish(0, &kept, "1");
    node.publish(0, &chat, "2");
    assert_eq!(node.hubs[0].handle_subscribe(session, &topic, Policy::Queue, since), Ok(()));
    let (got, last) = node.take_some(0, session, 9);
    assert_eq!(got, ["2", "1"]);
    node.suspend(0, session);
    for last in [last, None] {
        assert_eq!(node.hubs[0].handle_resume(session, last), Err(ResumeError::NotCovered), "{last:?}");
    }
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

// Messages to one session

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
