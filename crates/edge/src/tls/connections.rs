//! The TLS connections of a core. Handles events of the driver and sends of the core.
//!
//! One answer of a handshake, most often the first, takes about a millisecond of CPU, or several with a long RSA key. So a turn
//! spends `HANDSHAKES_PER_TURN` on answers. Further handshakes wait for the next turns and aren't read from. Unfinished
//! handshakes have a deadline; at their maximum number, the oldest one ends.
//!
//! Encrypted frames belong to one connection, so frames are encrypted in pieces (`sending`), each when the kernel has accepted
//! the previous one. A client that doesn't read thus holds one piece, and references to shared frames.
//!
//! **Invariants.** At most one send of the driver is in flight per connection, including sends of the layer itself
//! (`driver_sends`). Further data waits in `pending` and `backlog`, in this order, and both are empty while no send is in flight.

use super::TlsHandle;
use super::connection::{Connection, Stage};
use super::session::{Agreed, Session};
use crate::ledger::{Charge, Class, Ledger};
use handshakes::Handshakes;
use rustls::ServerConfig;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, DetachedConnection, Driver, Event, ReceiveBuffer, Sending};
use stentor_hub::Chunks;
use stentor_session::metrics::CoreMetrics;
use stentor_session::metrics::tls::HandshakeFailure;

/// CPU time of a key exchange. It is part of the first answer, or of the last one in TLS 1.2.
const KEY_EXCHANGE: Duration = Duration::from_micros(500);
/// CPU time of the last answer in TLS 1.3.
const LAST_ANSWER: Duration = Duration::from_micros(100);
/// Maximum size of an incomplete record, or of the records of an incomplete handshake message.
const UNREAD_BYTES_MAX: usize = 32 * 1024;
/// Size of the buffer for the plaintext of one read and of the bytes that were unread before.
const PLAIN_BYTES: usize = UNREAD_BYTES_MAX + 64 * 1024;
/// Maximum size of the layer's own pending data: answers to key updates.
const PENDING_BYTES_MAX: usize = 16 * 1024;
/// Time that a peer has to close after it was sent an alert.
const ALERT_LINGER: Duration = Duration::from_secs(1);
/// The fixed size of a connection with rustls' state, as measured by `tests/tls_memory.rs`.
const CONNECTION_BYTES: usize = 2_900;

/// The answer to plain HTTP, which a browser shows.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 45\r\nConnection: close\r\n\r\n\
    Plain HTTP was sent to a port that uses TLS.\n";

/// The layer's options.
pub(crate) struct TlsSettings {
    pub(crate) handle: TlsHandle,
    /// Maximum time from the start of a connection to the end of its handshake.
    pub(crate) timeout: Duration,
    /// Maximum number of unfinished handshakes.
    pub(crate) handshakes_max: usize,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) metrics: Arc<CoreMetrics>,
    /// The token of the layer's timer. The core doesn't receive its events.
    pub(crate) timer: u64,
}

pub(super) struct Tls {
    handle: TlsHandle,
    config: Arc<ServerConfig>,
    connections: Chunks<Option<Box<Connection>>>,
    /// Events that the core receives before those of the driver.
    events: VecDeque<Event>,
    handshakes: Handshakes,
    /// Connections that have left the core, by the near ends of their socket pairs.
    pub(super) pumps: HashMap<ConnId, ConnId>,
    /// A spare buffer for plaintext.
    plain: Option<ReceiveBuffer>,
    /// Buffer for ciphertext.
    out: Vec<u8>,
    /// Buffer for the plaintext of several frames.
    gathered: Vec<u8>,
    charge: Charge,
    metrics: Arc<CoreMetrics>,
}

impl Tls {
    pub(super) fn new(settings: TlsSettings) -> Self {
        let TlsSettings { handle, timeout, handshakes_max, ledger, metrics, timer } = settings;
        Self {
            config: handle.config(),
            handle,
            connections: Chunks::default(),
            events: VecDeque::new(),
            handshakes: Handshakes::new(handshakes_max, timeout, timer),
            pumps: HashMap::new(),
            plain: None,
            out: Vec::new(),
            gathered: Vec::new(),
            charge: Charge::new(ledger, Class::Tls),
            metrics,
        }
    }

    pub(super) fn get(&self, conn: ConnId) -> Option<&Connection> {
        self.connections.get(conn.index())?.as_deref().filter(|connection| connection.id == conn)
    }

    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(conn.index())?.as_deref_mut().filter(|connection| connection.id == conn)
    }

    /// Takes a connection out of the table while it is handled.
    pub(super) fn take(&mut self, conn: ConnId) -> Option<Box<Connection>> {
        self.connections.get_mut(conn.index())?.take_if(|connection| connection.id == conn)
    }

    /// Puts a connection into the table.
    fn put(&mut self, mut connection: Box<Connection>) {
        let held = connection.held_bytes();
        if held != connection.charged {
            self.charge.add(held);
            self.charge.subtract(connection.charged);
            connection.charged = held;
        }
        let index = connection.id.index();
        while self.connections.len() <= index {
            self.connections.push(None);
        }
        self.connections[index] = Some(connection);
    }

    pub(super) fn insert(&mut self, connection: Box<Connection>) {
        self.charge.add(CONNECTION_BYTES);
        self.put(connection);
    }

    /// Removes a connection that was taken out of the table.
    pub(super) fn remove<D: Driver>(&mut self, driver: &mut D, connection: &mut Connection) {
        self.end_pump(driver, connection);
        self.charge.subtract(CONNECTION_BYTES + connection.charged);
        connection.charged = 0;
        if !connection.is_open() {
            self.handshakes.end();
        }
    }

    pub(super) fn begin<D: Driver>(&mut self, driver: &mut D, conn: ConnId, received: Vec<u8>) {
        while let Some(oldest) = self.handshakes.pop_excess() {
            self.end_unfinished(driver, oldest, HandshakeFailure::Evicted);
        }
        let now = driver.now();
        self.handshakes.begin(now, conn);
        let mut connection = Box::new(Connection::new(conn, now));
        connection.unread = received;
        if !connection.unread.is_empty() {
            self.wait_for_turn(driver, &mut connection);
        }
        self.insert(connection);
        self.set_timer(driver);
    }

    fn set_timer<D: Driver>(&mut self, driver: &mut D) {
        // Completed handshakes have no deadline.
        while let Some(conn) = self.handshakes.first_deadline()
            && self.get(conn).is_none_or(Connection::is_open)
        {
            self.handshakes.pop_deadline();
        }
        self.handshakes.set_timer(driver);
    }

    fn expire<D: Driver>(&mut self, driver: &mut D) {
        self.handshakes.end_timer();
        while let Some(conn) = self.handshakes.pop_late(driver.now()) {
            self.end_unfinished(driver, conn, HandshakeFailure::Timeout);
        }
        self.set_timer(driver);
    }

    /// Ends a handshake unless it is complete.
    fn end_unfinished<D: Driver>(&mut self, driver: &mut D, conn: ConnId, why: HandshakeFailure) {
        if self.get(conn).is_some_and(|connection| !connection.is_open())
            && let Some(connection) = self.take(conn)
        {
            self.metrics.tls.fail(why);
            self.end(driver, connection, &[]);
        }
    }

    /// Ends a connection after sending `last`.
    fn end<D: Driver>(&mut self, driver: &mut D, mut connection: Box<Connection>, last: &[u8]) {
        let conn = connection.id;
        self.remove(driver, &mut connection);
        if last.is_empty() || connection.driver_sends {
            driver.close(conn);
        } else {
            let _ = driver.send_bytes(conn, last);
            driver.finish(conn, ALERT_LINGER);
        }
        self.events.push_back(Event::Closed { conn, error: None });
    }

    pub(super) fn next_event<D: Driver>(&mut self, driver: &mut D) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = match driver.next_event() {
                Some(event) if self.pumps.is_empty() => self.handle(driver, event),
                Some(event) => match self.pump(driver, event) {
                    Some(event) => self.handle(driver, event),
                    None => continue,
                },
                None => {
                    let conn = self.handshakes.next()?;
                    self.resume_handshake(driver, conn)
                }
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Handles an event of the driver. Returns the resulting event for the core.
    fn handle<D: Driver>(&mut self, driver: &mut D, event: Event) -> Option<Event> {
        match event {
            Event::Received { conn, data, at } => match self.take(conn) {
                Some(connection) => self.receive(driver, connection, Some(data), at),
                None => Some(Event::Received { conn, data, at }),
            },
            Event::Sent(conn) => match self.take(conn) {
                Some(connection) => self.sent(driver, connection),
                None => Some(event),
            },
            Event::PeerFinished(conn) if self.get(conn).is_some_and(|c| c.pump.is_some()) => {
                let connection = self.take(conn)?;
                self.finish(driver, connection, Duration::ZERO);
                None
            }
            // The core receives this event only if the core, and not only the layer, has paused the connection.
            Event::EndPending(conn) => {
                let is_cores = |c: &Connection| c.is_paused && c.pump.is_none();
                self.get(conn).is_none_or(is_cores).then_some(event)
            }
            Event::PeerFinished(conn) => {
                let known = self.get_mut(conn).map(|c| std::mem::replace(&mut c.has_finished, true));
                (known != Some(true)).then_some(event)
            }
            Event::Closed { conn, .. } => {
                if let Some(mut connection) = self.take(conn) {
                    if !connection.is_open() {
                        self.metrics.tls.fail(HandshakeFailure::Disconnected);
                    }
                    self.remove(driver, &mut connection);
                }
                Some(event)
            }
            Event::Timer(token) if self.handshakes.is_timer(token) => {
                self.expire(driver);
                None
            }
            other => Some(other),
        }
    }

    /// Leaves the unread bytes for a later turn, if this turn has no time left for them.
    fn wait_for_turn<D: Driver>(&mut self, driver: &mut D, connection: &mut Connection) {
        connection.is_waiting = true;
        driver.pause(connection.id);
        self.handshakes.wait(connection.id, connection.is_answered);
    }

    fn resume_handshake<D: Driver>(&mut self, driver: &mut D, conn: ConnId) -> Option<Event> {
        let mut connection = self.take(conn)?;
        connection.is_waiting = false;
        if !connection.is_paused {
            driver.resume(conn);
        }
        let now = driver.now();
        self.receive(driver, connection, None, now)
    }

    fn receive<D: Driver>(
        &mut self,
        driver: &mut D,
        mut connection: Box<Connection>,
        mut data: Option<ReceiveBuffer>,
        at: Instant,
    ) -> Option<Event> {
        let conn = connection.id;
        let first = connection.unread.first().or_else(|| data.as_ref()?.first());
        if let (Stage::New, Some(first)) = (&connection.stage, first) {
            let session = Session::new(self.config.clone());
            if let (false, Ok(session)) = (first.is_ascii_uppercase(), session) {
                connection.stage = Stage::Handshake(session);
            } else {
                // The first byte is a capital letter, like the first byte of an HTTP request. No TLS record begins with
                // one.
                self.metrics.tls.fail(HandshakeFailure::PlainHttp);
                data.into_iter().for_each(|data| driver.recycle(data));
                self.end(driver, connection, PLAIN_HTTP);
                return None;
            }
        }
        let is_kept = !connection.unread.is_empty();
        let must_wait = !connection.is_open() && !self.handshakes.has_time();
        if (is_kept || must_wait)
            && let Some(data) = data.take()
        {
            connection.unread.extend_from_slice(&data);
            driver.recycle(data);
        }
        if must_wait && connection.unread.len() <= UNREAD_BYTES_MAX {
            self.wait_for_turn(driver, &mut connection);
            self.put(connection);
            return None;
        }
        let mut plain = self.plain.take().unwrap_or_else(|| ReceiveBuffer::with_capacity(PLAIN_BYTES));
        self.out.clear();
        let (Stage::Handshake(session) | Stage::Open(session)) = &mut connection.stage else {
            return None;
        };
        let unread = &mut connection.unread;
        let input = data.as_deref_mut().unwrap_or(unread);
        let outcome = session.receive(input, |bytes| plain.append(bytes), &mut self.out);
        match data {
            Some(data) => {
                unread.extend_from_slice(&data[outcome.consumed..]);
                driver.recycle(data);
            }
            None if outcome.consumed == unread.len() => *unread = Vec::new(),
            None => drop(unread.drain(..outcome.consumed)),
        }
        let is_done = !session.is_handshaking();
        if let (Stage::Handshake(session), false) = (&connection.stage, self.out.is_empty()) {
            let time = self.answer_time(connection.is_answered, session);
            self.handshakes.spend(time);
        }
        if let (Stage::Handshake(session), false, false) =
            (&connection.stage, connection.is_answered, self.out.is_empty())
        {
            // If another ClientHello is requested, the next answer is the expensive one.
            let asks_again =
                session.has_asked_again() && !std::mem::replace(&mut connection.asked_again, true);
            connection.is_answered = !asks_again;
        }
        if is_done && let Stage::Handshake(_) = connection.stage {
            self.open(&mut connection, at);
        }
        let is_overlong = connection.unread.len() > UNREAD_BYTES_MAX;
        let is_flood =
            connection.pending.len() + self.out.len() > PENDING_BYTES_MAX && connection.driver_sends;
        let has_plain = !plain.is_empty();
        let pump = connection.pump;
        if let (Some(near), true) = (pump, has_plain) {
            self.pump_plain(driver, conn, near, &plain);
        }
        let (error, out) = (outcome.error, std::mem::take(&mut self.out));
        if outcome.peer_finished && !std::mem::replace(&mut connection.has_finished, true) {
            self.events.push_back(Event::PeerFinished(conn));
        }
        if error.is_some() || is_overlong || is_flood {
            match error {
                _ if !connection.is_open() => self.metrics.tls.fail(HandshakeFailure::Protocol),
                _ => self.metrics.tls_errors.add(1),
            }
            self.end(driver, connection, &out);
        } else {
            self.write(driver, &mut connection, &out);
            self.put(connection);
        }
        self.out = out;
        if let (Some(_), true) = (pump, outcome.peer_finished)
            && let Some(connection) = self.take(conn)
        {
            self.finish(driver, connection, Duration::ZERO);
        }
        if has_plain && pump.is_none() {
            return Some(Event::Received { conn, data: plain, at });
        }
        plain.clear();
        self.plain = Some(plain);
        None
    }

    /// Approximate CPU time of an answer.
    fn answer_time(&self, is_answered: bool, session: &Session) -> Duration {
        match is_answered {
            false => KEY_EXCHANGE + self.handle.signing_time(),
            true if session.agreed().is_version_13 => LAST_ANSWER,
            true => KEY_EXCHANGE,
        }
    }

    /// Handles the end of a handshake.
    fn open(&mut self, connection: &mut Connection, at: Instant) {
        if let Stage::Handshake(session) = std::mem::replace(&mut connection.stage, Stage::New) {
            let Agreed { is_version_13, is_resumed } = session.agreed();
            self.metrics.tls.complete(
                is_version_13,
                is_resumed,
                at.saturating_duration_since(connection.begun),
            );
            connection.stage = Stage::Open(session);
            self.handshakes.end();
        }
    }

    /// Sends ciphertext of the layer itself, now or after the send in flight.
    fn write<D: Driver>(&mut self, driver: &mut D, connection: &mut Connection, out: &[u8]) {
        if connection.driver_sends {
            connection.pending.extend_from_slice(out);
        } else if !out.is_empty() {
            connection.driver_sends = driver.send_bytes(connection.id, out) == Sending::InFlight;
        }
    }

    /// Called when the driver has sent all bytes of a connection that were in flight.
    fn sent<D: Driver>(&mut self, driver: &mut D, mut connection: Box<Connection>) -> Option<Event> {
        let conn = connection.id;
        connection.driver_sends = false;
        let pending = std::mem::take(&mut connection.pending);
        self.write(driver, &mut connection, &pending);
        if !self.encrypt_backlog(driver, &mut connection) {
            self.end(driver, connection, &[]);
            return None;
        }
        let is_sent = !connection.driver_sends && std::mem::take(&mut connection.core_sends);
        let pump = connection.pump.filter(|_| is_sent);
        self.put(connection);
        match pump {
            Some(near) => {
                driver.resume(near);
                None
            }
            None => is_sent.then_some(Event::Sent(conn)),
        }
    }

    /// Sends close_notify to the peer, if it can be sent at once.
    pub(super) fn finish<D: Driver>(
        &mut self,
        driver: &mut D,
        mut connection: Box<Connection>,
        linger: Duration,
    ) {
        let conn = connection.id;
        self.remove(driver, &mut connection);
        if connection.waiting_bytes() > 0 {
            // The peer doesn't read, and has an incomplete record.
            return driver.close(conn);
        }
        if let (Stage::Open(session), false) = (&mut connection.stage, connection.driver_sends) {
            self.out.clear();
            session.close(&mut connection.unread, &mut self.out);
            let _ = driver.send_bytes(conn, &self.out);
        }
        driver.finish(conn, linger);
    }

    /// Returns `true` if a connection is open and has no pending data of the layer.
    pub(super) fn is_idle(&self, conn: ConnId) -> bool {
        let has_event = |event: &Event| matches!(event, Event::PeerFinished(other) if *other == conn);
        let is_still = |connection: &Connection| connection.is_open() && !connection.driver_sends;
        self.get(conn).is_some_and(is_still) && !self.events.iter().any(has_event)
    }

    pub(super) fn detach<D: Driver>(&mut self, driver: &mut D, conn: ConnId) -> Option<DetachedConnection> {
        if !self.is_idle(conn) {
            return None;
        }
        let mut detached = driver.detach(conn)?;
        let mut connection = self.take(conn)?;
        self.remove(driver, &mut connection);
        detached.state = Some(connection);
        Some(detached)
    }

    /// Begins a turn. Returns `true` if there is work that no event of the driver announces.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.handshakes.begin_turn() || !self.events.is_empty()
    }

    /// Takes back a buffer of the layer. Returns other buffers.
    pub(super) fn recycle(&mut self, mut buffer: ReceiveBuffer) -> Option<ReceiveBuffer> {
        if buffer.capacity() < PLAIN_BYTES {
            return Some(buffer);
        }
        buffer.clear();
        self.plain = Some(buffer);
        None
    }
}

mod handshakes;
mod sending;
#[cfg(test)]
mod tests;
