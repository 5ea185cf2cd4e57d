//! The driver between the machine and a data plane that may be busy.

use super::model::{content, limits, room};
use super::vacant_rooms;
use crate::NodeId;
use crate::engine::memory::Memory;
use crate::engine::{Channel, Engine, Event, Limits};
use crate::rooms::{Publisher, RoomDriver, UPDATES_BYTES_MAX};
use crate::space::Space;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stentor_hub::{Epoch, Position};
use stentor_ports::fake::{self, Call};
use stentor_ports::{Answers, Asking, Busy, Ledger, Ticket};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A data plane that refuses decisions while it is busy.
#[derive(Default)]
struct Plane {
    is_busy: AtomicBool,
    updated: Notify,
    updates: AtomicUsize,
    decided: Notify,
}

impl Plane {
    fn data_plane(self: &Arc<Self>) -> Arc<fake::Node> {
        let this = self.clone();
        Arc::new(fake::Node::new(move |call| match call {
            Call::UpdateRoom(..) => {
                this.updates.fetch_add(1, Ordering::SeqCst);
                this.updated.notify_one();
                Ok(())
            }
            Call::Answer(..) => {
                this.decided.notify_one();
                if this.is_busy.load(Ordering::SeqCst) { Err(Busy) } else { Ok(()) }
            }
            _ => Ok(()),
        }))
    }
}

fn driver() -> RoomDriver {
    let ledger = Arc::new(Ledger::new(usize::MAX));
    let vacant = vacant_rooms(1_000);
    RoomDriver::new(NodeId(1), vec![(String::new(), limits())], Duration::from_secs(5), vacant, ledger)
}

async fn leave_while_updates_wait(driver: &RoomDriver, plane: &Plane, answers: Arc<dyn Answers>) {
    driver.handle_connected();
    driver.set_interest(&room(0), true);
    plane.updated.notified().await;
    plane.is_busy.store(true, Ordering::SeqCst);
    let publisher = Some(Publisher::Client(Asking::new(Ticket::for_test(1), &answers).later()));
    assert!(driver.publish(&room(1), Bytes::from_static(b"m"), (publisher, None), None).is_ok());
    plane.decided.notified().await;
    let message = async |offset| {
        let content = content(vec![b'm'; UPDATES_BYTES_MAX / 4].into());
        driver.handle_message(&room(0), Position { epoch: Epoch(7), offset }, Some(content)).await;
    };
    for offset in 1..=4 {
        message(offset).await;
    }
    let next = async { timeout(Duration::from_secs(10), message(5)).await };
    let leave = async {
        driver.set_interest(&room(0), false);
        plane.is_busy.store(false, Ordering::SeqCst);
    };
    let (next, ()) = tokio::join!(next, leave);
    assert!(next.is_ok(), "the next message waits for updates that nobody needs");
}

#[tokio::test(start_paused = true)]
async fn updates_of_a_room_without_subscribers_hold_nothing_up() {
    let driver = driver();
    let (engine, _events) = Memory::default().connect(NodeId(1), Limits::default());
    let (plane, space) = (Arc::<Plane>::default(), Space::default());
    let data_plane = plane.data_plane();
    tokio::select! {
        () = driver.run(&engine, &*data_plane, &space, |_, _| None) => {}
        () = leave_while_updates_wait(&driver, &plane, data_plane.clone()) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_flush_the_data_plane_has_what_has_arrived() {
    let driver = driver();
    let (engine, mut events) = Memory::default().connect(NodeId(1), Limits::default());
    let (plane, space) = (Arc::<Plane>::default(), Space::default());
    let data_plane = plane.data_plane();
    let flush = async {
        driver.handle_connected();
        engine.set_interest(Channel::from(room(0)), true);
        driver.set_interest(&room(0), true);
        plane.updated.notified().await;
        assert!(driver.publish(&room(0), Bytes::from_static(b"m"), (None, None), None).is_ok());
        let position = loop {
            match events.next().await {
                Some(Event::Message { position: Some(position), .. }) => break position,
                Some(_) => {}
                None => panic!("the engine has ended"),
            }
        };
        let content = content("m".into());
        let before = plane.updates.load(Ordering::SeqCst);
        driver.handle_message(&room(0), position, Some(content)).await;
        assert_eq!(plane.updates.load(Ordering::SeqCst), before, "it is given to the data plane later");
        driver.flush().await;
        assert_eq!(plane.updates.load(Ordering::SeqCst), before + 1);
    };
    tokio::select! {
        () = driver.run(&engine, &*data_plane, &space, |_, _| None) => {}
        () = flush => {}
    }
}
