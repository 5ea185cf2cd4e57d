//! One core of the data plane: one driver, the protocol stacks of its connections, one hub shard.
//!
//! A turn: gather events, handle each (answers leave at once), take in what other cores and the control
//! plane sent, then send what sessions are owed. What gathered for a session during a turn leaves as one
//! vectored send.
//!
//! **Invariants.** At most one send is in flight per connection. A connection's answers (`replies`) leave
//! before what its session is owed. A connection whose answers aren't read, or whose publications other
//! cores can't take in, isn't read from: nothing here grows with what a client does, but for the bounds in
//! [`crate::options::Limits`].

mod http;
mod mail;
mod request;
mod socket;
mod table;

pub(crate) use mail::Mailboxes;

use crate::app::{Action, Application, Context, Envelope};
use crate::format::Formats;
use crate::millis::Millis;
use crate::shared::Shared;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use stentor_driver::{ConnId, Driver, Event, Frame, Sending};
use stentor_hub::{CoreId, Disconnect, Hub, Notice, SessionId};
use stentor_wire::http1;
use stentor_wire::ws;
use table::{Conn, Stack, Table, token_of};

/// Bytes that one vectored send takes from an outbox at the most, unless one frame is larger.
const SEND_BYTES_MAX: usize = 256 * 1024;
/// Frames that one vectored send takes from an outbox at the most.
const SEND_FRAMES_MAX: usize = 64;
/// How soon a full ring to another core is looked at again.
const MAIL_RETRY: Duration = Duration::from_millis(1);
/// How often limits that no event guards are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The timer's token of the tick; connections' tokens are above 2⁶³, the application's between.
const TICK_TOKEN: u64 = 0;
const APP_TOKEN: u64 = 1 << 62;

/// What handlers need to know of their core.
#[derive(Clone, Copy)]
struct Facts {
    now: Instant,
    core: CoreId,
    seed: [u64; 2],
    heartbeat_interval: Duration,
}

impl Facts {
    fn context<'a>(
        self,
        hub: &'a mut Hub<Formats>,
        out: &'a mut Vec<u8>,
        actions: &'a mut Vec<Action>,
        current: Option<SessionId>,
        envelope: Envelope,
    ) -> Context<'a> {
        let Self { now, core, seed, heartbeat_interval } = self;
        Context {
            hub,
            out,
            current,
            envelope,
            actions,
            now,
            core,
            seed,
            heartbeat_interval,
            published: false,
        }
    }
}

/// One core.
pub struct Core<D: Driver> {
    driver: D,
    shared: Arc<Shared>,
    facts: Facts,
    start: Instant,
    hub: Hub<Formats>,
    app: Box<dyn Application>,
    table: Table,
    ws: ws::Shared,
    http_limits: http1::Limits,
    mailboxes: Mailboxes,
    /// Bytes that leave with the event being handled: one buffer for all connections.
    cork: Vec<u8>,
    frames: Vec<Frame>,
    actions: Vec<Action>,
    app_timers: slab::Slab<u64>,
    /// Connections whose next request can be looked at.
    revisit: VecDeque<usize>,
    /// Connections not read from until the mailboxes of other cores have room.
    waiting_for_cores: Vec<ConnId>,
    /// Something for another core didn't fit into its ring.
    mail_waits: bool,
    draining: bool,
    refused_logged_at: Option<Instant>,
}

impl<D: Driver> Core<D> {
    /// A core that listens already, as number `core` of the node.
    pub(crate) fn new(
        driver: D,
        core: CoreId,
        shared: Arc<Shared>,
        mailboxes: Mailboxes,
        app: Box<dyn Application>,
    ) -> Self {
        let options = &shared.options;
        let now = driver.now();
        let formats = Formats::new(shared.meter.clone(), options.deflate.level, options.deflate.bytes_min);
        let hub = Hub::new(shared.hub_options(core), formats);
        let ws_limits = ws::Limits {
            message_bytes_max: options.limits.message_bytes_max,
            fragments_max: options.limits.fragments_max,
        };
        let mut core = Self {
            driver,
            facts: Facts { now, core, seed: shared.seed, heartbeat_interval: options.heartbeat.interval },
            start: now,
            hub,
            app,
            table: Table::default(),
            ws: ws::Shared::new(ws_limits),
            http_limits: http1::Limits {
                head_bytes_max: options.limits.head_bytes_max,
                headers_max: options.limits.headers_max,
                ..http1::Limits::default()
            },
            mailboxes,
            cork: Vec::with_capacity(16 * 1024),
            frames: Vec::new(),
            actions: Vec::new(),
            app_timers: slab::Slab::new(),
            revisit: VecDeque::new(),
            waiting_for_cores: Vec::new(),
            mail_waits: false,
            draining: false,
            refused_logged_at: None,
            shared,
        };
        core.driver.timer_set(now + TICK, TICK_TOKEN);
        core
    }

    /// Runs until the node is drained.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_finished() {
            self.turn(None)?;
        }
        Ok(())
    }

    /// Whether the node drains and nothing is left to do here, or the time for it is over.
    pub(crate) fn is_finished(&self) -> bool {
        match self.shared.drain_until() {
            Some(until) => self.draining && (self.driver.connections() == 0 || self.facts.now >= until),
            None => false,
        }
    }

    /// Waits for events, at most `timeout`, and handles them. Says whether there was anything to do.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let orders_wait = !self.shared.inboxes[self.facts.core].is_empty() && !self.is_congested();
        let busy =
            !self.mailboxes.is_empty() || orders_wait || self.shared.drain_until().is_some() != self.draining;
        let timeout = match timeout {
            _ if busy => Some(Duration::ZERO),
            // The reader of a full ring doesn't tell when it has read: look again soon.
            timeout if self.mail_waits => Some(timeout.unwrap_or(MAIL_RETRY).min(MAIL_RETRY)),
            timeout => timeout,
        };
        self.driver.wait(timeout)?;
        self.facts.now = self.driver.now();
        if self.shared.drain_until().is_some() && !self.draining {
            self.drain();
        }
        let mut had_something = busy;
        while let Some(event) = self.driver.next_event() {
            had_something = true;
            self.handle(event);
        }
        self.take_mail();
        self.take_orders();
        self.pump();
        self.shared.metrics[self.facts.core].record(
            &self.hub,
            self.table.count(),
            self.waiting_for_cores.len(),
        );
        Ok(had_something)
    }

    /// The shard, for tests that look inside.
    pub fn hub(&self) -> &Hub<impl stentor_hub::Encoder> {
        &self.hub
    }

    fn millis(&self) -> Millis {
        Millis::at(self.start, self.facts.now)
    }

    fn metrics(&self) -> &crate::metrics::CoreMetrics {
        &self.shared.metrics[self.facts.core]
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, peer } => self.accepted(conn, peer),
            Event::AcceptFailed(error) => {
                self.metrics().accept_errors.add(1);
                tracing::warn!(%error, "could not accept a connection; trying again in 100 ms");
            }
            Event::Received { conn, mut data, at: _ } => {
                if let Some(index) = self.table.index_of(conn) {
                    self.metrics().received_bytes.add(data.len() as u64);
                    self.received(index, &mut data);
                }
                self.driver.recycle(data);
            }
            Event::PeerFinished(conn) => {
                // A client that has finished sending is gone for all our protocols.
                if let Some(index) = self.table.index_of(conn) {
                    self.end(index, Duration::ZERO);
                }
            }
            Event::Sent(conn) => {
                if let Some(index) = self.table.index_of(conn) {
                    self.sent(index);
                }
            }
            Event::Closed { conn, .. } => {
                if let Some(index) = self.table.index_of(conn) {
                    self.forget(index);
                }
            }
            Event::Timer(TICK_TOKEN) => self.tick(),
            Event::Timer(token) => match table::named_by(token) {
                Some((index, serial)) => {
                    if let Some(conn) = self.table.get_mut(index)
                        && conn.serial == serial
                    {
                        conn.timer = None;
                        self.due(index);
                    }
                }
                None => {
                    if let Some(token) = self.app_timers.try_remove((token - APP_TOKEN) as usize) {
                        self.call_app(None, |app, ctx| app.timer(ctx, token));
                    }
                }
            },
            // The core opens no connections, and mail is looked at in each turn.
            Event::Connected(_) | Event::Woken => {}
        }
    }

    fn received(&mut self, index: usize, data: &mut [u8]) {
        let Some(conn) = self.table.get_mut(index) else { return };
        match &mut conn.stack {
            Stack::Socket(_) => {
                let mut out = std::mem::take(&mut self.cork);
                self.socket_input(index, data, &mut out);
                self.answer(index, out);
            }
            Stack::Http(http) => {
                http.buffer.extend_from_slice(data);
                self.serve(index);
            }
            Stack::Closing { .. } => {}
        }
    }

    /// Sends what has gathered in the cork, before what the session is owed.
    fn answer(&mut self, index: usize, mut out: Vec<u8>) {
        if !out.is_empty()
            && let Some(conn) = self.table.get_mut(index)
        {
            if conn.in_flight || conn.replies.is_some() {
                conn.replies.get_or_insert_default().extend_from_slice(&out);
            } else if self.driver.send_bytes(conn.id, &out) == Sending::InFlight {
                conn.in_flight = true;
            }
            let waiting = conn.replies.as_ref().map_or(0, |r| r.len());
            if waiting > self.shared.options.limits.replies_bytes_max && !conn.paused_for_replies {
                conn.paused_for_replies = true;
                self.driver.pause(conn.id);
            }
        }
        out.clear();
        if out.capacity() > 1 << 20 {
            out = Vec::with_capacity(16 * 1024);
        }
        self.cork = out;
        self.settle(index);
    }

    fn sent(&mut self, index: usize) {
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        conn.in_flight = false;
        if let Stack::Socket(socket) = &mut conn.stack {
            socket.alive_at = now;
        }
        if let Some(session) = conn.session {
            self.hub.handle_sent(session);
        }
        self.flush(index);
    }

    /// Sends answers that waited and what the session is owed, until something is in flight.
    fn flush(&mut self, index: usize) {
        loop {
            let Some(conn) = self.table.get_mut(index) else { return };
            if conn.in_flight {
                return;
            }
            if let Some(replies) = conn.replies.take() {
                self.frames.push(Frame::owned(*replies));
            }
            if let Some(session) = conn.session {
                match &mut conn.stack {
                    Stack::Socket(_) => {
                        let frames = &mut self.frames;
                        self.hub.take(session, SEND_BYTES_MAX, SEND_FRAMES_MAX, |_, frame| {
                            frames.push(frame.clone())
                        });
                    }
                    Stack::Http(http) => {
                        if let Some(waiting) = &mut http.waiting {
                            waiting.answer(session, &mut self.hub, &mut self.frames);
                        }
                    }
                    Stack::Closing { .. } => {}
                }
            }
            if self.frames.is_empty() {
                break;
            }
            if self.driver.send(conn.id, &mut self.frames) == Sending::InFlight {
                conn.in_flight = true;
                return;
            }
            if let Some(session) = conn.session {
                self.hub.handle_sent(session);
            }
        }
        self.settle(index);
    }

    /// Goes on with what waited until nothing was in flight.
    fn settle(&mut self, index: usize) {
        let Some(conn) = self.table.get_mut(index) else { return };
        if conn.in_flight || conn.replies.is_some() {
            return;
        }
        if conn.paused_for_replies {
            conn.paused_for_replies = false;
            if !conn.paused_for_cores {
                self.driver.resume(conn.id);
            }
        }
        match &mut conn.stack {
            Stack::Closing { .. } => {
                let id = conn.id;
                self.drop_connection(index);
                self.driver.finish(id, self.shared.options.limits.close_time_max);
            }
            Stack::Http(http) if http.moving || http.waiting.as_ref().is_some_and(|w| w.answered) => {
                self.revisit.push_back(index);
            }
            _ => {}
        }
    }

    /// Does what handlers asked for, and sends what sessions are owed.
    fn pump(&mut self) {
        loop {
            if let Some(index) = self.revisit.pop_front() {
                self.request_done(index);
            } else if let Some(notice) = self.hub.poll_notice() {
                self.notice(&notice);
            } else if let Some((session, _, why)) = self.hub.poll_doomed() {
                self.disconnect(session, why);
            } else if !self.actions.is_empty() {
                self.act();
            } else if let Some((_, tag)) = self.hub.poll_ready() {
                self.flush(tag as usize);
            } else {
                break;
            }
        }
        let mut wanted = false;
        while let Some((key, level)) = self.hub.poll_wanted() {
            self.shared.set_wanted(key, level);
            wanted = true;
        }
        if wanted {
            self.shared.control.wanted();
        }
        self.send_mail();
    }

    fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Send { session, opcode, payload } => {
                    let Some(index) = self.connection_of(session) else { continue };
                    let Some(conn) = self.table.get_mut(index) else { continue };
                    if let Stack::Socket(_) = conn.stack {
                        ws::encode(conn.replies.get_or_insert_default(), opcode, &payload, false, None);
                        self.flush(index);
                    }
                }
                Action::Close { session, why } => self.disconnect(session, why),
                Action::After { at, token } => {
                    let slot = self.app_timers.insert(token);
                    self.driver.timer_set(at, APP_TOKEN + slot as u64);
                }
            }
        }
    }

    fn notice(&mut self, notice: &Notice) {
        let (Notice::Lost { session, .. } | Notice::Gap { session, .. }) = notice;
        let Some(index) = self.connection_of(*session) else { return };
        let Some(Conn { stack: Stack::Socket(socket), .. }) = self.table.get(index) else { return };
        // A client that gets bodies only can be told by closing only; what it is owed has been left out.
        if matches!(notice, Notice::Lost { .. }) && socket.envelope == Envelope::Raw {
            self.disconnect(*session, Disconnect::UnknownKey);
        } else {
            self.call_app(Some(*session), |app, ctx| app.notice(ctx, notice));
        }
    }

    /// Calls the application about a session, not in answer to its client.
    fn call_app(
        &mut self,
        session: Option<SessionId>,
        call: impl FnOnce(&mut dyn Application, &mut Context<'_>),
    ) {
        let envelope = match session.and_then(|s| self.connection_of(s)).and_then(|i| self.table.get(i)) {
            Some(Conn { stack: Stack::Socket(socket), .. }) => socket.envelope,
            _ => Envelope::Raw,
        };
        let mut none = Vec::new();
        let mut ctx = self.facts.context(&mut self.hub, &mut none, &mut self.actions, None, envelope);
        call(&mut *self.app, &mut ctx);
    }

    fn connection_of(&self, session: SessionId) -> Option<usize> {
        let index = self.hub.tag(session)? as usize;
        self.table.get(index).filter(|conn| conn.session == Some(session)).map(|_| index)
    }

    /// Sets the connection's timer to `at`, if it isn't set to an earlier time.
    fn arm(&mut self, index: usize, at: Millis) {
        let now = self.millis();
        let Some(conn) = self.table.get_mut(index) else { return };
        if let Some(timer) = conn.timer {
            if !at.is_before(conn.timer_at) {
                return;
            }
            self.driver.timer_cancel(timer);
        }
        let token = token_of(index, conn.serial);
        conn.timer = Some(self.driver.timer_set(self.facts.now + at.from(now), token));
        conn.timer_at = at;
    }

    /// A connection's timer has fired: something may be overdue, or only moved.
    fn due(&mut self, index: usize) {
        let Some(conn) = self.table.get(index) else { return };
        match &conn.stack {
            Stack::Http(_) => self.http_due(index),
            Stack::Socket(_) => self.socket_due(index),
            Stack::Closing { deadline } => {
                if self.millis().is_before(*deadline) {
                    self.arm(index, *deadline);
                } else {
                    let id = conn.id;
                    self.drop_connection(index);
                    self.driver.close(id);
                }
            }
        }
    }

    /// Ends a session for a reason of ours.
    fn disconnect(&mut self, session: SessionId, why: Disconnect) {
        let Some(index) = self.connection_of(session) else {
            self.hub.handle_close(session);
            return;
        };
        self.metrics().disconnects[why as usize].add(1);
        self.close_socket(index, why.code(), why.reason());
    }

    /// Ends a connection: its session at once, then what is in flight leaves, then the driver ends it.
    fn end(&mut self, index: usize, within: Duration) {
        self.end_session(index);
        let deadline = self.millis().after(within);
        let Some(conn) = self.table.get_mut(index) else { return };
        if within.is_zero() && (conn.in_flight || conn.replies.is_some()) {
            // Nobody is there to read it.
            let id = conn.id;
            self.drop_connection(index);
            self.driver.close(id);
            return;
        }
        conn.stack = Stack::Closing { deadline };
        if conn.in_flight {
            self.arm(index, deadline);
        }
        self.flush(index);
    }

    fn end_session(&mut self, index: usize) {
        let Some(session) = self.table.get_mut(index).and_then(|conn| conn.session.take()) else { return };
        let Some(conn) = self.table.get(index) else { return };
        let was_socket = matches!(conn.stack, Stack::Socket(_));
        self.hub.handle_close(session);
        if was_socket {
            self.call_app(None, |app, ctx| app.closed(ctx, session));
        }
    }

    /// The driver has dropped a connection.
    fn forget(&mut self, index: usize) {
        self.end_session(index);
        self.drop_connection(index);
    }

    fn drop_connection(&mut self, index: usize) {
        if let Some(conn) = self.table.remove(index)
            && let Some(timer) = conn.timer
        {
            self.driver.timer_cancel(timer);
        }
        self.shared.loads[self.facts.core].store(self.table.count(), Ordering::Relaxed);
    }

    fn tick(&mut self) {
        self.driver.timer_set(self.facts.now + TICK, TICK_TOKEN);
        self.hub.handle_tick(self.facts.now);
        if self.facts.core == 0 {
            self.shared.look_at_kernel_memory();
        }
        let limit = self.shared.options.limits.memory_bytes_max;
        let live = self.shared.live_bytes();
        if live > limit {
            self.metrics().overloads.add(1);
            self.hub.handle_overload(live - limit);
        }
    }

    /// The node ends: no new connections, and each client is told when to come back.
    fn drain(&mut self) {
        self.draining = true;
        self.driver.stop_listening();
        for index in self.table.indices() {
            match self.table.get(index) {
                Some(Conn { stack: Stack::Socket(_), session: Some(session), .. }) => {
                    let session = *session;
                    self.disconnect(session, Disconnect::Draining);
                }
                Some(Conn { stack: Stack::Http(http), .. })
                    if http.waiting.is_none() && http.buffer.is_empty() =>
                {
                    self.end(index, self.shared.options.limits.close_time_max);
                }
                _ => {}
            }
        }
        if let Some(until) = self.shared.drain_until() {
            // So that the end of the time is noticed.
            self.driver.timer_set(until, TICK_TOKEN + 1 + APP_TOKEN + u64::from(u32::MAX));
        }
    }

    fn accepted(&mut self, conn: ConnId, peer: SocketAddr) {
        if self.shared.connections() >= self.shared.options.limits.connections_max
            || self.shared.kernel_is_full()
        {
            self.metrics().refused.add(1);
            self.driver.close(conn);
            return;
        }
        self.metrics().accepted.add(1);
        match self.shared.much_less_loaded_than(self.facts.core) {
            Some(core) => self.hand_over(conn, peer, Vec::new(), core),
            None => self.begin_http(conn, peer, Vec::new(), false),
        }
    }
}
