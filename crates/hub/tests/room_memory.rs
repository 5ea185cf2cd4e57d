//! The memory that a room with one subscription allocates.

#![allow(clippy::print_stderr)] // The test says what it found.

use cap::Cap;
use std::alloc::System;
use std::sync::Arc;
use stentor_hub::{Encoder, FormatId, Hub, Options, Policy, Publication, Room, Topic};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

struct Nothing;

impl Encoder for Nothing {
    type Frame = Arc<[u8]>;

    fn encode(&self, _format: FormatId, _publication: &Publication<Self::Frame>) -> Option<Self::Frame> {
        None
    }

    fn len(frame: &Self::Frame) -> usize {
        frame.len()
    }
}

/// Rooms whose members are sessions that join a thousand rooms each. The numbers are just above and far above those at which the table of
/// rooms doubles, with lists of members inside a room's entry and outside of it.
#[test]
fn a_room_and_its_subscription_take_less_than_180_bytes_and_are_charged() {
    for (rooms, members) in [(115_000, 1), (220_000, 1), (60_000, 2), (29_000, 3), (8_000, 24), (1_000, 100)]
    {
        let options = Options { topics_max: rooms, subscriptions_max: rooms, ..Options::default() };
        let mut hub = Hub::new(options, Nothing);
        let before = ALLOCATED.allocated();
        for first in (0..rooms).step_by(1_000) {
            let sessions: Vec<_> = (0..members).map(|_| hub.handle_open(FormatId(0), 0)).collect();
            for n in first..first + 1_000 {
                let topic = Topic::from(Room::plain(&format!("user:{n}")).unwrap());
                for session in &sessions {
                    hub.handle_subscribe(*session, &topic, Policy::Queue, None).unwrap();
                }
            }
        }
        let allocated = ALLOCATED.allocated() - before;
        let footprint = hub.footprint();
        let charged = footprint.sessions + footprint.subscriptions + footprint.topics;
        let what = format!("{rooms} rooms with {members} members: {allocated} bytes, {charged} charged");
        eprintln!("{what}");
        assert!(allocated <= 180 * rooms * members, "{what}");
        assert!((allocated * 97 / 100..=allocated * 103 / 100).contains(&charged), "{what}");
    }
}
