//! Stentor's side of a link, from HELLO to its end.
//!
//! ```text
//!  HELLO ──► up ── BYE handover: DRAINED ──► draining ── BYE done ───► ended: done
//!            │ ▲                               │ (a connection may break here, too)
//!   lost     │ │ HELLO of the same process     ├── BYE stop ────────► ended: stopped
//!            ▼ │                               │
//!           lost ── after `rejoin` ────────────┴──────────────────── ► ended: lost
//!            no pong for `worker_timeout`: ended: hung.   Draining for `worker_timeout`: ended: overdue.   An error: ended: failed.
//! ```
//!
//! The owner of the connection calls [`Link::handle_frame`], then [`Link::poll_event`] until it returns nothing, and reads the next
//! frame only after that. So a link whose entries wait slows its worker down. At the end of a turn it calls
//! [`Link::poll_transmit`] until it returns nothing.

use crate::codec::Entry;
use crate::entry::{ServerEntry, WorkerEntry};
use crate::error::{Code, LinkError};
use crate::exchange::Exchange;
use crate::frame::Frame;
use crate::heartbeat::Heartbeat;
use crate::hello::{Hello, OnCrash, Parser, Refusal, Welcome};
use crate::limits::{TARGETS_BYTES_MAX, VERSION};
use crate::namespaces::Namespaces;
use crate::value::{Handle, Messages, Namespace};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds and times of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions {
    /// How long a process may take to connect again after its connection has broken.
    pub rejoin: Duration,
    /// A worker that doesn't answer for this long has crashed. A worker that leaves has this long to give its sessions back.
    pub worker_timeout: Duration,
    /// Messages wait while this many bytes aren't acknowledged.
    pub window_bytes: usize,
    /// The link ends if more bytes aren't acknowledged. More than the window, because only messages wait for it.
    pub unacknowledged_bytes_max: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            rejoin: Duration::from_millis(200),
            worker_timeout: Duration::from_secs(30),
            window_bytes: 256 << 10,
            unacknowledged_bytes_max: 8 << 20,
        }
    }
}

/// Entries of a worker, and changes of its link.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// An entry other than HELLO, NSP, GONE, CONFIG, BYE and NOP. Its namespace is declared.
    Entry(WorkerEntry),
    /// BYE `handover`: the worker takes no further sessions and messages.
    Draining,
    /// The link has ended.
    Ended(End),
}

/// How a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// BYE `done`: other workers take the sessions.
    Done,
    /// BYE `stop`: the sessions end.
    Stopped,
    /// The connection has broken, and the process didn't connect again.
    Lost,
    /// The worker didn't answer.
    Hung,
    /// The worker leaves, and didn't give its sessions back in time.
    Overdue,
    /// The worker has broken a rule or exceeded a limit.
    Failed(LinkError),
}

/// Something to send on the connection.
#[derive(Debug)]
pub enum Transmit {
    /// A binary WebSocket message.
    Frame(Frame),
    /// A WebSocket ping.
    Ping,
    /// The connection is closed.
    Close,
}

/// The state of the connection.
enum Connection {
    Up,
    Lost { until: Instant },
    Ended { end: End, is_reported: bool, is_closed: bool },
}

/// Settings that may change.
#[derive(Deserialize)]
struct Config {
    asks: bool,
    http: Option<u16>,
    #[serde(default)]
    errors: bool,
}

#[derive(Deserialize)]
struct Bye {
    mode: Mode,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Handover,
    Done,
    Stop,
}

/// Stentor's side of a link.
pub struct Link {
    number: u32,
    hello: Hello,
    options: LinkOptions,
    exchange: Exchange<WorkerEntry, ServerEntry>,
    namespaces: Namespaces,
    connection: Connection,
    /// The time at which the worker has to have left. `None` before BYE `handover`.
    leaves_by: Option<Instant>,
    heartbeat: Heartbeat,
    /// Time of the last acknowledgement, or of the first frame after it. `None`: no transmitted frame waits for an acknowledgement.
    unacknowledged_since: Option<Instant>,
    /// WELCOME and ERROR.
    first: VecDeque<Frame>,
}

impl Link {
    /// The link of a process that has sent HELLO. `number` names the link for other workers. `servers` is the number of workers
    /// that take sessions.
    pub fn new(number: u32, hello: Hello, servers: u16, options: LinkOptions, now: Instant) -> Self {
        let mut link = Self {
            number,
            hello,
            options,
            exchange: Exchange::default(),
            namespaces: Namespaces::default(),
            connection: Connection::Up,
            leaves_by: None,
            heartbeat: Heartbeat::new(now, options.worker_timeout),
            unacknowledged_since: None,
            first: VecDeque::new(),
        };
        link.welcome(false, servers);
        link
    }

    fn welcome(&mut self, resumed: bool, servers: u16) {
        let received = self.exchange.received();
        let (link, window, options) = (self.number, self.options.window_bytes, &self.hello.options);
        let welcome = Welcome { v: VERSION, link, resumed, received, servers, window, options };
        self.first.push_back(welcome.frame());
    }

    /// Number of the link.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Name of the worker.
    pub fn name(&self) -> &str {
        &self.hello.name
    }

    /// Id of the worker's process.
    pub fn instance(&self) -> &str {
        &self.hello.instance
    }

    /// `true` if each new session waits for the worker's answer.
    pub fn asks(&self) -> bool {
        self.hello.asks
    }

    /// Port of the worker's own HTTP server. `None`: there is none.
    pub fn http(&self) -> Option<u16> {
        self.hello.http
    }

    /// `true` if the worker takes sessions and reports of refused requests.
    pub fn takes_errors(&self) -> bool {
        self.hello.errors && self.takes_sessions()
    }

    /// How clients' packets are encoded.
    pub fn parser(&self) -> Parser {
        self.hello.parser
    }

    /// How long the application can recover a socket after the loss of its client. `None`: it recovers none.
    pub fn recovery_ttl(&self) -> Option<Duration> {
        self.hello.recovery_ttl
    }

    /// Policy for the worker's messages when it crashes.
    pub fn on_crash(&self) -> OnCrash {
        self.hello.on_crash.unwrap_or_default()
    }

    /// Name of a declared namespace.
    pub fn namespace(&self, namespace: Namespace) -> Option<&Arc<str>> {
        self.namespaces.name(namespace)
    }

    /// Index of a namespace. `None`: the worker hasn't declared it.
    pub fn namespace_index(&self, name: &str) -> Option<Namespace> {
        self.namespaces.index(name)
    }

    /// `true` while the worker takes new sessions.
    pub fn takes_sessions(&self) -> bool {
        matches!(self.connection, Connection::Up) && !self.is_draining()
    }

    /// `false` while the worker leaves frames or a ping without an answer for longer than 250 ms: it hangs, or is blocked.
    pub fn responds(&self) -> bool {
        self.heartbeat.responds
    }

    /// `true` after BYE `handover`.
    pub fn is_draining(&self) -> bool {
        self.leaves_by.is_some()
    }

    /// `true` while a message, or a session, may be written. Otherwise it has to wait.
    pub fn has_room(&self) -> bool {
        self.takes_sessions() && self.exchange.unacknowledged_bytes() < self.options.window_bytes
    }

    /// `true` while an answer to the worker may be long. Otherwise answers are short, so that they don't end the link.
    pub fn has_room_for_answers(&self) -> bool {
        self.exchange.unacknowledged_bytes() <= self.options.unacknowledged_bytes_max / 2
    }

    /// `true` while the link exists but its connection is broken.
    pub fn is_lost(&self) -> bool {
        matches!(self.connection, Connection::Lost { .. })
    }

    /// `true` after the link has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self.connection, Connection::Ended { .. })
    }

    /// `true` if this many bytes that other workers cause may be written. More would bring the link near its end.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.unacknowledged_bytes() + bytes <= self.options.unacknowledged_bytes_max / 4 * 3
    }

    /// Bytes that the worker hasn't acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.exchange.unacknowledged_bytes()
    }

    /// `true` if the worker has acknowledged nothing for `worker_timeout`, although a frame was transmitted.
    pub fn is_stalled(&self, now: Instant) -> bool {
        self.unacknowledged_since.is_some_and(|since| now >= since + self.options.worker_timeout)
    }

    /// Bytes that the link holds: frames that are kept for the worker, the frame that is being handled, and the names of its namespaces.
    pub fn held_bytes(&self) -> usize {
        self.exchange.held_bytes() + self.namespaces.held_bytes()
    }

    /// Writes an entry. Without effect if the link has ended. The link ends if too many bytes aren't acknowledged. Panics if a
    /// session or a message is written to a worker that is draining: DRAINED has promised that none follows.
    pub fn write(&mut self, entry: &ServerEntry) {
        let is_late = matches!(
            entry,
            ServerEntry::Open { .. } | ServerEntry::Resume { .. } | ServerEntry::Message { .. }
        );
        assert!(!(is_late && self.is_draining()), "{} after DRAINED", entry.name());
        if self.is_ended() {
            return;
        }
        self.exchange.write(entry);
        if self.exchange.unacknowledged_bytes() > self.options.unacknowledged_bytes_max {
            self.fail(LinkError::Unacknowledged);
        }
    }

    /// Takes a message of the connection. Panics unless [`Self::is_idle`].
    pub fn handle_frame(&mut self, frame: Bytes, now: Instant) {
        if !matches!(self.connection, Connection::Up) {
            return;
        }
        self.heartbeat.handle_arrival(now);
        self.namespaces.begin_frame();
        let acknowledged = self.exchange.acknowledged();
        if let Err(error) = self.exchange.handle_frame(frame, now) {
            self.fail(error);
        }
        if self.exchange.acknowledged() > acknowledged {
            self.unacknowledged_since = None;
        }
        self.expect_acknowledgement(now);
    }

    /// A frame was transmitted, or has arrived: the worker has to acknowledge the frames before it, if there are any.
    fn expect_acknowledgement(&mut self, now: Instant) {
        if self.exchange.unacknowledged_bytes() > 0 {
            self.heartbeat.expect_acknowledgement(now);
            self.unacknowledged_since.get_or_insert(now);
        }
    }

    /// `true` if the next message may be read from the connection.
    pub fn is_idle(&self) -> bool {
        self.exchange.is_idle()
    }

    /// Takes a WebSocket pong.
    pub fn handle_pong(&mut self, now: Instant) {
        self.heartbeat.handle_arrival(now);
    }

    /// The connection isn't read, so that the worker doesn't count as hung.
    pub fn keep(&mut self, now: Instant) {
        self.heartbeat.keep(now);
        self.leaves_by = self.leaves_by.map(|_| now + self.options.worker_timeout);
    }

    /// The connection has broken, or was closed by the worker.
    pub fn handle_disconnect(&mut self, now: Instant) {
        if matches!(self.connection, Connection::Up) {
            self.connection = Connection::Lost { until: now + self.options.rejoin };
        }
    }

    /// Ends the link, as if its connection had been broken for too long: another link takes its place.
    pub fn give_up(&mut self) {
        if !self.is_ended() {
            self.end(End::Lost);
        }
    }

    /// The same process has connected again and sent this HELLO. Its former connection, if it still exists, has to be dropped.
    pub fn handle_rejoin(&mut self, hello: &Hello, servers: u16, now: Instant) {
        if self.is_ended() {
            return;
        }
        if let Err(error) = self.exchange.reconnect(hello.received, now) {
            return self.fail(error);
        }
        self.connection = Connection::Up;
        self.heartbeat = Heartbeat::new(now, self.options.worker_timeout);
        self.first.clear();
        self.welcome(true, servers);
    }

    /// Checks what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.connection {
            Connection::Lost { until } if now >= until => self.end(End::Lost),
            Connection::Up if self.heartbeat.is_over(now) => {
                self.take_over("no answer", End::Hung);
            }
            Connection::Up if self.leaves_by.is_some_and(|at| now >= at) => {
                self.take_over("the handover hasn't ended", End::Overdue);
            }
            Connection::Up => self.heartbeat.handle_timeout(now),
            _ => {}
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_transmit`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.connection {
            Connection::Lost { until } => Some(until),
            Connection::Up => {
                let next = self.heartbeat.poll_timeout();
                [self.leaves_by, self.exchange.poll_timeout()].into_iter().flatten().chain([next]).min()
            }
            Connection::Ended { .. } => None,
        }
    }

    /// Returns what the worker has written. `None`: the current frame has been handled.
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Connection::Ended { end, is_reported, .. } = &mut self.connection {
                return (!std::mem::replace(is_reported, true)).then_some(Event::Ended(*end));
            }
            let handled = match self.exchange.poll_entry() {
                Ok(entry) => self.handle_entry(entry?),
                Err(error) => Err(error),
            };
            match handled {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                Err(error) => self.fail(error),
            }
        }
    }

    fn handle_entry(&mut self, entry: WorkerEntry) -> Result<Option<Event>, LinkError> {
        match entry {
            WorkerEntry::Hello { .. } => return Err(LinkError::Unexpected("HELLO")),
            WorkerEntry::Nop {} => self.exchange.acknowledge_at_once(),
            WorkerEntry::Nsp { namespace, name } => self.namespaces.declare(namespace, name)?,
            WorkerEntry::Gone { namespace } => {
                self.namespaces.remove(namespace)?;
                self.write(&ServerEntry::Vacant { namespace });
            }
            WorkerEntry::Config { config } => {
                let config: Config =
                    serde_json::from_str(config.as_str()).map_err(|_| LinkError::Field("CONFIG"))?;
                let Config { asks, http, errors } = config;
                (self.hello.asks, self.hello.http, self.hello.errors) = (asks, http, errors);
            }
            WorkerEntry::Bye { bye } => {
                let bye: Bye = serde_json::from_str(bye.as_str()).map_err(|_| LinkError::Field("BYE"))?;
                match bye.mode {
                    Mode::Handover if self.is_draining() => return Err(LinkError::Unexpected("BYE")),
                    Mode::Handover => {
                        self.leaves_by = Some(self.heartbeat.heard_at() + self.options.worker_timeout);
                        self.exchange.write(&ServerEntry::Drained {});
                        return Ok(Some(Event::Draining));
                    }
                    Mode::Done if !self.is_draining() => return Err(LinkError::Unexpected("BYE")),
                    Mode::Done => self.take_leave(End::Done),
                    Mode::Stop => self.take_leave(End::Stopped),
                }
            }
            WorkerEntry::Select { ref select, .. }
                if !select.flags.is_local
                    && select.targets.iter().map(|room| room.len()).sum::<usize>() > TARGETS_BYTES_MAX =>
            {
                return Err(LinkError::Targets);
            }
            entry => {
                self.namespaces.check(&entry)?;
                return Ok(Some(Event::Entry(entry)));
            }
        }
        Ok(None)
    }

    /// Returns the next thing to send. `None`: there is nothing to send until another function is called, or the time of
    /// [`Self::poll_timeout`].
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.is_lost() {
            return None;
        }
        if let Some(frame) = self.first.pop_front() {
            return Some(Transmit::Frame(frame));
        }
        if let Connection::Ended { end, is_closed, .. } = &mut self.connection {
            if matches!(end, End::Done | End::Stopped)
                && let Some(frame) = self.exchange.poll_transmit(now)
            {
                return Some(Transmit::Frame(frame));
            }
            return (!std::mem::replace(is_closed, true)).then_some(Transmit::Close);
        }
        if self.heartbeat.poll_ping(now) {
            return Some(Transmit::Ping);
        }
        let frame = self.exchange.poll_transmit(now)?;
        self.expect_acknowledgement(now);
        Some(Transmit::Frame(frame))
    }

    /// Ends the link of a worker that leaves. Its last frame is acknowledged, so that the worker can exit. Entries after BYE are
    /// ignored.
    fn take_leave(&mut self, end: End) {
        self.exchange.acknowledge_at_once();
        while let Ok(Some(_)) = self.exchange.poll_entry() {}
        self.end(end);
    }

    /// Ends the link because the worker has broken a rule. Without effect if the link has ended.
    pub fn fail(&mut self, error: LinkError) {
        if self.is_ended() {
            return;
        }
        self.first.push_back(Refusal::from(&error).frame());
        self.end(End::Failed(error));
    }

    /// Ends the link of a worker that was too slow. Other workers take its sessions, as after a crash.
    fn take_over(&mut self, reason: &str, end: End) {
        let message = format!("{reason} for {:?}", self.options.worker_timeout);
        self.first.push_back(Refusal::new(Code::Replaced, message).frame());
        self.end(end);
    }

    fn end(&mut self, end: End) {
        self.connection = Connection::Ended { end, is_reported: false, is_closed: false };
    }

    /// As if this many frames had been exchanged in both directions. For tests of numbers that wrap around.
    #[doc(hidden)]
    pub fn start_at(&mut self, count: u64) {
        self.exchange.start_at(count);
        self.first.clear();
        self.welcome(false, 1);
    }

    /// Count of the frame that the last written entry is in.
    pub fn written(&self) -> u64 {
        self.exchange.written()
    }

    /// Count of the last frame that the worker has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.exchange.acknowledged()
    }

    /// Count of the last frame that the worker has acknowledged with a frame whose events have all been polled.
    pub fn forgotten(&self) -> u64 {
        self.exchange.forgotten()
    }

    /// The messages that the worker of an ended link hasn't acknowledged, in order, for its policy.
    pub fn aftermath(&mut self) -> Aftermath {
        self.aftermath_where(|_| true)
    }

    /// Like [`Self::aftermath`], for the messages of one session.
    pub fn aftermath_of(&mut self, session: Handle) -> Aftermath {
        self.aftermath_where(|handle| handle == session)
    }

    fn aftermath_where(&mut self, concerns: impl Fn(Handle) -> bool) -> Aftermath {
        let (mut messages, mut aftermath) = (Vec::new(), Aftermath::default());
        for entry in self.exchange.kept_entries() {
            match entry {
                ServerEntry::Message { handle, messages: unit } if concerns(handle) => {
                    messages.push((handle, unit));
                }
                ServerEntry::Kick { closes: true, handles, .. } => {
                    aftermath.disconnected.extend(handles.into_iter().filter(|handle| concerns(*handle)));
                }
                _ => {}
            }
        }
        match self.on_crash() {
            OnCrash::Disconnect => {
                aftermath.closed = messages.into_iter().map(|(handle, _)| handle).collect();
                aftermath.closed.sort_unstable();
                aftermath.closed.dedup();
            }
            OnCrash::Redeliver => aftermath.redelivered = messages,
            OnCrash::Drop => aftermath.dropped = messages.into_iter().map(|(handle, _)| handle).collect(),
        }
        aftermath
    }
}

/// The fate of the messages that a worker hasn't acknowledged. Sessions that aren't named continue.
#[derive(Debug, Default, PartialEq)]
pub struct Aftermath {
    /// The sessions to close.
    pub closed: Vec<Handle>,
    /// The messages to send to other workers, before those that wait for the session's worker.
    pub redelivered: Vec<(Handle, Messages)>,
    /// The sessions whose messages are dropped, once for each message.
    pub dropped: Vec<Handle>,
    /// The sessions that another worker has disconnected.
    pub disconnected: Vec<Handle>,
}
