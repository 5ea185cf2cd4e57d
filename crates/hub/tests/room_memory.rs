//! The memory that a room with one subscription allocates.

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

/// The table of rooms doubles as it grows. `ROOMS` is just large enough for a doubling: the most memory per
/// room.
#[test]
fn a_room_and_its_subscription_take_less_than_180_bytes_and_are_charged() {
    const ROOMS: usize = 115_000;
    let options = Options { topics_max: ROOMS, subscriptions_max: ROOMS, ..Options::default() };
    let mut hub = Hub::new(options, Nothing);
    let before = ALLOCATED.allocated();
    for first in (0..ROOMS).step_by(1_000) {
        let session = hub.handle_open(FormatId(0), 0);
        for n in first..first + 1_000 {
            let topic = Topic::from(Room::plain(&format!("user:{n}")).unwrap());
            hub.handle_subscribe(session, &topic, Policy::Queue, None).unwrap();
        }
    }
    let each = (ALLOCATED.allocated() - before) / ROOMS;
    let charged = hub.footprint();
    let charged = (charged.sessions + charged.subscriptions + charged.topics) / ROOMS;
    assert!(each <= 180, "{each} bytes");
    assert!(
        (each * 9 / 10..each * 13 / 10).contains(&charged),
        "{each} bytes, of which {charged} are charged"
    );
}
