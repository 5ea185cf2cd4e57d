//! Clients that move to another core, to get back what they lost.
//!
//! A Socket.IO client that lost its connection begins anew wherever its new connection lands, and says only in its
//! CONNECT which sockets it had: the core that keeps them is named by their `pid`. Before anything else has happened on
//! it, the whole client moves there: its queue, the WebSocket that carries it or wants to, and the request that brought
//! the CONNECT, which is looked at again where it arrives.
//!
//! ```text
//!   here                                              there
//!   CONNECT with a pid of `there` ── Mail::Client ──► the client, by the same id
//!   the POST that it came in ─────── Mail::Connection ► the rest of its body, CONNECT first
//!   later requests ───────────────── Mail::Connection ► (the id names `here`, which knows)
//!                    ◄──── Mail::Ended ────────────── it has ended
//! ```
//!
//! **Invariants.** A client moves at most once, away from the core that its id names. Mail between two cores is first
//! in, first out, so a connection never arrives before the client that it asks for, nor asks for one that has ended
//! twice. Where something stands in the way (an answer in flight, no room in the table), the client stays, and begins
//! anew.

use super::super::client::{Carrier, Client, ClientId, End, Protocol, Sid, SidHasher, Upper};
use super::super::mail::Mail;
use super::super::socketio::SocketIo;
use super::super::table::{Accepts, Conn, Held, Socket, Speech, Stack, Unread};
use super::super::wishes::Feeds;
use super::super::{About, Core};
use super::{Engine, Probe, payload};
use crate::app::Envelope;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use stentor_driver::{ConnId, Driver, Parcel};
use stentor_hub::{CoreId, Disconnect};
use stentor_wire::engineio::Version;
use stentor_wire::ws;

/// Where clients are that began on this core and were moved: no more than may be suspended.
#[derive(Default)]
pub(in super::super) struct Departed(HashMap<Sid, CoreId, BuildHasherDefault<SidHasher>>);

impl Departed {
    pub(in super::super) fn core_of(&self, sid: Sid) -> Option<CoreId> {
        self.0.get(&sid).copied()
    }

    pub(in super::super) fn forget(&mut self, sid: Sid) {
        self.0.remove(&sid);
    }
}

/// A client on its way. Its sockets are still to come, and its timers begin anew.
pub(crate) struct Departure {
    sid: Sid,
    source: u64,
    version: Version,
    base64: bool,
    queue: Vec<u8>,
    feeds: Option<Box<Feeds>>,
    carrier: Option<Cargo>,
    probe: Option<(Cargo, bool)>,
}

/// A WebSocket on its way.
struct Cargo {
    parcel: Parcel,
    ws: ws::Connection,
    unread: Option<Box<Unread>>,
}

impl<D: Driver> Core<D> {
    /// The client isn't moved: what it lost can't be had.
    pub(in super::super) fn stay(&mut self, id: ClientId) {
        if let Some(Client { upper: Upper::SocketIo(io), .. }) = self.clients.get_mut(id) {
            io.stays = true;
        }
    }

    pub(in super::super) fn depart_or_stay(&mut self, id: ClientId, core: CoreId) {
        if !self.depart(id, core) {
            self.stay(id);
        }
    }

    /// Moves a client, and says whether it has gone.
    pub(in super::super) fn depart(&mut self, id: ClientId, core: CoreId) -> bool {
        let Some(limits) = self.shared.options.engine.recovery else { return false };
        let Some(client) = self.clients.get(id) else { return false };
        let sid = client.sid;
        let Upper::SocketIo(io) = &client.upper else { return false };
        let is_polled = !matches!(client.carrier, Carrier::Socket(_));
        if client.ended
            || !io.is_fresh()
            || self.draining
            || is_polled && self.departed.0.len() >= limits.sessions_max
        {
            return false;
        }
        let carrier = match client.carrier {
            Carrier::Socket(conn) => Some(conn),
            Carrier::None | Carrier::Poll(_) | Carrier::Stream(_) => None,
        };
        let probe = client
            .engine()
            .and_then(|engine| engine.probe.as_ref())
            .map(|probe| (probe.conn, probe.answered));
        // One of the two at the most: a client is polled, or has moved to its WebSocket.
        let socket = carrier.or(probe.map(|(conn, _)| conn));
        if let Some(Client { queue, carrier: Carrier::Poll(_), .. }) = self.clients.get_mut(id) {
            // The next poll finds it there.
            queue.extend_from_slice(&payload::NOOP);
            self.flush_client(id);
        }
        let mut cargo = match socket.map(|conn| self.pack(conn)) {
            Some(None) => return false,
            packed => packed.flatten(),
        };
        let Some(client) = self.take_client(id) else { return false };
        let Protocol::Engine(Engine { version, base64, .. }) = client.protocol else { return false };
        let feeds = match client.upper {
            Upper::SocketIo(io) => io.into_feeds(),
            _ => None,
        };
        let departure = Departure {
            sid,
            source: client.source,
            version,
            base64,
            queue: client.queue,
            feeds,
            carrier: carrier.and_then(|_| cargo.take()),
            probe: probe.and_then(|(_, answered)| Some((cargo.take()?, answered))),
        };
        if is_polled {
            self.departed.0.insert(sid, core);
        }
        self.post(core, Mail::Client(Box::new(departure)));
        let name = sid.to_string();
        self.ask_app(About::default(), |app, ctx| app.gone(ctx, &name));
        true
    }

    /// Takes a WebSocket out of this core, if nothing of it is under way.
    fn pack(&mut self, conn: ConnId) -> Option<Cargo> {
        let index = self.table.index_of(conn)?;
        let Conn { in_flight: false, replies, held, .. } = self.table.get(index)? else { return None };
        if held.has(Held::CORES) || replies.is_some() {
            return None;
        }
        let was_held = held.has(Held::INPUT);
        // The next core knows no reason not to read.
        self.release(index, Held::INPUT);
        self.release(index, Held::TURN);
        let Some(parcel) = self.driver.detach(conn) else {
            if was_held {
                self.hold(index, Held::INPUT);
                self.leave(index);
            }
            return None;
        };
        let Some(Conn { stack: Stack::Socket(socket), .. }) = self.table.get_mut(index) else { return None };
        let ws = std::mem::replace(&mut socket.ws, ws::Connection::new(ws::Role::Server, None));
        let unread = socket.unread.take();
        self.drop_connection(index);
        Some(Cargo { parcel, ws, unread })
    }

    /// A client has come from the core that its id names.
    pub(in super::super) fn arrive(&mut self, departure: Departure) {
        let Departure { sid, source, version, base64, queue, feeds, carrier, probe } = departure;
        let now = self.millis();
        let options = &self.shared.options;
        let until = now.after(options.engine.upgrade_timeout);
        let due_at = now.after(options.heartbeat.interval);
        let connect_until = now.after(options.engine.connect_timeout);
        let engine = Engine { version, is_socketio: true, base64, probe: None, pinged_at: None };
        let mut client = Client::new(sid, Protocol::Engine(engine), Carrier::None, now, due_at);
        client.upper = Upper::SocketIo(Box::new(SocketIo::new(connect_until, feeds)));
        client.queue = queue;
        client.source = source;
        client.weigh(&self.shared.ledger);
        let id = self.clients.insert(client);
        self.arm_client(id, due_at.earlier(connect_until));
        let was_carried = carrier.is_some();
        let carrier = carrier.and_then(|cargo| self.unpack(cargo, id));
        let probe = probe.and_then(|(cargo, answered)| Some((self.unpack(cargo, id)?, answered)));
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(conn) = carrier {
            client.carrier = Carrier::Socket(conn);
        }
        if let (Some((conn, answered)), Some(engine)) = (probe, client.engine_mut()) {
            engine.probe = Some(Probe { conn, answered, release_at: now, until });
            self.arm_client(id, now);
        }
        if self.draining {
            self.end_client(id, End::Because(Disconnect::Shutdown));
        } else if was_carried && carrier.is_none() {
            self.end_client(id, End::Gone);
        }
    }

    fn unpack(&mut self, cargo: Cargo, client: ClientId) -> Option<ConnId> {
        let Cargo { parcel, ws, unread } = cargo;
        let conn = match self.driver.attach(parcel) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::warn!(%error, "a connection was lost between two cores");
                return None;
            }
        };
        let now = self.millis();
        let message_since = ws.is_mid_message().then_some(now);
        let has_unread = unread.is_some();
        let socket = Socket {
            ws,
            accepts: Accepts::Client(client),
            speech: Speech::default(),
            envelope: Envelope::Raw,
            alive_at: now,
            pinged_at: None,
            message_since,
            unread,
        };
        let index = self.table.insert(conn, Stack::Socket(socket));
        self.weigh(index);
        if let Some(since) = message_since {
            self.arm(index, since.after(self.shared.options.limits.message_timeout));
        }
        if has_unread {
            self.hold(index, Held::INPUT);
            self.revisit.push_back(index);
        }
        Some(conn)
    }
}
