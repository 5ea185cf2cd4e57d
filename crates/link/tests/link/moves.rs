//! Moves of sessions to workers that have joined.

use crate::workers::Rig;
use crate::{hello_frame, json, name};
use std::collections::BTreeMap;
use std::time::Duration;
use stentor_link::{
    ApplicationOptions, Handle, Hello, LinkOptions, MOVES_MAX, Namespace, SessionId, WorkerEntry,
};

fn released(handle: u32) -> WorkerEntry {
    WorkerEntry::Released { handle: Handle(handle), namespace: Namespace::END, data: None }
}

/// A worker with this number of sessions, whose handles are the sessions' numbers.
fn with_sessions(count: u64) -> (Rig, u32) {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    for id in 1..=count {
        rig.request(id);
    }
    rig.received(a);
    rig.worker_writes(a, WorkerEntry::Nop {});
    (rig, a)
}

/// Workers give back what they are asked for, and the data plane describes it, until nothing moves. Returns the numbers of RELEASE and
/// RESUME of each worker.
fn run_moves(rig: &mut Rig) -> BTreeMap<u32, (usize, usize)> {
    let mut counts: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    let links: Vec<u32> = rig.workers.keys().copied().collect();
    loop {
        let mut is_over = true;
        for link in &links {
            let count = counts.entry(*link).or_default();
            for entry in rig.received(*link).split(", ") {
                if let Some(handle) = entry.strip_prefix("RELEASE ") {
                    (is_over, count.0) = (false, count.0 + 1);
                    let actions = rig.worker_writes(*link, released(handle.parse().unwrap()));
                    describe(rig, &actions);
                }
                count.1 += usize::from(entry.starts_with("RESUME"));
            }
        }
        if is_over {
            return counts;
        }
    }
}

/// Answers `Describe 1 as 2`.
fn describe(rig: &mut Rig, actions: &str) {
    for action in actions.split(", ").filter(|action| !action.is_empty()) {
        let words: Vec<&str> = action.split(' ').collect();
        let ["Describe", id, "as", handle] = words[..] else { panic!("{action}") };
        let (id, handle) = (SessionId(id.parse().unwrap()), Handle(handle.parse().unwrap()));
        rig.app.handle_description(id, handle, json("{}"), rig.now);
    }
    assert_eq!(rig.actions(), "");
}

#[test]
fn a_worker_that_joins_gets_its_share() {
    let (mut rig, a) = with_sessions(7);
    let b = rig.start("b");
    assert_eq!(rig.received(a), "PEERS 2, RELEASE 1, RELEASE 2, RELEASE 3");
    (1..=3).for_each(|handle| {
        let actions = rig.worker_writes(a, released(handle));
        assert_eq!(actions, format!("Describe {handle} as {handle}"));
        describe(&mut rig, &actions);
    });
    assert_eq!(rig.received(b), "WELCOME, PEERS 2, RESUME 1, RESUME 2, RESUME 3");
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b), rig.app.moves()), (4, 3, 0));
    // No more sessions than needed move: one of `a` and one of `b`.
    let c = rig.start("c");
    assert_eq!(run_moves(&mut rig), BTreeMap::from([(a, (1, 0)), (b, (1, 0)), (c, (0, 2))]));
    assert_eq!(rig.app.stats().sessions_moved, 5);
    // Clients that leave cause no moves.
    for id in [4, 5, 6] {
        rig.app.handle_closed(SessionId(id), name("transport close"), None, rig.now);
    }
    assert_eq!(run_moves(&mut rig).into_values().map(|(released, _)| released).sum::<usize>(), 0);
}

#[test]
fn a_bounded_number_of_sessions_moves_at_a_time() {
    let (mut rig, a) = with_sessions(4 * MOVES_MAX as u64);
    let b = rig.start("b");
    let releases = rig.received(a).matches("RELEASE").count();
    assert_eq!((releases, rig.app.moves()), (MOVES_MAX, MOVES_MAX));
    // The next one moves when the first one has its worker, and when one has ended.
    let actions = rig.worker_writes(a, released(1));
    assert_eq!(rig.received(a), "");
    describe(&mut rig, &actions);
    let next = MOVES_MAX as u64 + 1;
    assert_eq!(rig.received(a), format!("RELEASE {next}"));
    rig.app.handle_closed(SessionId(2), name("transport close"), None, rig.now);
    assert_eq!(rig.received(a), format!("CLOSED 2, RELEASE {}", next + 1));
    for handle in 3..=next + 1 {
        let actions = rig.worker_writes(a, released(handle as u32));
        describe(&mut rig, &actions);
    }
    run_moves(&mut rig);
    let half = 2 * MOVES_MAX;
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b), rig.app.moves()), (half, half - 1, 0));
}

#[test]
fn sessions_whose_request_is_not_answered_do_not_move() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    let asks =
        |asks: bool| WorkerEntry::Config { config: json(&format!(r#"{{"asks":{asks},"http":null}}"#)) };
    rig.worker_writes(a, asks(true));
    (1..=3).for_each(|id| _ = rig.request(id));
    rig.worker_writes(a, asks(false));
    rig.request(4);
    rig.received(a);
    rig.start("b");
    assert_eq!(rig.received(a), "PEERS 2, RELEASE 4");
    rig.worker_writes(a, WorkerEntry::Accept { handle: Handle(1), headers: json("[]") });
    assert_eq!(rig.received(a), "RELEASE 1");
}

/// Otherwise, a client whose namespace refuses it would keep its session at the worker.
#[test]
fn a_session_that_asks_for_a_former_socket_moves() {
    let (mut rig, a) = with_sessions(2);
    rig.worker_writes(a, WorkerEntry::Nsp { namespace: Namespace(0), name: name("/") });
    for handle in [1, 2].map(Handle) {
        let (namespace, pid, offset) = (Namespace(0), name("pid"), name("offset"));
        rig.worker_writes(a, WorkerEntry::Restore { request: 1, handle, namespace, pid, offset });
    }
    let b = rig.start("b");
    assert_eq!(run_moves(&mut rig), BTreeMap::from([(a, (1, 0)), (b, (0, 1))]));
}

/// The process of a lost worker connects again.
fn rejoin(rig: &mut Rig, instance: &str, link: u32) {
    let received = rig.workers[&link].received();
    let hello = Hello::read(hello_frame(instance, (Some(link), received), "disconnect")).unwrap();
    assert_eq!(rig.app.handle_hello(hello, rig.now), Ok(link));
    assert!(rig.app.link(link).unwrap().takes_sessions());
}

#[test]
fn sessions_move_only_between_workers_that_stay() {
    let (mut rig, a) = with_sessions(4);
    rig.bye(a, "handover");
    rig.start("b");
    assert_eq!(rig.received(a), "DRAINED, PEERS 0, PEERS 1");
    // A lost worker gives nothing back. When it returns, its sessions move.
    let (mut rig, a) = with_sessions(4);
    rig.app.handle_disconnect(a, rig.now);
    let mut hello = Hello::read(hello_frame("c", (None, 0), "disconnect")).unwrap();
    hello.name = "another".into();
    rig.app.handle_hello(hello, rig.now).unwrap();
    assert_eq!(rig.app.moves(), 0);
    rejoin(&mut rig, "a", a);
    assert_eq!(rig.app.moves(), 2);
    // The connection of a worker that breaks and returns moves nothing by itself.
    let (mut rig, a) = with_sessions(4);
    let d = rig.start("d");
    run_moves(&mut rig);
    for id in [1, 2] {
        rig.app.handle_closed(SessionId(id), name("transport close"), None, rig.now);
    }
    rig.app.handle_disconnect(d, rig.now);
    rejoin(&mut rig, "d", d);
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(d), rig.app.moves()), (2, 0, 0));
}

/// Otherwise, sessions would return to the worker that has released them, again and again.
#[test]
fn a_new_worker_that_is_behind_gets_no_further_sessions() {
    let window_bytes = 1_000;
    let link = LinkOptions { window_bytes, ..LinkOptions::default() };
    let mut rig = Rig::new(ApplicationOptions { link, ..ApplicationOptions::default() });
    let a = rig.start("a");
    for id in 1..=20 {
        rig.request(id);
        rig.received(a);
        rig.worker_writes(a, WorkerEntry::Nop {});
    }
    let b = rig.start("b");
    let large = json(&format!(r#"{{"data":"{}"}}"#, "x".repeat(window_bytes)));
    assert_eq!(rig.received(a).matches("RELEASE").count(), 10);
    let mut moved = 0;
    for handle in 1..=10 {
        let actions = rig.worker_writes(a, released(handle));
        let Some(new) = actions.strip_prefix(&format!("Describe {handle} as ")) else { panic!("{actions}") };
        let new = Handle(new.parse().unwrap());
        moved += u32::from(rig.app.owner_of(SessionId(handle.into())) == Some((b, new)));
        rig.app.handle_description(SessionId(handle.into()), new, large.clone(), rig.now);
        let actions = rig.actions();
        rig.received(a);
        rig.worker_writes(a, WorkerEntry::Nop {});
        describe(&mut rig, &actions);
    }
    assert_eq!((moved, rig.app.moves()), (1, 0), "the others have returned");
    // The worker has caught up.
    rig.received(b);
    rig.worker_writes(b, WorkerEntry::Nop {});
    assert_eq!(rig.app.moves(), 9);
}

/// The worker answers, but it doesn't give the session back.
#[test]
fn a_session_that_is_not_released_moves_as_after_a_crash() {
    for (policy, expect) in [("disconnect", "Close 1 Crashed"), ("redeliver", "MESSAGE"), ("drop", "")] {
        let mut rig = Rig::new(ApplicationOptions::default());
        let a = rig.start_with("a", policy);
        rig.request(1);
        rig.request(2);
        rig.message(1, "not acknowledged");
        rig.received(a);
        let b = rig.start_with("b", policy);
        assert_eq!(rig.received(a), "PEERS 2, RELEASE 1");
        for _ in 0..29 {
            rig.app.handle_pong(a, rig.now);
            rig.app.handle_pong(b, rig.now);
            assert_eq!(rig.advance(Duration::from_secs(1)), "", "{policy}");
        }
        rig.app.handle_pong(a, rig.now);
        rig.app.handle_pong(b, rig.now);
        let actions = rig.advance(Duration::from_secs(1));
        assert_eq!(rig.received(a), "CLOSED 1", "{policy}");
        if policy == "disconnect" {
            assert_eq!(actions, expect);
        } else {
            assert_eq!(actions, "Describe 1 as 1", "{policy}");
            rig.app.handle_description(SessionId(1), Handle(1), json("{}"), rig.now);
            assert_eq!(
                rig.received(b),
                format!("WELCOME, PEERS 2, RESUME 1, {expect} 1").replace(",  1", "")
            );
        }
        // The worker's answer is late.
        let released = WorkerEntry::Released { handle: Handle(1), namespace: Namespace::END, data: None };
        assert_eq!(rig.worker_writes(a, released), "", "{policy}");
        assert_eq!(rig.app.sessions_of(a), 1, "{policy}");
    }
}

#[test]
fn a_released_session_moves_with_its_messages() {
    let mut rig = Rig::new(ApplicationOptions::default());
    let a = rig.start("a");
    rig.request(1);
    rig.request(2);
    rig.received(a);
    let b = rig.start("b");
    rig.message(1, "waits");
    rig.app.handle_upgrade(SessionId(1), name("websocket"), rig.now);
    assert_eq!(rig.received(a), "PEERS 2, RELEASE 1, UPGRADE 1");
    let released = WorkerEntry::Released { handle: Handle(1), namespace: Namespace::END, data: None };
    assert_eq!(rig.worker_writes(a, released), "Describe 1 as 1");
    rig.app.handle_description(SessionId(1), Handle(1), json("{}"), rig.now);
    assert_eq!(rig.received(b), "WELCOME, PEERS 2, RESUME 1, MESSAGE 1");
    assert_eq!(rig.app.moves(), 0);
}

/// Its middlewares need longer. Its messages go on to the worker that keeps it, in order.
#[test]
fn a_session_that_its_worker_keeps_stays_there() {
    let (mut rig, a) = with_sessions(4);
    let b = rig.start("b");
    assert_eq!(rig.received(a), "PEERS 2, RELEASE 1, RELEASE 2");
    rig.message(1, "waits");
    let kept = |handle| WorkerEntry::Kept { handle: Handle(handle) };
    // Other sessions move in its place, and it isn't asked for again.
    assert_eq!(rig.worker_writes(a, kept(1)), "");
    assert_eq!(rig.received(a), "MESSAGE 1, RELEASE 3");
    assert_eq!(rig.message(1, "later"), "");
    assert_eq!(rig.received(a), "MESSAGE 1");
    for handle in [2, 3] {
        let actions = rig.worker_writes(a, released(handle));
        describe(&mut rig, &actions);
    }
    assert_eq!((rig.app.sessions_of(a), rig.app.sessions_of(b), rig.app.moves()), (2, 2, 0));
    rig.worker_writes(a, kept(4));
    assert_eq!(rig.app.owner_of(SessionId(1)), Some((a, Handle(1))));
    // Its worker has crashed: another one gets it.
    rig.app.handle_disconnect(a, rig.now);
    let actions = rig.advance(Duration::from_millis(200));
    describe(&mut rig, &actions);
    assert_eq!(rig.app.sessions_of(b), 4);
}
