//! The clients of a core, of one protocol.

use super::client::ClientState;
use crate::executor::{Effect, Executor};
use crate::identity::{ClientId, ClientKind, End, Sid, SidHasher};
use crate::millis::Millis;
use crate::model::{Disconnect, TimerId};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// A client in a [`ClientTable`].
pub(crate) trait TableEntry {
    const KIND: ClientKind;

    fn state(&self) -> &ClientState;
    fn state_mut(&mut self) -> &mut ClientState;

    /// Bytes of a packet with missing attachments.
    fn attachment_bytes(&self) -> usize {
        0
    }

    /// Takes all waiting records.
    fn take_queue(&mut self) -> Vec<u8> {
        let queue = std::mem::take(&mut self.state_mut().queue);
        let held = self.state().held(self.attachment_bytes());
        self.state_mut().holding.lower(held);
        queue
    }

    /// Charges the memory that the client holds now. Returns the increase in bytes.
    fn charge(&mut self, ex: &Executor) -> usize {
        let held = self.state().held(self.attachment_bytes());
        self.state_mut().holding.set(&ex.shared.ledger, held)
    }

    /// Charges the memory that the client holds now, after its own input. Ends it if it grows to more than a small input
    /// while memory is short.
    fn weigh(&mut self, ex: &mut Executor) {
        let grown = self.charge(ex);
        let state = self.state();
        if grown > 0 && !state.ended && ex.is_too_large_now(state.holding.bytes()) {
            ex.metrics().inputs_refused.add(1);
            ex.end_client(state.id, End::Because(Disconnect::Overloaded));
        }
    }

    /// Nobody finds the client any more.
    fn remove(&mut self, ex: &mut Executor) {
        self.state_mut().removed = true;
        ex.push(Effect::RemoveClient(self.state().id));
    }
}

/// The timer of a client, which only the core sets.
#[derive(Clone, Copy)]
pub(crate) struct ClientTimer {
    pub(crate) id: TimerId,
    pub(crate) at: Millis,
}

struct Slot<C> {
    serial: u32,
    client: C,
    timer: Option<ClientTimer>,
}

/// Clients by handle and by id.
pub(crate) struct ClientTable<C> {
    slots: slab::Slab<Slot<C>>,
    by_sid: HashMap<Sid, ClientId, BuildHasherDefault<SidHasher>>,
    serial: u32,
}

impl<C> Default for ClientTable<C> {
    fn default() -> Self {
        Self { slots: slab::Slab::new(), by_sid: HashMap::default(), serial: 0 }
    }
}

impl<C: TableEntry> ClientTable<C> {
    /// Adds a client, which gets its handle.
    pub(crate) fn insert(&mut self, mut client: C) -> &mut C {
        self.serial = self.serial.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let id = ClientId::new(C::KIND, entry.key(), self.serial);
        let state = client.state_mut();
        state.id = id;
        self.by_sid.insert(state.sid, id);
        &mut entry.insert(Slot { serial: id.serial(), client, timer: None }).client
    }

    /// The client with this id, unless it is removed.
    pub(crate) fn find(&self, sid: Sid) -> Option<ClientId> {
        let id = *self.by_sid.get(&sid)?;
        self.get(id).filter(|client| !client.state().removed).map(|_| id)
    }

    fn slot(&self, id: ClientId) -> Option<&Slot<C>> {
        self.slots.get(id.index()).filter(|slot| slot.serial == id.serial())
    }

    fn slot_mut(&mut self, id: ClientId) -> Option<&mut Slot<C>> {
        self.slots.get_mut(id.index()).filter(|slot| slot.serial == id.serial())
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&C> {
        self.slot(id).map(|slot| &slot.client)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut C> {
        self.slot_mut(id).map(|slot| &mut slot.client)
    }

    pub(crate) fn timer(&self, id: ClientId) -> Option<ClientTimer> {
        self.slot(id)?.timer
    }

    pub(crate) fn set_timer(&mut self, id: ClientId, timer: Option<ClientTimer>) {
        if let Some(slot) = self.slot_mut(id) {
            slot.timer = timer;
        }
    }

    /// Removes a client, and returns its timer with it.
    pub(crate) fn remove(&mut self, id: ClientId) -> Option<(C, Option<ClientTimer>)> {
        self.slot(id)?;
        let Slot { client, timer, .. } = self.slots.try_remove(id.index())?;
        let sid = client.state().sid;
        if self.by_sid.get(&sid) == Some(&id) {
            self.by_sid.remove(&sid);
        }
        Some((client, timer))
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The size of all clients, each with `more` bytes besides.
    pub(crate) fn bytes(&self, more: usize) -> usize {
        self.slots.capacity() * (size_of::<Slot<C>>() + more)
            + self.by_sid.capacity() * size_of::<(Sid, ClientId)>()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> {
        self.slots.iter().map(|(_, slot)| &slot.client)
    }

    pub(crate) fn ids(&self) -> Vec<ClientId> {
        self.iter().map(|client| client.state().id).collect()
    }
}
