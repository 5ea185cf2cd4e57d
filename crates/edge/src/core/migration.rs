//! Moves a client to the core that has its missed messages.
//!
//! A Socket.IO client that reconnects may reach any core. It names its earlier socket only in its CONNECT, by a `pid`
//! that names the core with that socket. If nothing else has happened on the new connection, the whole client moves to
//! that core: its queue, the WebSocket that carries or will carry it, and the request that contained the CONNECT. That
//! core parses the request again.
//!
//! ```text
//!   here                                              there
//!   CONNECT with a pid of `there` ── CoreMessage::Client ─► the client, by the same id
//!   the POST that it came in ─────── CoreMessage::Connection ► the rest of its body, CONNECT first
//!   later requests ───────────────── CoreMessage::Connection ► (the id names `here`, which knows)
//!                    ◄──── CoreMessage::Ended ────────────── it has ended
//! ```
//!
//! **Invariants.** A client moves at most once, away from the core that its id names. Mail between two cores is first in, first
//! out, so a connection never arrives before its client, and asks at most once for a client that has ended. If a move isn't
//! possible (an answer is in flight, or the table has no room), the client stays and starts a new session.

use super::mail::{Migration, TransferredSocket};
use super::table::{Conn, Held, Machine};
use super::{Connections, Mail, Protocols, clients};
use stentor_driver::{ConnId, Driver};
use stentor_hub::{CoreId, Disconnect};
use stentor_session::app::HandlerScope;
use stentor_session::executor::Executor;
use stentor_session::identity::{ClientId, End};
use stentor_session::protocols::client::{ActiveTransport, Client as _};
use stentor_session::protocols::engineio;
use stentor_session::protocols::engineio::Probe;

pub(super) fn migrate_or_stay(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    id: ClientId,
    core: CoreId,
) {
    if !migrate(conns, protocols, mail, id, core) {
        protocols.stay(id);
    }
}

/// Moves a client. Returns `true` if it has left this core.
pub(super) fn migrate(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    id: ClientId,
    core: CoreId,
) -> bool {
    let Some(limits) = protocols.ex.options().engine.recovery else { return false };
    let Some(client) = protocols.clients.engineio.get_mut(id) else { return false };
    let (sid, transport) = (client.state().sid, client.state().transport);
    let is_polling = !matches!(transport, ActiveTransport::WebSocket(_));
    if client.state().ended
        || !client.socketio().is_some_and(|io| io.is_fresh())
        || protocols.ex.is_draining()
        || is_polling && protocols.departed.count() >= limits.sessions_max
    {
        return false;
    }
    let carrier = match transport {
        ActiveTransport::WebSocket(conn) => Some(conn),
        ActiveTransport::None | ActiveTransport::Poll(_) | ActiveTransport::Stream(_) => None,
    };
    let probe = client.probe.as_ref().map(|probe| (probe.conn, probe.answered));
    // At most one of the two exists: a client polls, or has moved to its WebSocket.
    let socket = carrier.or(probe.map(|(conn, _)| conn));
    if let ActiveTransport::Poll(_) = transport {
        // The next poll finds the client on the other core.
        client.write_noop(&mut protocols.ex);
        clients::flush_client(conns, protocols, id);
    }
    let mut transferred = match socket.map(|conn| conns.detach_socket(&mut protocols.ex, conn)) {
        Some(None) => return false,
        detached => detached.flatten(),
    };
    let Some(client) = protocols.clients.engineio.remove(id) else { return false };
    if let Some(timer) = client.state().timer {
        conns.driver.timer_cancel(timer.id);
    }
    let identity = protocols.ex.take_client(id);
    let migration = Migration {
        client: client.migrate(),
        carrier: carrier.and_then(|_| transferred.take()),
        probe: probe.and_then(|(_, answered)| Some((transferred.take()?, answered))),
        identity,
    };
    if is_polling {
        protocols.departed.insert(sid, core);
    }
    mail.post_client(core, migration);
    protocols.ex.notify_app(HandlerScope::default(), |app, ctx| app.client_disconnected(ctx, sid));
    true
}

impl<D: Driver> Connections<D> {
    /// Removes a WebSocket from this core, if no bytes of it are in progress.
    fn detach_socket(&mut self, ex: &mut Executor, conn: ConnId) -> Option<TransferredSocket> {
        let index = self.table.index_of(conn)?;
        let Conn { in_flight: false, replies, held, .. } = self.table.get(index)? else { return None };
        if held.has(Held::CORES) || replies.is_some() {
            return None;
        }
        let was_held = held.has(Held::INPUT);
        // The next core starts without a reason to pause reading.
        self.release(index, Held::INPUT);
        self.release(index, Held::TURN);
        let Some(detached) = self.driver.detach(conn) else {
            if was_held {
                self.hold(index, Held::INPUT);
                self.leave(ex, index);
            }
            return None;
        };
        let deadline = ex.millis();
        let conn = self.table.get_mut(index)?;
        let machine = std::mem::replace(&mut conn.machine, Machine::Closing { deadline });
        let slot = self.table.take_slot(index);
        self.drop_connection(ex, index);
        match machine {
            Machine::WebSocket(socket) => Some(TransferredSocket { detached, socket, slot }),
            Machine::Preface(_) | Machine::Http(_) | Machine::Closing { .. } => None,
        }
    }

    fn attach_socket(
        &mut self,
        ex: &mut Executor,
        transferred: TransferredSocket,
        client: ClientId,
    ) -> Option<ConnId> {
        let TransferredSocket { detached, socket, mut slot } = transferred;
        let conn = match self.driver.attach(detached) {
            Ok(conn) => conn,
            Err(error) => {
                ex.release_connection(&mut slot);
                tracing::warn!(%error, "a connection was lost between two cores");
                return None;
            }
        };
        let has_unread = socket.has_unread();
        let index = self.table.insert(conn, Machine::WebSocket(socket.moved_to(ex.millis(), client)));
        self.table.set_slot(index, slot);
        self.weigh(ex, index);
        if let Some(Conn { machine: Machine::WebSocket(socket), .. }) = self.table.get(index)
            && let Some(due) = socket.poll_timeout(ex)
        {
            self.arm(ex, index, due);
        }
        if has_unread {
            self.hold(index, Held::INPUT);
            self.revisit.push_back(index);
        }
        Some(conn)
    }
}

/// Receives a client from the core that its id names.
pub(super) fn arrive(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, migration: Migration) {
    let Migration { client, carrier, probe, identity } = migration;
    let id = protocols.clients.engineio.insert(engineio::Client::arrived(&protocols.ex, client)).state().id;
    protocols.ex.set_client(id, identity);
    let was_carried = carrier.is_some();
    let carrier = carrier.and_then(|socket| conns.attach_socket(&mut protocols.ex, socket, id));
    let probe = probe
        .and_then(|(socket, answered)| Some((conns.attach_socket(&mut protocols.ex, socket, id)?, answered)));
    let now = protocols.ex.millis();
    let until = now.after(protocols.ex.options().engine.upgrade_timeout);
    let Some(client) = protocols.clients.engineio.get_mut(id) else { return };
    if let Some(conn) = carrier {
        client.state_mut().transport = ActiveTransport::WebSocket(conn);
    }
    if let Some((conn, answered)) = probe {
        client.probe = Some(Probe { conn, answered, release_at: now, until });
    }
    if protocols.ex.is_draining() {
        client.end(&mut protocols.ex, End::Because(Disconnect::Shutdown));
    } else if was_carried && carrier.is_none() {
        client.end(&mut protocols.ex, End::Gone);
    }
    clients::arm_client(conns, protocols, id);
}
