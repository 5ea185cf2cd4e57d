//! The connections of one generator, and the loop under every load.
//!
//! [`super::protocol`] decides what a connection sends and how it reads. Here a client has a *number*, and one or two sockets, its
//! lanes.
//!
//! Invariants: `slots[conn.index()]` is the number of the connection that uses that connection of the driver, as long
//! as the ids agree. A lane's `outbox` holds bytes only while it connects or a send is in flight, or if they are sent
//! in pieces. A lost connection stays in the table, so numbers never change, and may be reopened under its number.

mod audit;
mod leaving;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_driver::{ConnId, Driver, EpollDriver, Event, Options, Waker};

use super::line::Line;
use super::live::ProgressReporter;
use super::outcome::{Audit, Outcome, Probe, Progress, Reading};
use super::protocol::{Client, ClientEvent, Dialect, Lane, Out};
use super::tls::{self, Tls};
use super::{Misbehaviour, Spec};
use crate::Error;
use crate::clock::Clock;
use crate::measure::{CpuClock, kernel_bytes, resident_bytes};
use crate::payload::Head;

/// Maximum number of events of one turn, small so that a load's schedule is checked often.
const EVENTS_PER_TURN: usize = 128;

/// Below this time, the driver's wait is too coarse (a millisecond on epoll), and the loop polls.
const POLL_BELOW: Duration = Duration::from_micros(2_200);
/// Waits end this much earlier, to be in time.
const WAKE_EARLY: Duration = Duration::from_micros(1_200);
/// Number of `PAUSE` instructions after a poll without events, which leave the core's units to a sibling hyperthread.
const PAUSES: usize = 64;

/// Interval between the pieces of a connection that sends piecewise.
const PIECE_EVERY: Duration = Duration::from_millis(5);

/// A received message, ready for the audit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Number of the connection.
    pub number: usize,
    /// The message's head. `None` if it doesn't have that layout.
    pub head: Option<Head>,
    /// The length of the payload.
    pub payload_bytes: u64,
    /// `true` if checksum, padding and envelope are intact.
    pub clean: bool,
    /// Time at which the read returned, in nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

impl Message {
    /// Returns `true` if the message answers a request of `stentor.v1`.
    pub(super) fn is_answer(&self) -> bool {
        self.head.is_none() && self.payload_bytes == 0 && self.clean
    }
}

/// Reactions of a load to events of the pool.
pub(super) trait Load {
    /// Handles a connection that has been opened.
    fn opened(&mut self, _pool: &mut ConnectionPool, _number: usize) {}
    /// Handles a message.
    fn message(&mut self, _pool: &mut ConnectionPool, _message: Message) {}
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Opening,
    Open,
    Lost,
}

struct Connection {
    client: Client,
    stage: Stage,
    main: Line,
    side: Option<Box<Line>>,
    /// Number of messages sent on the connection.
    sent: u64,
    /// The expected number of the connection's next message. `None` before the first one, which may have any number.
    expected: Option<u64>,
}

impl Connection {
    fn line(&mut self, lane: Lane) -> Option<&mut Line> {
        match lane {
            Lane::Main => Some(&mut self.main),
            Lane::Side => self.side.as_deref_mut(),
        }
    }
}

/// The connections of one generator; see the module's documentation.
pub(super) struct ConnectionPool {
    driver: EpollDriver,
    connections: Vec<Connection>,
    slots: Vec<u32>,
    pub(super) spec: Spec,
    pub(super) audit: Audit,
    /// Results so far, without the audit.
    pub(super) outcome: Outcome,
    /// Connections with numbers skipped on them. Empty unless the server is at fault.
    skipped: HashSet<(usize, u64)>,
    clock: Clock,
    probe: Probe,
    /// Number of bytes and messages received so far.
    pub(super) received_bytes: u64,
    arrived: u64,
    /// CPU time spent on polls without events.
    spun: Duration,
    /// The CPU clock after the last turn. `None` if that turn had events.
    idle_since: Option<Duration>,
    open: usize,
    /// Times at which clients must send heartbeats, in order.
    heartbeats: VecDeque<(Instant, u32, ConnId)>,
    dialect: Dialect,
    /// The configuration of clients that use TLS.
    tls: Option<Arc<rustls::ClientConfig>>,
    /// Decrypted bytes.
    plain: Vec<u8>,
    out: Out,
    /// The clients' misbehaviour. `None` if they follow the protocol.
    pub(super) misbehaviour: Option<Misbehaviour>,
    /// Time at which the next pieces are due.
    next_pieces: Instant,
    /// Number of times that clients have reconnected.
    round: u8,
    /// Seed of the handshake keys.
    keys: u64,
    /// A kernel error that couldn't be returned at once.
    refused: Option<Error>,
    /// Receiver of progress reports, if there is one.
    reporter: Option<ProgressReporter>,
}

impl ConnectionPool {
    pub(super) fn new(spec: &Spec) -> Result<Self, Error> {
        let probe = Probe::new(&spec.server_pids, &spec.started_pids)
            .map_err(Error::io("the CPU clock of the server"))?;
        let mut dialect = Dialect::new(spec);
        if let Some(tokens) = &spec.tokens {
            dialect.tokens = tokens.make(spec.connections)?;
        }
        let reporter = spec.live.map(ProgressReporter::new).transpose();
        let options = Options { events_per_turn: EVENTS_PER_TURN, ..Options::default() };
        Ok(Self {
            driver: EpollDriver::new(&options).map_err(Error::io("opening the driver"))?,
            connections: Vec::with_capacity(spec.connections),
            slots: Vec::new(),
            spec: spec.clone(),
            audit: Audit::default(),
            outcome: Outcome::default(),
            skipped: HashSet::new(),
            clock: Clock::new(),
            probe,
            received_bytes: 0,
            arrived: 0,
            spun: Duration::ZERO,
            idle_since: None,
            open: 0,
            heartbeats: VecDeque::new(),
            dialect,
            tls: spec.certificate.as_deref().map(tls::config).transpose()?,
            plain: Vec::new(),
            out: Out::default(),
            misbehaviour: None,
            next_pieces: Instant::now(),
            round: 0,
            keys: crate::clock::monotonic_ns(),
            refused: None,
            reporter: reporter.map_err(Error::io("the standard output"))?,
        })
    }

    /// Number of open connections.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Number of connections started so far.
    pub(super) fn begun(&self) -> usize {
        self.connections.len()
    }

    /// Describes the step for which unfinished connections wait.
    pub(super) fn awaited(&self) -> &'static str {
        match self.connections.iter().any(|connection| connection.stage == Stage::Opening) {
            true => "the server hasn't finished the handshake of the others",
            false => "the server hasn't accepted the others",
        }
    }

    /// The numbers of the open connections.
    pub(super) fn open_ones(&self) -> Vec<usize> {
        (0..self.begun()).filter(|number| self.is_open(*number)).collect()
    }

    pub(super) fn is_open(&self, number: usize) -> bool {
        self.connections[number].stage == Stage::Open
    }

    pub(super) fn read_clocks(&self) -> Reading {
        self.probe.read(self.spun, self.arrived, self.received_bytes)
    }

    /// The progress since `begun`, with `messages` answered.
    pub(super) fn progress(&self, begun: &Reading, messages: u64) -> Progress {
        let used = begun.until(&self.read_clocks());
        let pids = self.spec.server_pids.iter().chain(&self.spec.started_pids);
        Progress {
            connections: self.open as u64,
            messages,
            server_cpu: used.server_cpu,
            // A server that has ended isn't counted. The audit shows its end.
            server_bytes: pids.filter_map(|pid| resident_bytes(*pid).ok()).sum(),
            kernel_bytes: kernel_bytes().unwrap_or(0),
        }
    }

    pub(super) fn ns(&self, at: Instant) -> u64 {
        self.clock.at_ns(at)
    }

    /// Starts one more connection.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        let number = self.connections.len();
        let connection = self.anew(number)?;
        self.connections.push(connection);
        Ok(())
    }

    /// Starts connection `number`.
    fn anew(&mut self, number: usize) -> Result<Connection, Error> {
        let main = self.connect(number, self.is_in_pieces())?;
        Ok(Connection {
            client: self.dialect.client(),
            stage: Stage::Connecting,
            main,
            side: None,
            sent: 0,
            expected: None,
        })
    }

    /// Opens one more connection of the driver for connection `number`.
    fn connect(&mut self, number: usize, in_pieces: bool) -> Result<Line, Error> {
        let source = self.spec.source(number, self.round);
        let entry = self.spec.entry.filter(|_| number + 1 == self.spec.connections);
        let target = entry.unwrap_or(self.spec.target());
        let conn = self.driver.connect(target, source).map_err(Error::io("connecting"))?;
        if self.slots.len() <= conn.index() {
            self.slots.resize(conn.index() + 1, u32::MAX);
        }
        self.slots[conn.index()] = number as u32;
        Ok(Line::new(conn, in_pieces, self.tls.as_ref().map(Tls::new).transpose()?))
    }

    /// Returns `true` if clients send piece by piece.
    fn is_in_pieces(&self) -> bool {
        matches!(self.misbehaviour, Some(Misbehaviour::Fragments))
    }

    /// Ends a [`ConnectionPool::turn`] from another thread.
    pub(super) fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// Suspends progress reports while `quiet` runs, because it isn't part of the load, and another thread may be
    /// writing.
    pub(super) fn untold<T>(&mut self, quiet: impl FnOnce(&mut Self) -> T) -> T {
        let reporter = self.reporter.take();
        let result = quiet(self);
        self.reporter = reporter;
        result
    }

    /// Waits until `due` (`None`: until an event) and passes the events to `load`. Returns `true` if there were any.
    pub(super) fn turn(&mut self, due: Option<Instant>, load: &mut impl Load) -> Result<bool, Error> {
        let beat = self.heartbeats.front().map(|(at, ..)| *at);
        let pieces = self.is_in_pieces().then_some(self.next_pieces);
        let due = due.into_iter().chain(beat).chain(pieces).min();
        let timeout = due.map(|due| match due.saturating_duration_since(Instant::now()) {
            left if left < POLL_BELOW => Duration::ZERO,
            left => left - WAKE_EARLY,
        });
        self.driver.wait(timeout).map_err(Error::io("waiting for events"))?;
        let mut happened = false;
        while let Some(event) = self.driver.next_event() {
            happened = true;
            self.on_event(event, load);
        }
        if beat.is_some() {
            self.heartbeat();
        }
        if self.reporter.as_ref().is_some_and(ProgressReporter::is_due) {
            let now = self.read_clocks();
            self.reporter.iter_mut().for_each(|reporter| reporter.report(now));
        }
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        if self.is_in_pieces() && Instant::now() >= self.next_pieces {
            self.next_pieces = Instant::now() + PIECE_EVERY;
            for connection in &mut self.connections {
                if connection.stage != Stage::Lost {
                    connection.main.drip(&mut self.driver);
                }
            }
        }
        if !happened && timeout == Some(Duration::ZERO) {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
            // CPU is counted only from the second empty poll in a row. Reading the clock is a system call, too
            // expensive for turns with events. The reported CPU of the generator is therefore slightly too high.
            let now = CpuClock::own().read().unwrap_or_default();
            if let Some(since) = self.idle_since.replace(now) {
                self.spun += now.saturating_sub(since);
            }
        } else {
            self.idle_since = None;
        }
        Ok(happened)
    }

    /// Sends the heartbeats that are due. The interval is the same for all clients of a server, so the queue stays
    /// ordered.
    fn heartbeat(&mut self) {
        let now = Instant::now();
        while self.heartbeats.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, number, conn)) = self.heartbeats.pop_front()
        {
            let connection = &mut self.connections[number as usize];
            // A client that has reconnected since has a new heartbeat.
            if connection.stage == Stage::Open
                && connection.main.conn == conn
                && let Some(interval) = connection.client.heartbeat_interval()
            {
                connection.client.heartbeat(&self.dialect, &mut self.out);
                self.write_out(number as usize);
                self.heartbeats.push_back((now + interval, number, conn));
            }
        }
    }

    /// Runs turns for `span`.
    pub(super) fn turn_for(&mut self, span: Duration, load: &mut impl Load) -> Result<(), Error> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.turn(Some(end), load)?;
        }
        Ok(())
    }

    /// Runs turns while `goes_on` returns `true`, but for at most `within`.
    pub(super) fn turn_while<L: Load>(
        &mut self,
        within: Duration,
        load: &mut L,
        goes_on: impl Fn(&Self, &L) -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + within;
        while goes_on(self, load) && Instant::now() < until {
            self.turn(Some(Instant::now() + Duration::from_millis(5)), load)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event, load: &mut impl Load) {
        match event {
            Event::Connected(conn) => {
                if let Some((number, lane)) = self.find(conn) {
                    self.on_connected(number, lane, load);
                }
            }
            Event::Received { conn, data, at } => {
                if let Some((number, lane)) = self.find(conn) {
                    self.on_bytes(number, lane, &data, at, load);
                }
                self.driver.recycle(data);
            }
            Event::Sent(conn) => {
                if let Some((number, lane)) = self.find(conn)
                    && let Some(line) = self.connections[number].line(lane)
                {
                    line.in_flight = false;
                    line.flush(&mut self.driver);
                }
            }
            Event::PeerFinished(conn) => self.on_ended(conn, "the server ended it"),
            Event::Closed { conn, error } => {
                let why = error.map_or("it was closed".to_owned(), |error| error.to_string());
                self.on_ended(conn, &why);
            }
            Event::Accepted { .. }
            | Event::AcceptFailed(_)
            | Event::EndPending(_)
            | Event::Timer(_)
            | Event::Woken => {}
        }
    }

    fn find(&self, conn: ConnId) -> Option<(usize, Lane)> {
        let number = *self.slots.get(conn.index())? as usize;
        let connection = self.connections.get(number)?;
        if connection.stage == Stage::Lost {
            None
        } else if connection.main.conn == conn {
            Some((number, Lane::Main))
        } else {
            connection.side.as_ref().is_some_and(|side| side.conn == conn).then_some((number, Lane::Side))
        }
    }

    fn on_connected(&mut self, number: usize, lane: Lane, load: &mut impl Load) {
        let connection = &mut self.connections[number];
        let Some(line) = connection.line(lane) else { return };
        line.up = true;
        line.flush(&mut self.driver);
        if lane == Lane::Main {
            self.keys = self.keys.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let key = u128::from(self.keys) << 64 | number as u128;
            connection.stage = Stage::Opening;
            connection.client.connected(&self.dialect, key, &mut self.out);
            self.write_out(number);
            // The server has sent nothing yet, so the only possible event is that the connection is open.
            if self.out.happened.drain(..).next().is_some() {
                self.on_open(number, load);
            }
        }
    }

    /// Handles the end of a connection of the driver.
    fn on_ended(&mut self, conn: ConnId, why: &str) {
        let Some((number, lane)) = self.find(conn) else { return };
        let connection = &mut self.connections[number];
        if lane == Lane::Side && connection.client.side_is_idle() {
            // Servers close unused side connections. A new one is opened when needed.
            connection.side = None;
            self.driver.close(conn);
        } else {
            self.lose(number, why);
        }
    }

    fn on_bytes(&mut self, number: usize, lane: Lane, data: &[u8], at: Instant, load: &mut impl Load) {
        self.received_bytes += data.len() as u64;
        if matches!(self.misbehaviour, Some(Misbehaviour::ReadsSlowly { .. })) && self.is_open(number) {
            self.pause(number);
        }
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let connection = &mut self.connections[number];
        let mut opened = Ok(());
        let data = match connection.line(lane) {
            Some(line) if line.is_secure() => {
                opened = line.open(&mut self.driver, data, &mut plain);
                &plain[..]
            }
            _ => data,
        };
        let received = match data {
            // The data was a part of a TLS handshake.
            [] => Ok(()),
            data => connection.client.receive(&self.dialect, lane, data, &mut self.out),
        };
        self.plain = plain;
        self.write_out(number);
        let mut happened = std::mem::take(&mut self.out.happened);
        let at_ns = self.clock.at_ns(at);
        for happening in happened.drain(..) {
            match happening {
                ClientEvent::Opened => self.on_open(number, load),
                ClientEvent::Payload { head, payload_bytes, clean } => {
                    if let Some(reporter) = &mut self.reporter {
                        reporter.record(head.map(|head| head.intended_ns), at_ns);
                    }
                    self.arrived += 1;
                    load.message(self, Message { number, head, payload_bytes, clean, at_ns });
                }
            }
        }
        self.out.happened = happened;
        let received = received.map_err(|fault| fault.to_string());
        if let Err(why) = received.and(opened.map_err(|error| error.to_string())) {
            self.lose(number, &why);
        }
    }

    fn on_open(&mut self, number: usize, load: &mut impl Load) {
        if self.connections[number].stage != Stage::Opening {
            return;
        }
        self.connections[number].stage = Stage::Open;
        self.open += 1;
        let connection = &self.connections[number];
        if let Some(interval) = connection.client.heartbeat_interval() {
            self.heartbeats.push_back((Instant::now() + interval, number as u32, connection.main.conn));
        }
        if let Some(hello) = self.spec.first_message.take() {
            self.send(number, hello.as_bytes());
            self.spec.first_message = Some(hello);
        }
        load.opened(self, number);
    }

    /// Sends a message with `payload`. Writes its number on this connection and `intended_ns` into the head.
    pub(super) fn send_message(&mut self, number: usize, payload: &mut [u8], intended_ns: u64) {
        let connection = &mut self.connections[number];
        let sequence = connection.sent;
        connection.sent += 1;
        self.send_numbered(number, payload, sequence, intended_ns);
    }

    /// Sends a message with the current time as the intended time.
    pub(super) fn send_now(&mut self, number: usize, payload: &mut [u8]) {
        self.send_message(number, payload, self.ns(Instant::now()));
    }

    /// Sends a message with a number chosen by the load.
    pub(super) fn send_numbered(
        &mut self,
        number: usize,
        payload: &mut [u8],
        sequence: u64,
        intended_ns: u64,
    ) {
        Head { sequence, intended_ns }.write(payload);
        self.send(number, payload);
    }

    /// Sends this payload unchanged. Clients of a feed with a known document subscribe instead.
    pub(super) fn send(&mut self, number: usize, payload: &[u8]) {
        self.connections[number].client.send(&self.dialect, payload, &mut self.out);
        self.write_out(number);
    }

    /// Compares the documents that clients reconstructed with the expected ones. Returns their number and counts the
    /// wrong ones.
    pub(super) fn verify(&mut self) -> u64 {
        let Self { connections, dialect, audit, .. } = self;
        let found = connections.iter().filter_map(|connection| connection.client.verify(dialect));
        found.fold(0, |total, (wrong, verified)| {
            audit.corrupt += wrong;
            total + verified
        })
    }

    /// Sends a client's output.
    fn write_out(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let unheard = match self.misbehaviour {
            Some(Misbehaviour::Mute) => true,
            Some(Misbehaviour::Silent) => matches!(connection.stage, Stage::Open | Stage::Lost),
            _ => connection.stage == Stage::Lost,
        };
        if !unheard && !self.out.main.is_empty() {
            connection.main.write(&mut self.driver, &self.out.main);
        }
        if !unheard && !self.out.side.is_empty() {
            if connection.side.is_none() {
                match self.connect(number, false) {
                    Ok(line) => self.connections[number].side = Some(Box::new(line)),
                    Err(error) => self.refused = Some(error),
                }
            }
            if let Some(side) = &mut self.connections[number].side {
                side.write(&mut self.driver, &self.out.side);
            }
        }
        self.out.main.clear();
        self.out.side.clear();
    }
}
