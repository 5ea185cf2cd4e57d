//! The queue of events between an engine and its node.
//!
//! If the node takes events too slowly, all waiting messages are dropped. The node sees a lost connection in their place and reads the
//! missed messages, as after any other loss. So a slow node never slows its connection to the engine down until the server closes it.

use super::{Event, Limits};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use stentor_ports::{Charge, Class, Ledger};
use tokio::sync::Notify;

/// The reason of the lost connection that the node sees.
const TOO_SLOW: &str = "the node takes messages too slowly; those that waited were dropped";

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// `true` if the newest change of the connection was [`Event::Connected`].
    is_connected: bool,
    overflows: u64,
    /// `true` if all senders have been dropped.
    is_closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Size of the queued events. Changes only while `queue` is locked.
    charge: Charge,
    changed: Notify,
    messages_max: usize,
    bytes_max: usize,
}

/// The engine's end.
#[derive(Clone)]
pub struct EventSender(Arc<Sender>);

struct Sender(Arc<Shared>);

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

/// The node's end.
pub struct EventReceiver(Arc<Shared>);

/// A queue with the bounds `events_max` and `events_bytes_max`, charged to a ledger.
pub fn events(limits: &Limits, ledger: &Arc<Ledger>) -> (EventSender, EventReceiver) {
    let shared = Arc::new(Shared {
        queue: Mutex::default(),
        charge: Charge::new(ledger.clone(), Class::Cluster),
        changed: Notify::new(),
        messages_max: limits.events_max,
        bytes_max: limits.events_bytes_max,
    });
    (EventSender(Arc::new(Sender(shared.clone()))), EventReceiver(shared))
}

/// Bytes charged for an event. Only messages are charged: there are few other events.
fn bytes_of(event: &Event) -> usize {
    match event {
        Event::Message { payload, .. } => size_of::<Event>() + payload.len(),
        Event::Connected | Event::Disconnected { .. } => 0,
    }
}

impl EventSender {
    /// Appends an event. Never blocks.
    pub fn send(&self, event: Event) {
        let shared = &self.0.0;
        let bytes = bytes_of(&event);
        let mut queue = shared.queue.lock();
        match &event {
            Event::Message { .. } => {
                let is_full = queue.events.len() >= shared.messages_max
                    || (shared.charge.bytes() + bytes > shared.bytes_max && !queue.events.is_empty());
                if is_full {
                    queue.overflows += 1;
                    queue.events.clear();
                    queue.events.push_back(Event::Disconnected { reason: TOO_SLOW.into() });
                    shared.charge.set(0);
                    if queue.is_connected {
                        queue.events.push_back(Event::Connected);
                    }
                }
                shared.charge.add(bytes);
            }
            Event::Connected => queue.is_connected = true,
            Event::Disconnected { .. } => queue.is_connected = false,
        }
        queue.events.push_back(event);
        drop(queue);
        shared.changed.notify_one();
    }

    /// Number of times that all waiting messages were dropped.
    pub fn overflows(&self) -> u64 {
        self.0.0.queue.lock().overflows
    }
}

impl EventReceiver {
    /// The next event, or `None` when the engine has been dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            {
                let mut queue = self.0.queue.lock();
                if let Some(event) = queue.events.pop_front() {
                    self.0.charge.subtract(bytes_of(&event));
                    return Some(event);
                }
                if queue.is_closed {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// The size of the waiting messages, for a metric.
    pub fn waiting(&self) -> EventsWaiting {
        EventsWaiting(self.0.clone())
    }
}

/// The size of the messages that wait in a queue of events.
#[derive(Clone)]
pub struct EventsWaiting(Arc<Shared>);

impl EventsWaiting {
    /// Bytes of the messages.
    pub fn bytes(&self) -> usize {
        self.0.charge.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Channel;
    use bytes::Bytes;

    fn message(payload: &'static [u8]) -> Event {
        Event::Message { channel: Channel::Nodes, position: None, payload: Bytes::from_static(payload) }
    }

    fn limits(events_max: usize, events_bytes_max: usize) -> Limits {
        Limits { events_max, events_bytes_max, ..Limits::default() }
    }

    fn ledger() -> Arc<Ledger> {
        Arc::new(Ledger::new(1 << 30))
    }

    const ENTRY: usize = size_of::<Event>();

    async fn all(sender: EventSender, mut receiver: EventReceiver) -> Vec<Event> {
        drop(sender);
        let mut all = Vec::new();
        while let Some(event) = receiver.next().await {
            all.push(event);
        }
        assert_eq!(receiver.waiting().bytes(), 0);
        all
    }

    #[tokio::test]
    async fn a_slow_node_sees_a_lost_connection_in_place_of_missed_messages() {
        for (messages_max, bytes_max) in [(4, 1 << 20), (1_000, 3 * (ENTRY + 1))] {
            let (sender, receiver) = events(&limits(messages_max, bytes_max), &ledger());
            sender.send(Event::Connected);
            for payload in [b"a", b"b", b"c", b"d"] {
                sender.send(message(payload));
            }
            assert_eq!(sender.overflows(), 1);
            let all = all(sender, receiver).await;
            assert!(matches!(&all[0], Event::Disconnected { reason } if **reason == *TOO_SLOW), "{all:?}");
            assert_eq!(all[1], Event::Connected);
            assert_eq!(all.last(), Some(&message(b"d")));
        }
    }

    #[tokio::test]
    async fn messages_taken_in_time_are_complete_and_one_of_any_size_fits() {
        let (sender, receiver) = events(&limits(3, 3), &ledger());
        sender.send(message(b"larger than the bound"));
        assert_eq!(sender.overflows(), 0);
        assert_eq!(all(sender, receiver).await, [message(b"larger than the bound")]);
    }

    #[tokio::test]
    async fn waiting_messages_are_charged_until_they_are_taken_or_dropped() {
        let ledger = Arc::new(Ledger::new(3 * ENTRY));
        let (sender, mut receiver) = events(&limits(2, 1 << 20), &ledger);
        sender.send(message(b"ab"));
        sender.send(Event::Connected);
        assert!(ledger.has_room(2 * ENTRY - 2) && !ledger.has_room(2 * ENTRY - 1));
        assert_eq!(receiver.next().await, Some(message(b"ab")));
        assert!(ledger.has_room(3 * ENTRY));
        sender.send(message(b"c"));
        sender.send(message(b"d"));
        assert_eq!((sender.overflows(), receiver.waiting().bytes()), (1, ENTRY + 1));
        drop((sender, receiver));
        assert!(ledger.has_room(3 * ENTRY));
    }
}
