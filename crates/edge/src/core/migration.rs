//! Clients that move to another core, to get what they missed.
//!
//! A Socket.IO client that was disconnected begins anew wherever its new connection lands, and says only in its
//! CONNECT which sockets it had: the core that keeps them is named by their `pid`. Before anything else has happened on
//! it, the whole client moves there: its queue, the WebSocket that carries it or wants to, and the request that brought
//! the CONNECT, which is looked at again where it arrives.
//!
//! ```text
//!   here                                              there
//!   CONNECT with a pid of `there` ── CoreMessage::Client ─► the client, by the same id
//!   the POST that it came in ─────── CoreMessage::Connection ► the rest of its body, CONNECT first
//!   later requests ───────────────── CoreMessage::Connection ► (the id names `here`, which knows)
//!                    ◄──── CoreMessage::Ended ────────────── it has ended
//! ```
//!
//! **Invariants.** A client moves at most once, away from the core that its id names. Mail between two cores is first
//! in, first out, so a connection never arrives before the client that it asks for, nor asks for one that has ended
//! twice. Where something stands in the way (an answer in flight, no room in the table), the client stays, and begins
//! anew.

use super::Core;
use super::table::{Conn, Held, Machine};
use crate::app::{ClientIdentity, HandlerScope};
use crate::identity::{ClientId, End, Sid, SidHasher};
use crate::limits::Slot;
use crate::protocols::client::{ActiveTransport, Client as _};
use crate::protocols::engineio::{self, MigratedClient, Probe};
use crate::protocols::websocket::WebSocket;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use stentor_driver::{ConnId, DetachedConnection, Driver};
use stentor_hub::{CoreId, Disconnect};

/// Where clients are that began on this core and were moved: no more than may be suspended.
#[derive(Default)]
pub(super) struct Departed(HashMap<Sid, CoreId, BuildHasherDefault<SidHasher>>);

impl Departed {
    pub(super) fn core_of(&self, sid: Sid) -> Option<CoreId> {
        self.0.get(&sid).copied()
    }

    pub(super) fn forget(&mut self, sid: Sid) {
        self.0.remove(&sid);
    }
}

/// A client on its way.
pub(crate) struct Migration {
    client: MigratedClient,
    carrier: Option<TransferredSocket>,
    probe: Option<(TransferredSocket, bool)>,
    identity: Option<ClientIdentity>,
    handshake: Option<Box<str>>,
}

/// A WebSocket on its way.
struct TransferredSocket {
    detached: DetachedConnection,
    socket: WebSocket,
    slot: Slot,
}

impl<D: Driver> Core<D> {
    /// The client isn't moved: it can't get what it missed.
    pub(super) fn stay(&mut self, id: ClientId) {
        if let Some(io) = self.clients.engineio.get_mut(id).and_then(engineio::Client::socketio_mut) {
            io.stays = true;
        }
    }

    pub(super) fn migrate_or_stay(&mut self, id: ClientId, core: CoreId) {
        if !self.migrate(id, core) {
            self.stay(id);
        }
    }

    /// Moves a client. Returns whether it has gone.
    pub(super) fn migrate(&mut self, id: ClientId, core: CoreId) -> bool {
        let Some(limits) = self.ex.options().engine.recovery else { return false };
        let Some(client) = self.clients.engineio.get_mut(id) else { return false };
        let (sid, transport) = (client.state().sid, client.state().transport);
        let is_polling = !matches!(transport, ActiveTransport::WebSocket(_));
        if client.state().ended
            || !client.socketio().is_some_and(|io| io.is_fresh())
            || self.ex.draining
            || is_polling && self.departed.0.len() >= limits.sessions_max
        {
            return false;
        }
        let carrier = match transport {
            ActiveTransport::WebSocket(conn) => Some(conn),
            ActiveTransport::None | ActiveTransport::Poll(_) | ActiveTransport::Stream(_) => None,
        };
        let probe = client.probe.as_ref().map(|probe| (probe.conn, probe.answered));
        // One of the two at the most: a client polls, or has moved to its WebSocket.
        let socket = carrier.or(probe.map(|(conn, _)| conn));
        if let ActiveTransport::Poll(_) = transport {
            // The next poll finds it there.
            client.write_noop(&mut self.ex);
            self.flush_client(id);
        }
        let mut transferred = match socket.map(|conn| self.detach_socket(conn)) {
            Some(None) => return false,
            detached => detached.flatten(),
        };
        let Some(client) = self.clients.engineio.remove(id) else { return false };
        if let Some(timer) = client.state().timer {
            self.driver.timer_cancel(timer.id);
        }
        let migration = Migration {
            client: client.migrate(),
            carrier: carrier.and_then(|_| transferred.take()),
            probe: probe.and_then(|(_, answered)| Some((transferred.take()?, answered))),
            identity: self.ex.questions.identities.take_client(id),
            handshake: self.ex.handshakes.take(id),
        };
        if is_polling {
            self.departed.0.insert(sid, core);
        }
        self.post_client(core, migration);
        let name = sid.to_string();
        self.ex.notify_app(HandlerScope::default(), |app, ctx| app.client_disconnected(ctx, &name));
        true
    }

    /// Takes a WebSocket out of this core, if nothing of it is under way.
    fn detach_socket(&mut self, conn: ConnId) -> Option<TransferredSocket> {
        let index = self.table.index_of(conn)?;
        let Conn { in_flight: false, replies, held, .. } = self.table.get(index)? else { return None };
        if held.has(Held::CORES) || replies.is_some() {
            return None;
        }
        let was_held = held.has(Held::INPUT);
        // The next core knows no reason not to read.
        self.release(index, Held::INPUT);
        self.release(index, Held::TURN);
        let Some(detached) = self.driver.detach(conn) else {
            if was_held {
                self.hold(index, Held::INPUT);
                self.leave(index);
            }
            return None;
        };
        let deadline = self.ex.millis();
        let conn = self.table.get_mut(index)?;
        let machine = std::mem::replace(&mut conn.machine, Machine::Closing { deadline });
        let slot = self.table.take_slot(index);
        self.drop_connection(index);
        match machine {
            Machine::WebSocket(socket) => Some(TransferredSocket { detached, socket, slot }),
            Machine::Preface(_) | Machine::Http(_) | Machine::Closing { .. } => None,
        }
    }

    /// A client has come from the core that its id names.
    pub(super) fn arrive(&mut self, migration: Migration) {
        let Migration { client, carrier, probe, identity, handshake } = migration;
        let id = self.clients.engineio.insert(engineio::Client::arrived(&self.ex, client)).state().id;
        if let Some(identity) = identity {
            self.ex.questions.identities.set_client(id, identity);
        }
        if let Some(handshake) = handshake {
            self.ex.handshakes.set(id, handshake);
        }
        let was_carried = carrier.is_some();
        let carrier = carrier.and_then(|socket| self.attach_socket(socket, id));
        let probe = probe.and_then(|(socket, answered)| Some((self.attach_socket(socket, id)?, answered)));
        let now = self.ex.millis();
        let until = now.after(self.ex.options().engine.upgrade_timeout);
        let Some(client) = self.clients.engineio.get_mut(id) else { return };
        if let Some(conn) = carrier {
            client.state_mut().transport = ActiveTransport::WebSocket(conn);
        }
        if let Some((conn, answered)) = probe {
            client.probe = Some(Probe { conn, answered, release_at: now, until });
        }
        if self.ex.draining {
            client.end(&mut self.ex, End::Because(Disconnect::Shutdown));
        } else if was_carried && carrier.is_none() {
            client.end(&mut self.ex, End::Gone);
        }
        self.arm_client(id);
    }

    fn attach_socket(&mut self, transferred: TransferredSocket, client: ClientId) -> Option<ConnId> {
        let TransferredSocket { detached, socket, mut slot } = transferred;
        let conn = match self.driver.attach(detached) {
            Ok(conn) => conn,
            Err(error) => {
                self.ex.release_connection(&mut slot);
                tracing::warn!(%error, "a connection was lost between two cores");
                return None;
            }
        };
        let has_unread = socket.has_unread();
        let index = self.table.insert(conn, Machine::WebSocket(socket.moved_to(self.ex.millis(), client)));
        self.table.set_slot(index, slot);
        self.weigh(index);
        if let Some(Conn { machine: Machine::WebSocket(socket), .. }) = self.table.get(index)
            && let Some(due) = socket.poll_timeout(&self.ex)
        {
            self.arm(index, due);
        }
        if has_unread {
            self.hold(index, Held::INPUT);
            self.revisit.push_back(index);
        }
        Some(conn)
    }
}
