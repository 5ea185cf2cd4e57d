//! Selections of sessions in slices, between which sessions open and close, and counts of a message's
//! receivers.

use crate::node::{Node, room};
use bytes::Bytes;
use fastrand::Rng;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stentor_hub::{Data, Emit, Policy, Room, Rooms, Selection, SessionId, Tally, Topic};

impl Node {
    fn join(&mut self, session: SessionId, room: &Room) {
        self.subscribe(0, session, &Topic::from(room.clone()), Policy::Queue);
    }
}

/// A member that stays is selected once, whatever other members do meanwhile; an excepted member isn't
/// selected.
#[test]
fn members_that_stay_are_selected_once() {
    const VISITS_MAX: usize = 7;
    let rooms = [room("a"), room("b"), room("c"), room("except")];
    for seed in 0..50 {
        let mut random = Rng::with_seed(seed);
        let mut node = Node::new(1);
        // Members of a, b or both; every fifth is also in the excepted room.
        let sessions: Vec<SessionId> = (0..300)
            .map(|n| {
                let session = node.open(0);
                node.join(session, &rooms[n % 2]);
                if n % 3 == 0 {
                    node.join(session, &rooms[(n + 1) % 2]);
                }
                if n % 5 == 0 {
                    node.join(session, &rooms[3]);
                }
                session
            })
            .collect();
        let not_wanted = sessions[1];
        let targets = [rooms[0].clone(), room("empty"), rooms[1].clone(), rooms[0].clone()];
        let mut selection = Selection::new(targets.into(), [rooms[3].clone()].into(), [not_wanted]);
        let (mut found, mut moved, mut slices) = (Vec::new(), HashSet::new(), 0);
        loop {
            let before = found.len();
            let visits = node.hubs[0].select(&mut selection, VISITS_MAX, &mut found);
            assert!(found.len() - before <= VISITS_MAX);
            slices += 1;
            let Some(visits) = visits else { break };
            assert!(visits <= VISITS_MAX);
            for _ in 0..random.usize(..6) {
                let n = random.usize(..sessions.len());
                moved.insert(n);
                match random.usize(..4) {
                    0 => node.hubs[0].handle_close(sessions[n]),
                    1 => node.join(sessions[n], &rooms[random.usize(..4)]),
                    2 => {
                        _ = node.hubs[0]
                            .handle_unsubscribe(sessions[n], &Topic::from(rooms[random.usize(..4)].clone()))
                    }
                    // A new session may reuse the slot of a closed one.
                    _ => {
                        let session = node.open(0);
                        node.join(session, &rooms[random.usize(..3)]);
                    }
                }
            }
        }
        assert!(slices >= 400 / VISITS_MAX, "seed {seed}: {slices}");
        let distinct: HashSet<SessionId> = found.iter().copied().collect();
        assert_eq!(distinct.len(), found.len(), "seed {seed}: somebody is selected twice");
        for (n, session) in sessions.iter().enumerate() {
            if !moved.contains(&n) {
                let expect = n % 5 != 0 && *session != not_wanted;
                assert_eq!(distinct.contains(session), expect, "seed {seed}, session {n}");
            }
        }
    }
}

#[test]
fn rooms_and_their_members_are_walked_in_slices() {
    let mut node = Node::new(1);
    for n in 0..600 {
        let session = node.open(0);
        node.join(session, &room(&format!("r{n}")));
        node.join(session, &room("all"));
    }
    let (mut next, mut seen, mut calls) = (Some(0), Vec::new(), 0);
    while let Some(from) = next {
        next =
            node.hubs[0].walk_rooms(from, 100, |room, members| seen.push((room.name().to_owned(), members)));
        calls += 1;
    }
    assert!(calls > 6);
    assert_eq!((seen.len(), seen.iter().map(|(_, members)| members).sum::<usize>()), (601, 1_200));
    assert!(seen.contains(&("all".to_owned(), 600)));
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Tally for Count {
    fn add(&self, sessions: usize) {
        self.0.fetch_add(sessions, Ordering::Relaxed);
    }
}

#[test]
fn a_message_counts_its_receiving_sessions_on_all_cores() {
    // Rooms with the prefix `kept` have history, and therefore a home core.
    for prefix in ["", "kept"] {
        let mut node = Node::new(3);
        let [a, b] = ["a", "b"].map(|name| room(&format!("{prefix}{name}")));
        let mut sessions = Vec::new();
        for core in 0..3 {
            for n in 0..4 {
                let session = node.open(core);
                node.subscribe(core, session, &Topic::from(a.clone()), Policy::Queue);
                if n == 0 {
                    node.subscribe(core, session, &Topic::from(b.clone()), Policy::Queue);
                }
                sessions.push((core, session));
            }
        }
        node.run_until_idle();
        let mut check = |rooms: &[&Room], how: &dyn Fn() -> Emit, expect: usize| {
            let rooms =
                Rooms::try_from(rooms.iter().map(|room| (*room).clone()).collect::<Vec<_>>()).unwrap();
            for core in 0..3 {
                let count = Arc::new(Count::default());
                let data = Data::Text(Bytes::from_static(b"text"));
                let how = how().counted_by(count.clone());
                let now = node.now;
                node.hubs[core].handle_emit(now, &rooms, None, data, how);
                node.run_until_idle();
                assert_eq!(count.0.load(Ordering::Relaxed), expect, "{rooms:?} from core {core}");
                // All cores have dropped their reference to the count, so a caller knows that the sum is
                // complete.
                assert_eq!(Arc::strong_count(&count), 1);
            }
        };
        let ((core, first), (_, other)) = (sessions[0], sessions[1]);
        check(&[&a], &Emit::default, 12);
        check(&[&a, &b], &Emit::default, 12);
        check(&[&a, &b], &Emit::volatile, 12);
        check(&[&b], &|| Emit::default().except_session(core, first), 2);
        check(&[&b], &|| Emit::default().except_session(core, other), 3);
        check(&[&a], &|| Emit::default().except_room(b.clone()), 9);
        check(&[&room("empty")], &Emit::default, 0);
    }
}
