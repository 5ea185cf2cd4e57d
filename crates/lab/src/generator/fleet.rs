//! The connections of one generator and the loop under every load.
//!
//! Invariants: `slots[conn.index()]` names the connection that the driver knows under that id, as long as the
//! ids agree; bytes wait in `outbox` only while a send is in flight; a connection that is lost stays in the
//! table as such, so that numbers never move.

use std::time::{Duration, Instant};

use stentor_driver::{ConnId, Driver, Event, Sending};
use stentor_wire::http1::{HeadScanner, Limits, parse_response};
use stentor_wire::ws::handshake::ClientHandshake;
use stentor_wire::ws::{Opcode, encode};

use super::outcome::{Audit, Probe, Reading};
use super::{FrameReader, Spec};
use crate::Error;
use crate::clock::Clock;
use crate::measure::CpuClock;
use crate::payload::{HEAD_BYTES, Head};

/// Below this the driver's wait is too coarse (a millisecond on epoll), and the loop polls instead.
const POLL_BELOW: Duration = Duration::from_micros(2_200);
/// What a wait is shortened by, to be back in time.
const WAKE_EARLY: Duration = Duration::from_micros(1_200);
/// `PAUSE` instructions after a poll that found nothing, so that a sibling hyperthread has the core's units.
const PAUSES: usize = 64;

/// A message that arrived, ready to be audited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Number of the connection.
    pub number: usize,
    /// Its head; `None` where it has no such layout.
    pub head: Option<Head>,
    /// Its length.
    pub payload_bytes: u64,
    /// Whether the padding is intact.
    pub clean: bool,
    /// When the read returned, nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

/// What a load does with what happens on the fleet.
pub(super) trait Load<D: Driver> {
    /// A connection is open.
    fn opened(&mut self, _fleet: &mut Fleet<D>, _number: usize) {}
    /// A message arrived.
    fn message(&mut self, _fleet: &mut Fleet<D>, _message: Message) {}
    /// A connection ended.
    fn lost(&mut self, _fleet: &mut Fleet<D>, _number: usize) {}
}

/// Where a connection stands.
enum Stage {
    Connecting,
    Handshake(Box<Handshake>),
    Open,
    Lost,
}

struct Handshake {
    client: ClientHandshake,
    scanner: HeadScanner,
    received: Vec<u8>,
}

struct Connection {
    conn: ConnId,
    stage: Stage,
    in_flight: bool,
    /// Nothing is counted against it any more: the generator closes it itself.
    leaving: bool,
    outbox: Vec<u8>,
    reader: FrameReader,
    /// Messages sent on it.
    sent: u64,
    /// The number its next message should have; `None` before the first, where any will do.
    expected: Option<u64>,
}

/// See the module's documentation.
pub(super) struct Fleet<D: Driver> {
    driver: D,
    connections: Vec<Connection>,
    slots: Vec<u32>,
    pub(super) spec: Spec,
    pub(super) audit: Audit,
    clock: Clock,
    probe: Probe,
    /// CPU time spent on polls that found nothing.
    spun: Duration,
    /// The CPU clock after the last turn, if that was such a poll.
    idle_since: Option<Duration>,
    open: usize,
    arrived: Vec<Message>,
    frame: Vec<u8>,
    /// Seed of the handshakes' keys.
    keys: u64,
}

impl<D: Driver> Fleet<D> {
    pub(super) fn new(driver: D, spec: &Spec) -> Result<Self, Error> {
        let probe = Probe::new(spec.server_pid).map_err(Error::io("the CPU clock of the server"))?;
        Ok(Self {
            driver,
            connections: Vec::with_capacity(spec.connections),
            slots: Vec::new(),
            spec: spec.clone(),
            audit: Audit::default(),
            clock: Clock::new(),
            probe,
            spun: Duration::ZERO,
            idle_since: None,
            open: 0,
            arrived: Vec::new(),
            frame: Vec::new(),
            keys: crate::clock::monotonic_ns(),
        })
    }

    /// Connections that are open now.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Connections begun so far.
    pub(super) fn begun(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn is_open(&self, number: usize) -> bool {
        matches!(self.connections[number].stage, Stage::Open)
    }

    pub(super) fn read_clocks(&self) -> Reading {
        self.probe.read(self.spun)
    }

    pub(super) fn ns(&self, at: Instant) -> u64 {
        self.clock.at_ns(at)
    }

    /// Begins one more connection.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        let number = self.connections.len();
        let source = self.spec.source(number);
        let conn = self.driver.connect(self.spec.target, source).map_err(Error::io("connecting"))?;
        self.connections.push(Connection {
            conn,
            stage: Stage::Connecting,
            in_flight: false,
            leaving: false,
            outbox: Vec::new(),
            reader: FrameReader::default(),
            sent: 0,
            expected: None,
        });
        if self.slots.len() <= conn.index() {
            self.slots.resize(conn.index() + 1, u32::MAX);
        }
        self.slots[conn.index()] = number as u32;
        Ok(())
    }

    /// Waits until `due` (`None`: until something happens) and hands what happened to `load`. True if
    /// something did.
    pub(super) fn turn(&mut self, due: Option<Instant>, load: &mut impl Load<D>) -> Result<bool, Error> {
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
        if !happened && timeout == Some(Duration::ZERO) {
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
            // Counted from the second one in a row on: the clock is a system call, too dear for turns that
            // have something to do. So what is reported as the generator's own is a little too much.
            let now = CpuClock::own().read().unwrap_or_default();
            if let Some(since) = self.idle_since.replace(now) {
                self.spun += now.saturating_sub(since);
            }
        } else {
            self.idle_since = None;
        }
        Ok(happened)
    }

    /// Turns for `span`.
    pub(super) fn turn_for(&mut self, span: Duration, load: &mut impl Load<D>) -> Result<(), Error> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.turn(Some(end), load)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event, load: &mut impl Load<D>) {
        match event {
            Event::Connected(conn) => {
                if let Some(number) = self.number(conn) {
                    self.shake_hands(number);
                }
            }
            Event::Received { conn, data, at } => {
                if let Some(number) = self.number(conn) {
                    self.on_bytes(number, &data, at, load);
                }
                self.driver.recycle(data);
            }
            Event::Sent(conn) => {
                if let Some(number) = self.number(conn) {
                    self.connections[number].in_flight = false;
                    self.flush(number);
                }
            }
            Event::PeerFinished(conn) => {
                if let Some(number) = self.number(conn) {
                    self.lose(number, "the server ended it", load);
                }
            }
            Event::Closed { conn, error } => {
                if let Some(number) = self.number(conn) {
                    let why = error.map_or("it was closed".to_owned(), |error| error.to_string());
                    self.lose(number, &why, load);
                }
            }
            Event::Accepted { .. } | Event::AcceptFailed(_) | Event::Timer(_) | Event::Woken => {}
        }
    }

    fn number(&self, conn: ConnId) -> Option<usize> {
        let number = *self.slots.get(conn.index())? as usize;
        let known = self.connections.get(number).is_some_and(|connection| connection.conn == conn);
        known.then_some(number)
    }

    fn shake_hands(&mut self, number: usize) {
        // Unlike each other is all they must be (RFC 6455 section 4.1 asks for random ones against proxies).
        self.keys = self.keys.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.keys.to_le_bytes());
        key[8..].copy_from_slice(&(number as u64).to_le_bytes());
        let client = ClientHandshake::new(key, false);
        let mut request = Vec::with_capacity(256);
        client.write_request(&mut request, &self.spec.target.to_string(), &self.spec.path, &[]);
        self.connections[number].stage = Stage::Handshake(Box::new(Handshake {
            client,
            scanner: HeadScanner::default(),
            received: Vec::new(),
        }));
        self.write(number, &request);
    }

    fn on_bytes(&mut self, number: usize, data: &[u8], at: Instant, load: &mut impl Load<D>) {
        let connection = &mut self.connections[number];
        let answered;
        let data = match &mut connection.stage {
            Stage::Open => data,
            Stage::Handshake(handshake) => {
                handshake.received.extend_from_slice(data);
                match handshake.answer() {
                    Ok(None) => return,
                    Ok(Some(head_len)) => {
                        answered = std::mem::take(&mut handshake.received);
                        self.on_open(number, load);
                        &answered[head_len..]
                    }
                    Err(why) => {
                        self.lose(number, &why, load);
                        return;
                    }
                }
            }
            Stage::Connecting | Stage::Lost => return,
        };
        let at_ns = self.clock.at_ns(at);
        let mut arrived = std::mem::take(&mut self.arrived);
        let mut control = None;
        let fed = self.connections[number].reader.feed(data, |frame| {
            if frame.opcode >= 8 {
                control = Some((frame.opcode, frame.start.to_vec()));
                return;
            }
            let head = <&[u8; HEAD_BYTES]>::try_from(frame.start).ok().and_then(Head::read);
            arrived.push(Message {
                number,
                head,
                payload_bytes: frame.payload_bytes,
                clean: frame.clean,
                at_ns,
            });
        });
        for message in arrived.drain(..) {
            load.message(self, message);
        }
        self.arrived = arrived;
        match (fed, control) {
            (Err(violation), _) => self.lose(number, &violation.to_string(), load),
            (Ok(()), Some((8, _))) => self.lose(number, "the server sent a close frame", load),
            (Ok(()), Some((9, payload))) => self.send(number, Opcode::Pong, &payload),
            (Ok(()), _) => {}
        }
    }

    fn on_open(&mut self, number: usize, load: &mut impl Load<D>) {
        self.connections[number].stage = Stage::Open;
        self.open += 1;
        if let Some(hello) = self.spec.hello.take() {
            self.send(number, Opcode::Text, hello.as_bytes());
            self.spec.hello = Some(hello);
        }
        if number < self.spec.paused {
            self.driver.pause(self.connections[number].conn);
        }
        load.opened(self, number);
    }

    fn lose(&mut self, number: usize, why: &str, load: &mut impl Load<D>) {
        let connection = &mut self.connections[number];
        let leaving = connection.leaving;
        let was = std::mem::replace(&mut connection.stage, Stage::Lost);
        if matches!(was, Stage::Lost) {
            return;
        }
        self.open -= usize::from(matches!(was, Stage::Open));
        self.driver.close(connection.conn);
        if !leaving {
            self.audit.lost_connections += 1;
            let stage = match was {
                Stage::Connecting => "connecting",
                Stage::Handshake(_) => "in the handshake",
                Stage::Open | Stage::Lost => "when open",
            };
            self.audit.first_loss.get_or_insert_with(|| format!("{stage}: {why}"));
        }
        load.lost(self, number);
    }

    /// Closes a connection; nothing is held against the server.
    pub(super) fn leave(&mut self, number: usize, load: &mut impl Load<D>) {
        self.connections[number].leaving = true;
        self.lose(number, "", load);
    }

    /// Sends a message of `payload`, whose head is written over: its number on this connection, and
    /// `intended_ns`.
    pub(super) fn send_message(&mut self, number: usize, payload: &mut [u8], intended_ns: u64) {
        let connection = &mut self.connections[number];
        Head { sequence: connection.sent, intended_ns }.write(payload);
        connection.sent += 1;
        self.send(number, Opcode::Text, payload);
    }

    fn send(&mut self, number: usize, opcode: Opcode, payload: &[u8]) {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        encode(&mut frame, opcode, payload, false, Some(self.spec.mask.bytes()));
        self.write(number, &frame);
        self.frame = frame;
    }

    fn write(&mut self, number: usize, bytes: &[u8]) {
        let connection = &mut self.connections[number];
        if matches!(connection.stage, Stage::Lost) {
            return;
        }
        if connection.in_flight {
            connection.outbox.extend_from_slice(bytes);
        } else {
            connection.in_flight = self.driver.send_bytes(connection.conn, bytes) == Sending::InFlight;
        }
    }

    fn flush(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        if connection.in_flight || connection.outbox.is_empty() || matches!(connection.stage, Stage::Lost) {
            return;
        }
        let outbox = std::mem::take(&mut connection.outbox);
        connection.in_flight = self.driver.send_bytes(connection.conn, &outbox) == Sending::InFlight;
    }

    /// Audits one message against the length that was sent and the order on its connection. Returns the head
    /// of a sound one; what is wrong is counted where `counts` says that it belongs to the measured part.
    pub(super) fn check(
        &mut self,
        message: &Message,
        bytes: usize,
        counts: impl Fn(u64) -> bool,
    ) -> Option<Head> {
        let Some(head) = message.head else {
            self.audit.corrupt += 1;
            return None;
        };
        if message.payload_bytes != bytes as u64 {
            self.audit.wrong_length += 1;
            return None;
        }
        if !message.clean {
            self.audit.corrupt += 1;
            return None;
        }
        let expected = self.connections[message.number].expected.get_or_insert(head.sequence);
        if head.sequence < *expected {
            self.audit.repeated += 1;
            return None;
        }
        let gaps = (*expected..head.sequence).filter(|sequence| counts(*sequence)).count();
        *expected = head.sequence + 1;
        self.audit.gaps += gaps as u64;
        Some(head)
    }

    /// Says that the next message of every connection has the number 0.
    pub(super) fn expect_from_zero(&mut self) {
        for connection in &mut self.connections {
            connection.expected = Some(0);
        }
    }
}

impl Handshake {
    /// The length of the head once it is whole and right.
    fn answer(&mut self) -> Result<Option<usize>, String> {
        let limits = Limits::default();
        let end = self.scanner.find_end(&self.received, &limits).map_err(|error| error.to_string())?;
        let Some(end) = end else { return Ok(None) };
        let response = parse_response(&self.received[..end], &limits).map_err(|error| error.to_string())?;
        self.client.check_response(&response).map_err(|error| error.to_string())?;
        Ok(Some(end))
    }
}
