//! Where messages to rooms leave the core: to the members on this node, and to other nodes through the broker.

use crate::encode::Formats;
use crate::ledger::{Class, Ledger};
use crate::ports::{Broadcast, Broker, Busy, PublicId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use stentor_hub::{Data, Emit, Hub, Room, Rooms};

/// Publishes for one core. Messages for which the broker has no room wait here, in order, charged to the ledger. While
/// there are any, the core doesn't read from connections that publish, so each adds at most what it had sent before.
pub(crate) struct Outlet {
    /// `None`: there are no other nodes.
    broker: Option<Arc<dyn Broker>>,
    waiting: VecDeque<Broadcast>,
    /// Whether any waited after the last call of [`Self::retry`].
    waited: bool,
    /// Messages for the broker since the start.
    count: u64,
    ledger: Arc<Ledger>,
}

impl Outlet {
    pub(crate) fn new(broker: Option<Arc<dyn Broker>>, ledger: Arc<Ledger>) -> Self {
        Self { broker, waiting: VecDeque::new(), waited: false, count: 0, ledger }
    }

    /// Publishes a message of this node to a room.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        hub: &mut Hub<Formats>,
        now: Instant,
        room: &Room,
        (event, data): (Option<Arc<str>>, Data),
        how: Emit,
    ) {
        if self.broker.is_none() {
            return hub.handle_publish(now, room, event, data, how);
        }
        self.emit(hub, now, &room.clone().into(), (event, data), how, &[]);
    }

    /// Publishes a message of this node to rooms. `except`: sessions of other nodes that are left out.
    pub(crate) fn emit(
        &mut self,
        hub: &mut Hub<Formats>,
        now: Instant,
        rooms: &Rooms,
        (event, data): (Option<Arc<str>>, Data),
        how: Emit,
        except: &[PublicId],
    ) {
        let Some(broker) = &self.broker else { return hub.handle_emit(now, rooms, event, data, how) };
        let message = Broadcast {
            rooms: rooms.clone(),
            except_rooms: how.excepted_rooms().to_vec(),
            except_sessions: except.to_vec(),
            event: event.clone(),
            data: data.clone(),
            volatile: how.volatile,
        };
        hub.handle_emit(now, rooms, event, data, how);
        self.count += 1;
        if !self.waiting.is_empty() || broker.publish(&message) == Err(Busy) {
            self.ledger.adjust(Class::Broker, 0, message.bytes());
            self.waiting.push_back(message);
        }
    }

    /// Passes on what waits for the broker, as far as it has room. Returns whether messages have begun or ceased to wait
    /// since the last call.
    pub(crate) fn retry(&mut self) -> bool {
        let Some(broker) = &self.broker else { return false };
        while let Some(message) = self.waiting.front()
            && broker.publish(message).is_ok()
        {
            self.ledger.adjust(Class::Broker, message.bytes(), 0);
            self.waiting.pop_front();
        }
        let waits = !self.waiting.is_empty();
        std::mem::replace(&mut self.waited, waits) != waits
    }

    /// Messages that wait for the broker.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Messages for the broker since the start. It shows whether handling an input produced any.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn broker(&self) -> Option<&Arc<dyn Broker>> {
        self.broker.as_ref()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        for message in &self.waiting {
            self.ledger.adjust(Class::Broker, message.bytes(), 0);
        }
    }
}
