//! What cores send each other.

use super::migration::Migration;
use super::table::Held;
use super::{Core, Incoming};
use crate::identity::Sid;
use crate::limits::Slot;
use crate::protocols::http::MovedRequest;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use stentor_driver::mailbox::{Receiver, Sender};
use stentor_driver::{DetachedConnection, Driver, Frame};
use stentor_hub::{CoreId, Dispatch};

/// Messages taken from one mailbox in a turn, so that connections get their turn too.
const MAIL_PER_TURN: usize = 1_024;

/// One message from core to core.
pub(crate) enum CoreMessage {
    /// From shard to shard.
    Dispatch(Dispatch<Frame>),
    /// A connection moves, at a request boundary with nothing in flight.
    Connection(Box<Arrival>),
    /// A client moves, before the connections that name it.
    Client(Box<Migration>),
    /// To the core that a client's id names: it has ended where it was moved to.
    Ended(Sid),
}

/// A connection on its way.
pub(crate) struct Arrival {
    detached: DetachedConnection,
    peer: SocketAddr,
    moved: MovedRequest,
    slot: Slot,
    begins_tls: bool,
}

/// A core's ends of the rings to and from each other core; its own places are empty.
pub(crate) struct Mailboxes {
    pub(crate) to: Vec<Option<Sender<CoreMessage>>>,
    pub(crate) from: Vec<Option<Receiver<CoreMessage>>>,
    /// What isn't the shards' and found no room in a ring, by core: connections and clients of this core, so that
    /// there are never more than those.
    pub(super) waiting: Vec<VecDeque<CoreMessage>>,
}

impl Mailboxes {
    /// Of one of so many cores, connected to none.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            to: (0..cores).map(|_| None).collect(),
            from: (0..cores).map(|_| None).collect(),
            waiting: (0..cores).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Sends `mail` to `core` after all that went before it, and says whether it has left; what hasn't leaves as soon
    /// as there is room. Not for a core itself.
    fn post(&mut self, core: CoreId, mail: CoreMessage) -> bool {
        let (Some(sender), waiting) = (&mut self.to[core], &mut self.waiting[core]) else { return true };
        if waiting.is_empty() {
            match sender.try_send(mail) {
                Ok(()) => sender.flush(),
                Err(mail) => waiting.push_back(mail),
            }
        } else {
            waiting.push_back(mail);
        }
        waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from.iter().flatten().all(Receiver::is_empty)
    }
}

impl<D: Driver> Core<D> {
    pub(super) fn take_mail(&mut self) {
        for from in 0..self.mailboxes.from.len() {
            let mut taken_bytes = 0;
            for _ in 0..MAIL_PER_TURN {
                let Some(mail) = self.mailboxes.from[from].as_mut().and_then(Receiver::try_recv) else {
                    break;
                };
                match mail {
                    CoreMessage::Dispatch(dispatch) => {
                        taken_bytes += dispatch.weight_bytes();
                        self.ex.published_bytes += dispatch.weight_bytes();
                        self.ex.hub.handle_dispatch(self.ex.context.now, from, dispatch);
                        self.pump_if_much_was_published();
                    }
                    CoreMessage::Connection(arrival) => self.arrived(*arrival, false),
                    CoreMessage::Client(migration) => self.arrive(*migration),
                    CoreMessage::Ended(sid) => self.departed.forget(sid),
                }
            }
            if taken_bytes > 0 {
                self.ex
                    .shared
                    .mail_bytes(from, self.ex.context.core)
                    .fetch_sub(taken_bytes, Ordering::Relaxed);
            }
        }
    }

    /// Sends other cores what has come up for them. Before clients are answered: whoever has been told that a client is
    /// subscribed may publish at once on another core.
    #[inline]
    pub(super) fn send_new_mail(&mut self) {
        if self.ex.dispatches() != self.dispatches_sent {
            self.send_mail();
        }
    }

    /// Passes on what the shard has for other cores, and what waits for the broker. What doesn't fit stays here, and
    /// connections that publish aren't read from until it has left.
    pub(super) fn send_mail(&mut self) {
        let has_changed = self.ex.outlet.retry();
        let for_broker = self.ex.outlet.waiting();
        if has_changed || for_broker > 0 {
            self.ex.metrics().broker_waiting.set(for_broker as u64);
        }
        if has_changed {
            self.ex.shared.set_broker_behind(for_broker > 0);
        }
        let bytes_max = self.ex.options().limits.mailbox_bytes_max;
        self.dispatches_sent = self.ex.dispatches();
        let mut waiting = 0;
        for core in 0..self.mailboxes.to.len() {
            let Some(sender) = self.mailboxes.to[core].as_mut() else { continue };
            let outgoing = self.ex.hub.outgoing(core);
            let others = &mut self.mailboxes.waiting[core];
            if sender.is_disconnected() {
                // That core is drained: nobody is left there.
                outgoing.clear();
                others.clear();
            }
            let in_ring_bytes = self.ex.shared.mail_bytes(self.ex.context.core, core);
            let mut ring_bytes = in_ring_bytes.load(Ordering::Relaxed);
            let mut sent = false;
            while let Some(mail) = others.pop_front() {
                match sender.try_send(mail) {
                    Ok(()) => sent = true,
                    Err(mail) => {
                        others.push_front(mail);
                        break;
                    }
                }
            }
            while ring_bytes <= bytes_max
                && let Some(dispatch) = outgoing.pop_front()
            {
                let bytes = dispatch.weight_bytes();
                // Before the other core takes it out.
                ring_bytes = in_ring_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
                match sender.try_send(CoreMessage::Dispatch(dispatch)) {
                    Ok(()) => sent = true,
                    Err(mail) => {
                        in_ring_bytes.fetch_sub(bytes, Ordering::Relaxed);
                        if let CoreMessage::Dispatch(dispatch) = mail {
                            outgoing.put_back(dispatch);
                        }
                        break;
                    }
                }
            }
            waiting += outgoing.len() + others.len();
            if sent {
                sender.flush();
            }
        }
        self.ex.metrics().mailbox_overflow.set(waiting as u64);
        self.mail_waits = waiting > 0 || for_broker > 0;
        if !self.waiting_for_cores.is_empty() && !self.is_congested() {
            for conn in std::mem::take(&mut self.waiting_for_cores) {
                let Some(index) = self.table.index_of(conn) else { continue };
                self.release(index, Held::CORES);
                self.revisit.push_back(index);
            }
        }
    }

    /// Stops reading from a connection that produces more messages for other cores than they receive.
    pub(super) fn hold_if_congested(&mut self, index: usize) {
        if self.is_congested()
            && let Some(conn) = self.table.get(index)
            && !conn.held.has(Held::CORES)
        {
            // Those that have gone meanwhile are left out now and then, not each at its end.
            if self.waiting_for_cores.len() > 2 * self.table.count() {
                let table = &self.table;
                self.waiting_for_cores.retain(|waiting| table.index_of(*waiting).is_some());
            }
            self.waiting_for_cores.push(conn.id);
            self.hold(index, Held::CORES);
        }
    }

    /// Whether connections that publish have to wait: for another core, or for the broker.
    fn is_congested(&mut self) -> bool {
        self.ex.outlet.waiting() > 0 || self.are_cores_behind()
    }

    /// Whether another core is behind by more than one ring, in messages, bytes or answers.
    pub(super) fn are_cores_behind(&mut self) -> bool {
        let limits = &self.ex.options().limits;
        let (messages_max, bytes_max) = (limits.mailbox_messages_max, limits.mailbox_bytes_max);
        (0..self.mailboxes.to.len()).any(|core| {
            let outgoing = self.ex.hub.outgoing(core);
            outgoing.pending() > messages_max || outgoing.weight_bytes() > bytes_max
        })
    }

    /// Sends a client to another core.
    pub(super) fn post_client(&mut self, core: CoreId, migration: Migration) {
        self.post(core, CoreMessage::Client(Box::new(migration)));
    }

    /// Sends something to another core after all that was sent there before.
    pub(super) fn post(&mut self, core: CoreId, mail: CoreMessage) {
        self.mail_waits |= !self.mailboxes.post(core, mail);
    }

    /// Moves a connection to another core. Where that can't be, it begins anew on this one, to stay.
    pub(super) fn hand_over(&mut self, mut incoming: Incoming, core: CoreId) {
        let migrates = incoming.moved.buffered.as_mut().and_then(|buffered| buffered.migrates.take());
        let detached = if core == self.ex.context.core { None } else { self.driver.detach(incoming.conn) };
        let Some(detached) = detached else {
            migrates.into_iter().for_each(|id| self.stay(id));
            return self.begin_http(incoming, true);
        };
        let Incoming { conn: _, peer, moved, slot, begins_tls } = incoming;
        let arrival = Arrival { detached, peer, moved, slot, begins_tls };
        if let Some(id) = migrates
            && !self.migrate(id, core)
        {
            self.stay(id);
            return self.arrived(arrival, true);
        }
        self.post(core, CoreMessage::Connection(Box::new(arrival)));
        self.ex.metrics().handed_over.add(1);
    }

    /// A connection has come from another core, or come back.
    fn arrived(&mut self, arrival: Arrival, stays: bool) {
        let Arrival { detached, peer, moved, mut slot, begins_tls } = arrival;
        match self.driver.attach(detached) {
            Ok(conn) => self.begin_http(Incoming { conn, peer, moved, slot, begins_tls }, stays),
            Err(error) => {
                self.ex.release_connection(&mut slot);
                tracing::warn!(%error, %peer, "a connection was lost between two cores");
            }
        }
    }
}
