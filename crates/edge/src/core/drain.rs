//! Drains a node: ends its sessions one after another, so that their clients don't all reconnect at once.
//!
//! ```text
//!  drain ──► delay: served as usual ──► window: no new sessions ──► finish: the rest ends ──► the time is over
//!            (load balancers learn      (each session ends in       (requests that wait       (the remaining
//!             that it isn't ready)       a slot of its own)          get their response)       connections are cut)
//! ```
//!
//! At the start of the window, the sessions of a core are put into a random order. Each gets a slot of the same length,
//! and ends at a random time in it. If no session is left, the core finishes early. So closes are evenly distributed
//! for any number of sessions, which independent random times don't achieve for a small number. A session with pending
//! deliveries ends when they have been sent, at the latest with the window.
//!
//! A TLS connection that this node relays to another node has a slot as well. It ends because its TLS ends here, and
//! its client can reconnect to the other node directly.
//!
//! SSE streams end in the last second of the window. Their `retry` makes each browser's `EventSource` reconnect when the next
//! process listens.
//!
//! After a takeover, connections without a request end when the window opens, and the others after their response. So new requests of
//! a proxy, which shares its connections among its clients, reach the other process. Requests of existing sessions must still reach
//! this one: the other process relays them, or connections stay open while clients of this core poll.
//!
//! In a cluster, a node waits after the window for Socket.IO clients that can be recovered, those of workers included, because the
//! nodes to which they reconnect fetch their sockets from here.
//!
//! **Invariants.** A session or connection that begins after the start of the window, or is moved here, has no slot and ends with
//! the window. A second drain replaces the times of the first.

use super::table::{Conn, Machine};
use super::timer::Timer;
use super::{Connections, Mail, Protocols, Upkeep, actions, end};
use crate::ports::{Drain, NewConnections};
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, Driver};
use stentor_hub::{Disconnect, SessionId};
use stentor_session::app::Sent;
use stentor_session::identity::{ClientId, End};
use stentor_session::message::Envelope;
use stentor_session::protocols::client::{ActiveTransport, ClientState};

/// Interval between checks of a session whose pending deliveries haven't been sent.
const PENDING_RETRY: Duration = Duration::from_millis(100);

/// Time for which a node of a cluster waits for clients that can be recovered: socket.io-client's `reconnectionDelayMax`. A
/// client's first attempt follows after 0.5 to 1.5 s.
const RECOVERY_TIME: Duration = Duration::from_secs(5);

/// Time that a restart may take without an error in a browser's `EventSource`: Firefox gives up if the port is closed.
const RESTART_TIME: Duration = Duration::from_millis(1500);

/// Time at the end of the window in which SSE streams end. At most half of the window.
const STREAMS_TIME_MAX: Duration = Duration::from_secs(1);

/// Maximum reconnect delay of `stentor.v1` clients. Each gets a random one.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// A session or connection that ends in a slot.
#[derive(Clone, Copy)]
enum Target {
    Client(ClientId),
    Connection(ConnId),
    /// A connection relayed to another node. This node terminates its TLS.
    Relayed(ConnId),
}

/// A drain that has begun.
pub(super) struct Draining {
    window_begins: Instant,
    window_ends: Instant,
    ends: Instant,
    /// `true` if another process accepts new connections.
    is_replaced: bool,
    /// The time until which other nodes can recover clients.
    recovery_ends: Instant,
    /// `true` if this core has no work left. The other cores can see it.
    is_idle: bool,
    /// Targets in the order of their slots, the next one last.
    targets: Vec<Target>,
    /// The number of slots, and the number of slots at their end that belong to SSE streams.
    slots: usize,
    streams: usize,
    /// The time at which the next target ends.
    next_at: Instant,
    /// Targets whose slot has come, but whose deliveries are still pending.
    postponed: Vec<Target>,
    /// The time of the next check of these targets.
    retry_at: Instant,
    /// The time at which the remaining relayed connections end.
    relayed_end: Instant,
    random: fastrand::Rng,
}

impl Draining {
    /// Sets the time at which the next target ends: a random time in its slot.
    fn set_next(&mut self) {
        let window = self.window_ends - self.window_begins;
        let streams_time = if self.streams > 0 { STREAMS_TIME_MAX.min(window / 2) } else { Duration::ZERO };
        let streams_begin = self.window_ends - streams_time;
        let left = self.targets.len();
        let (begin, time, slots, left) = if left > self.streams {
            (self.window_begins, window - streams_time, self.slots - self.streams, left - self.streams)
        } else {
            (streams_begin, streams_time, self.streams, left)
        };
        let slot = (slots - left) as f64 + self.random.f64();
        self.next_at = begin + time.mul_f64(slot / slots.max(1) as f64);
    }

    /// Returns `true` if no target is left.
    fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.postponed.is_empty()
    }

    /// The time of the next step.
    fn next_timeout(&self) -> Instant {
        let next = if self.targets.is_empty() { self.window_ends } else { self.next_at };
        if self.postponed.is_empty() { next } else { next.min(self.retry_at) }
    }
}

impl Upkeep {
    /// Begins a drain.
    pub(super) fn begin_drain(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        mail: &mut Mail,
        drain: Drain,
    ) {
        let now = protocols.ex.now();
        if drain.new_connections != NewConnections::Accepted {
            conns.driver.stop_listening();
        }
        let window_begins = now + drain.delay;
        let window_ends = window_begins + drain.window;
        let seed = protocols.ex.shared.seed[0] ^ protocols.ex.core() as u64;
        if self.drain.as_deref().is_some_and(|before| before.is_idle) {
            protocols.ex.shared.set_idle(false);
        }
        self.drain = Some(Box::new(Draining {
            window_begins,
            window_ends,
            ends: window_ends + drain.timeout,
            is_replaced: drain.new_connections == NewConnections::Elsewhere,
            recovery_ends: window_begins,
            is_idle: false,
            targets: Vec::new(),
            slots: 0,
            streams: 0,
            next_at: window_begins,
            postponed: Vec::new(),
            retry_at: window_begins,
            relayed_end: window_ends,
            random: fastrand::Rng::with_seed(seed),
        }));
        let replaced_at = match drain.new_connections {
            NewConnections::Accepted => window_ends + RESTART_TIME,
            NewConnections::Waiting | NewConnections::Elsewhere => window_begins,
        };
        // A window that was already open starts again with the remaining sessions.
        protocols.ex.drain_mut().begin(replaced_at);
        self.continue_drain(conns, protocols, mail);
    }

    /// Returns `true` if all cores are drained, or the drain has timed out. A core continues until all cores are drained, because
    /// other cores need it when a socket moves to another node.
    #[inline]
    pub(super) fn is_drained(
        &mut self,
        conns: &Connections<impl Driver>,
        protocols: &Protocols,
        mail: &Mail,
    ) -> bool {
        protocols.ex.is_finishing() && self.check_drained(conns, protocols, mail)
    }

    fn check_drained(
        &mut self,
        conns: &Connections<impl Driver>,
        protocols: &Protocols,
        mail: &Mail,
    ) -> bool {
        let Some(drain) = self.drain.as_deref_mut() else { return false };
        let now = protocols.ex.now();
        let is_idle = conns.driver.connections() == 0
            && mail.mailboxes.is_empty()
            && (now >= drain.recovery_ends || !protocols.ex.keeps_sockets());
        if is_idle != drain.is_idle {
            drain.is_idle = is_idle;
            protocols.ex.shared.set_idle(is_idle);
        }
        protocols.ex.shared.is_idle() || now >= drain.ends
    }

    /// Carries out the steps of the drain that are due.
    pub(super) fn continue_drain(
        &mut self,
        conns: &mut Connections<impl Driver>,
        protocols: &mut Protocols,
        mail: &mut Mail,
    ) {
        let now = protocols.ex.now();
        let Some(mut drain) = self.drain.take() else { return };
        if now < drain.window_begins {
            conns.driver.timer_set(drain.window_begins, Timer::Drain.token());
        } else if now < drain.window_ends && !(protocols.ex.is_draining() && drain.is_empty()) {
            if !protocols.ex.is_draining() {
                let keeps_connections = !drain.is_replaced || needs_connections(protocols);
                protocols.ex.drain_mut().open_window(keeps_connections);
                begin_window(conns, protocols, &mut drain);
                if !keeps_connections {
                    end_idle(conns, protocols);
                }
            }
            if drain.retry_at <= now {
                drain.retry_at = now + PENDING_RETRY;
                for at in (0..drain.postponed.len()).rev() {
                    if end_target(conns, protocols, drain.postponed[at], &mut drain.random) {
                        drain.postponed.swap_remove(at);
                    }
                }
            }
            while drain.next_at <= now
                && let Some(target) = drain.targets.pop()
            {
                if !end_target(conns, protocols, target, &mut drain.random) {
                    drain.postponed.push(target);
                }
                drain.set_next();
            }
            // Without remaining targets, the drain finishes now.
            let next = if drain.is_empty() { now } else { drain.next_timeout().min(drain.window_ends) };
            conns.driver.timer_set(next, Timer::Drain.token());
        } else if !protocols.ex.is_finishing() || !protocols.ex.is_draining() {
            // The last slot may end with the window, and the timer may be a little late.
            for target in std::mem::take(&mut drain.targets) {
                end_target(conns, protocols, target, &mut drain.random);
            }
            protocols.ex.drain_mut().finish();
            finish_drain(conns, protocols, mail, &mut drain);
            if protocols.ex.options().broker.is_some() && drain.window_begins < drain.window_ends {
                drain.recovery_ends = drain.ends.min(now + RECOVERY_TIME);
                conns.driver.timer_set(drain.recovery_ends, Timer::Drain.token());
            }
            conns.driver.timer_set(drain.relayed_end, Timer::Drain.token());
            conns.driver.timer_set(drain.ends, Timer::Drain.token());
        } else if now >= drain.relayed_end {
            for conn in conns.driver.relayed() {
                conns.driver.end_relayed(conn, true);
            }
        }
        protocols.ex.metrics().drain_pending.set((drain.targets.len() + drain.postponed.len()) as u64);
        self.drain = Some(drain);
    }
}

/// Assigns a slot to each session and to each relayed connection, in random order; SSE streams have the last slots.
fn begin_window(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, drain: &mut Draining) {
    let clients = protocols.clients.ids().into_iter().map(Target::Client);
    let mut others: Vec<Target> = clients.collect();
    let mut targets = Vec::new();
    for index in conns.table.indices() {
        if let Some(conn) = conns.table.get(index)
            && has_slot(conn)
        {
            let is_stream = matches!(conn.machine, Machine::Http(_));
            let list = if is_stream { &mut targets } else { &mut others };
            list.push(Target::Connection(conn.id));
        }
    }
    others.extend(conns.driver.relayed().into_iter().map(Target::Relayed));
    drain.streams = targets.len();
    drain.random.shuffle(&mut targets);
    drain.random.shuffle(&mut others);
    targets.append(&mut others);
    drain.slots = targets.len();
    drain.targets = targets;
    drain.set_next();
}

/// Returns `true` if requests of this core's clients reach this process only by open connections: some clients poll, and the other
/// process can't relay.
fn needs_connections(protocols: &Protocols) -> bool {
    let polls =
        |state: &ClientState| !state.ended && !matches!(state.transport, ActiveTransport::WebSocket(_));
    protocols.ex.options().relay.is_none() && protocols.clients.iter().any(|client| polls(client.state()))
}

/// Ends all connections without a request. A request that crosses with the end gets no response, so its client can send it again
/// (RFC 9112, section 9.3.1).
fn end_idle(conns: &mut Connections<impl Driver>, protocols: &mut Protocols) {
    for index in conns.table.indices() {
        if conns.table.get(index).is_some_and(
            |conn| matches!(&conn.machine, Machine::Http(connection) if connection.http.is_idle()),
        ) {
            end::end(conns, protocols, index);
        }
    }
}

/// Ends a session whose slot has come. Returns `false` if the session has pending deliveries and stays.
fn end_target(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    target: Target,
    random: &mut fastrand::Rng,
) -> bool {
    match target {
        Target::Client(id) => {
            if client_has_pending(conns, protocols, id) {
                return false;
            }
            protocols.end_client(id, End::Because(Disconnect::Shutdown));
        }
        Target::Connection(conn) => {
            let Some(index) = conns.table.index_of(conn) else { return true };
            let session = conns.table.get(index).and_then(|conn| conn.session);
            if session.is_some_and(|session| protocols.ex.has_pending(session)) {
                return false;
            }
            end_connection(conns, protocols, index, session, random);
        }
        Target::Relayed(conn) => return conns.driver.end_relayed(conn, false),
    }
    true
}

/// Returns `true` if a client has pending messages that it can still receive.
fn client_has_pending(conns: &Connections<impl Driver>, protocols: &Protocols, id: ClientId) -> bool {
    let Some(state) = protocols.client_state(id).filter(|state| !state.ended) else { return false };
    if !state.queue.is_empty() {
        return true;
    }
    let conn = match state.transport {
        ActiveTransport::WebSocket(conn) | ActiveTransport::Stream(conn) => conns.table.index_of(conn),
        ActiveTransport::Poll(_) | ActiveTransport::None => None,
    };
    let has_replies =
        conn.and_then(|index| conns.table.get(index)).is_some_and(|conn| conn.replies.is_some());
    has_replies
        || protocols.clients.get(id).is_some_and(|client| {
            let mut has_pending = false;
            client.each_session(&mut |session| has_pending |= protocols.ex.has_pending(session));
            has_pending
        })
}

/// Ends a WebSocket or an SSE stream. Clients of `stentor.v1` receive a reconnect delay.
fn end_connection(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    session: Option<SessionId>,
    random: &mut fastrand::Rng,
) {
    let Some(Conn { machine, .. }) = conns.table.get(index) else { return };
    match machine {
        Machine::WebSocket(socket) => {
            let Some(session) = session else { return };
            if socket.encoding().envelope() == Envelope::V1 {
                let delay = RECONNECT_MAX.mul_f64(random.f64());
                let what = Sent::Text(goodbye(Disconnect::Shutdown, delay));
                actions::send_to_session(conns, protocols, session, what);
            }
            end::disconnect(conns, protocols, session, Disconnect::Shutdown);
        }
        Machine::Http(_) => {
            protocols.ex.count_disconnect(Disconnect::Shutdown);
            let after = protocols.ex.return_delay(random.u64(..));
            end::end_events(conns, protocols, index, Some(after), Disconnect::Shutdown);
        }
        Machine::Preface(_) | Machine::Closing { .. } => {}
    }
}

/// Ends the remaining sessions and connections after the window. Waiting requests get half of the remaining time, and then an
/// answer.
fn finish_drain(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    drain: &mut Draining,
) {
    conns.driver.stop_listening();
    drain.targets.clear();
    drain.postponed.clear();
    let left = drain.ends.saturating_duration_since(protocols.ex.now());
    let last_responses = protocols.ex.millis().after(left / 2);
    drain.relayed_end = protocols.ex.now() + left / 2;
    for id in protocols.clients.ids() {
        protocols.end_client(id, End::Because(Disconnect::Shutdown));
    }
    // Answers polls before the loop over the connections below.
    actions::carry_out_effects(conns, protocols, mail);
    for index in conns.table.indices() {
        let Some(conn) = conns.table.get_mut(index) else { continue };
        if has_slot(conn) {
            let session = conn.session;
            end_connection(conns, protocols, index, session, &mut drain.random);
            continue;
        }
        let is_sending = conn.in_flight || conn.replies.is_some();
        match &mut conn.machine {
            // The client is still receiving a response.
            Machine::Http(connection) if connection.http.is_idle() && is_sending => {
                end::end(conns, protocols, index);
            }
            // An idle connection is closed without waiting for the peer, because browsers close their side of an idle connection
            // only when they use it next.
            Machine::Http(connection) if connection.http.is_idle() => end::abort(conns, protocols, index),
            Machine::Http(connection) => {
                connection.http.handle_drain(last_responses);
                let deadline = connection.http.poll_timeout();
                conns.arm(&protocols.ex, index, deadline);
            }
            Machine::Preface(_) => end::abort(conns, protocols, index),
            Machine::WebSocket(_) | Machine::Closing { .. } => {}
        }
    }
}

/// Returns `true` if a connection gets a slot of its own: a WebSocket with a session, or an unfinished stream.
fn has_slot(conn: &Conn) -> bool {
    match &conn.machine {
        Machine::WebSocket(_) => conn.session.is_some(),
        Machine::Http(connection) => {
            connection.http.response().is_some_and(|response| response.is_stream() && !response.is_whole())
        }
        Machine::Preface(_) | Machine::Closing { .. } => false,
    }
}

/// The last message of `stentor.v1` to a client that should reconnect.
fn goodbye(why: Disconnect, delay: Duration) -> String {
    // No reason contains a character that JSON escapes.
    let (code, reason, ms) = (why.code(), why.reason(), delay.as_millis());
    format!(r#"{{"type":"disconnect","code":{code},"reason":"{reason}","reconnect_after_ms":{ms}}}"#)
}
