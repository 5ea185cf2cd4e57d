//! Changes of other workers' sockets, which wait for workers without room.

use crate::workers::Rig;
use crate::{name, names, text};
use smallvec::smallvec;
use std::time::Duration;
use stentor_link::{
    ApplicationOptions, Broadcast, Change, Handle, LinkOptions, Namespace, Select, SelectFlags, ServerEntry,
    Transmit, WorkerEntry,
};

const ROOT: Namespace = Namespace(0);

/// Bytes that a worker may receive because of unfinished changes.
const FOLLOWING: usize = 2_500;

/// An application whose workers have room up to 5,000 bytes, and for [`FOLLOWING`], and its links.
fn started<const N: usize>(instances: [&str; N]) -> (Rig, [u32; N]) {
    let link = LinkOptions { unacknowledged_bytes_max: 10_000, ..LinkOptions::default() };
    let mut rig = Rig::new(ApplicationOptions { link, ..ApplicationOptions::default() });
    let links = instances.map(|instance| rig.start(instance));
    for link in links {
        rig.received(link);
        rig.worker_writes(link, WorkerEntry::Nsp { namespace: ROOT, name: name("/") });
    }
    (rig, links)
}

fn select(is_local: bool) -> WorkerEntry {
    let flags = SelectFlags { is_local, closes: false };
    let (rooms, except, targets) = (names([]), names([]), names(["r"]));
    let select = Select { change: Change::Join, flags, rooms, except, targets };
    WorkerEntry::Select { namespace: ROOT, select }
}

fn broadcast() -> WorkerEntry {
    let broadcast = Broadcast { messages: smallvec![text("2")], ..Broadcast::default() };
    WorkerEntry::Broadcast { namespace: ROOT, broadcast }
}

/// Writes so much to a worker that it has no room.
fn fill(rig: &mut Rig, link: u32) {
    let (change, handles, rooms) = (Change::Join, vec![Handle(1); 1_500], names([]));
    rig.app.write_to_link(link, &ServerEntry::Members { namespace: ROOT, change, handles, rooms }, rig.now);
}

/// A worker acknowledges all.
fn acknowledge(rig: &mut Rig, link: u32) {
    rig.received(link);
    assert_eq!(rig.worker_writes(link, WorkerEntry::Nop {}), "");
}

/// The actions after one change went on. Empty: none did.
fn proceed(rig: &mut Rig) -> String {
    let has_gone_on = rig.app.proceed(FOLLOWING, rig.now).is_some();
    let actions = rig.actions();
    assert_eq!(has_gone_on, !actions.is_empty());
    actions
}

#[test]
fn a_change_waits_for_a_worker_without_room_and_nothing_else_does() {
    let (mut rig, [a, b, c]) = started(["a", "b", "c"]);
    fill(&mut rig, b);
    let held = rig.app.held_bytes();
    rig.workers.get_mut(&a).unwrap().write(&select(false));
    assert_eq!(rig.worker_writes(a, broadcast()), "");
    assert_eq!((rig.app.is_waiting(a), &*proceed(&mut rig)), (true, ""));
    assert!(rig.app.held_bytes() > held, "the frame is held");
    rig.workers.get_mut(&c).unwrap().write(&broadcast());
    let local = rig.worker_writes(c, select(true));
    assert_eq!(local, format!("BROADCAST of link {c}, SELECT of link {c}"));
    acknowledge(&mut rig, b);
    assert_eq!(proceed(&mut rig), format!("SELECT of link {a}, BROADCAST of link {a}"));
    assert_eq!((rig.app.is_waiting(a), &*proceed(&mut rig)), (false, ""));
}

#[test]
fn changes_take_turns() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    for link in [a, b] {
        rig.workers.get_mut(&link).unwrap().write(&select(false));
        assert_eq!(rig.worker_writes(link, select(false)), "");
    }
    for link in [a, b, a, b] {
        assert_eq!(proceed(&mut rig), format!("SELECT of link {link}"));
    }
    assert_eq!(rig.app.waiting_changes(), 0);
}

/// The acknowledgements of a worker may be behind its changes.
#[test]
fn workers_that_wait_for_each_other_go_on() {
    let (mut rig, [a, b, c]) = started(["a", "b", "c"]);
    fill(&mut rig, a);
    fill(&mut rig, b);
    for link in [c, a, b] {
        assert_eq!(rig.worker_writes(link, select(false)), "");
    }
    for link in [a, b] {
        assert_eq!(proceed(&mut rig), format!("SELECT of link {link}"));
        assert_eq!(proceed(&mut rig), "", "it is read now, so the others wait for it");
        acknowledge(&mut rig, link);
    }
    assert_eq!(proceed(&mut rig), format!("SELECT of link {c}"));
}

#[test]
fn a_worker_that_waits_does_not_hang() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    fill(&mut rig, b);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    rig.advance(LinkOptions::default().worker_timeout);
    assert!(rig.app.link(b).is_none_or(|link| link.is_ended()), "it has hung");
    assert_eq!(proceed(&mut rig), format!("SELECT of link {a}"));
}

/// Later entries of a worker can't be read before its change has gone on.
#[test]
fn a_worker_that_leaves_and_waits_is_not_late() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    rig.bye(a, "handover");
    fill(&mut rig, b);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    rig.advance(LinkOptions::default().worker_timeout);
    assert_eq!(proceed(&mut rig), format!("SELECT of link {a}"));
}

/// The worker answers pings.
#[test]
fn no_change_waits_for_a_worker_that_acknowledges_nothing_for_too_long() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    rig.app.write_to_link(b, &ServerEntry::Nop {}, rig.now);
    rig.received(b);
    let seconds = |rig: &mut Rig, count: u64| {
        rig.advance(Duration::from_secs(count));
        rig.app.handle_pong(b, rig.now);
    };
    seconds(&mut rig, 20);
    fill(&mut rig, b);
    // It acknowledges the first frame.
    rig.worker_writes(b, WorkerEntry::Nop {});
    rig.received(b);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    for _ in 0..2 {
        assert_eq!(proceed(&mut rig), "");
        seconds(&mut rig, 15);
    }
    assert!(!rig.app.link(b).unwrap().is_ended());
    assert_eq!(proceed(&mut rig), format!("SELECT of link {a}"));
}

#[test]
fn a_worker_that_waits_is_pinged_and_gets_no_new_sessions_while_another_one_responds() {
    let (mut rig, [a, b, c]) = started(["a", "b", "c"]);
    fill(&mut rig, c);
    rig.received(c);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    assert_eq!(rig.request(1), "Accept 1");
    let sessions = |rig: &Rig| [a, b].map(|link| rig.app.sessions_of(link));
    assert_eq!(sessions(&rig), [1, 0]);
    rig.received(a);
    rig.advance(Duration::from_millis(250));
    let mut transmits = std::iter::from_fn(|| rig.app.poll_transmit(a, rig.now));
    assert!(transmits.any(|transmit| matches!(transmit, Transmit::Ping)));
    for id in 2..6 {
        assert_eq!(rig.request(id), format!("Accept {id}"));
    }
    assert_eq!(sessions(&rig), [1, 4]);
    // Its link is read again.
    acknowledge(&mut rig, c);
    assert_eq!(proceed(&mut rig), format!("SELECT of link {a}"));
    rig.app.handle_pong(a, rig.now);
    rig.request(6);
    rig.request(7);
    assert_eq!(sessions(&rig)[0], 2);
}

#[test]
fn a_frame_that_waits_acknowledges_at_once() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    fill(&mut rig, a);
    rig.received(a);
    fill(&mut rig, b);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    let link = |rig: &Rig| {
        let link = rig.app.link(a).unwrap();
        (link.unacknowledged_bytes(), link.held_bytes() > 6_000)
    };
    assert_eq!(
        link(&rig),
        (0, true),
        "the frames are held until the effects of the one that waits are there"
    );
    fill(&mut rig, a);
    assert!(!rig.app.link(a).unwrap().is_ended());
    acknowledge(&mut rig, b);
    let held = rig.app.held_bytes();
    assert_eq!(proceed(&mut rig), format!("SELECT of link {a}"));
    assert!(rig.app.held_bytes() < held - 6_000);
}

#[test]
fn entries_of_other_workers_leave_room() {
    let (rig, [_, b]) = started(["a", "b"]);
    let link = rig.app.link(b).unwrap();
    let used = link.unacknowledged_bytes();
    assert!(link.has_room_for(7_500 - used) && !link.has_room_for(7_501 - used));
}

#[test]
fn a_change_waits_only_for_what_may_follow() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    fill(&mut rig, b);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    assert_eq!(proceed(&mut rig), "");
    assert_eq!(rig.app.proceed(0, rig.now), Some(a));
    assert_eq!(rig.actions(), format!("SELECT of link {a}"));
}

#[test]
fn a_change_ends_with_its_link() {
    let (mut rig, [a, b]) = started(["a", "b"]);
    assert_eq!(rig.request(1), "Accept 1");
    rig.message(1, "2");
    rig.received(a);
    fill(&mut rig, b);
    assert_eq!(rig.worker_writes(a, select(false)), "");
    rig.app.handle_disconnect(a, rig.now);
    // The worker has acknowledged the message with the frame that waits, so the answer may be lost.
    assert_eq!(rig.advance(Duration::from_millis(200)), "Close 1 Crashed");
    acknowledge(&mut rig, b);
    assert_eq!((rig.app.waiting_changes(), &*proceed(&mut rig)), (0, ""));
}
