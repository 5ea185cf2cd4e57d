//! The clients of an overloaded server: WebSockets on `/ws/KEY`, each of which remembers which version of the document it has.
//!
//! Each message is a whole document. Of it the head is read, its length and its last bytes are checked, and that its number is
//! greater than that of the one before; a few clients keep all of it, to be compared with what the API answered. Frames
//! are cut where they lie (RFC 6455 section 5.2: from a server unmasked, here without extensions and fragments).
//!
//! Invariant: `clients[number]` is open as long as `lost` isn't set, and then has a version.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use stentor_driver::{ConnId, Driver, EpollDriver, Event, Options, Sending};
use stentor_wire::ws::{Opcode, encode};

use super::api::Api;
use crate::Error;
use crate::clock::{Clock, monotonic_ns};
use crate::document::{BODY_AT, HEAD_AT};
use crate::payload::{Head, is_intact};

/// Clients that keep what comes, to compare it.
const COMPARING: usize = 8;
/// Begun and not open yet, at once.
const CONNECTING_MAX: usize = 256;
/// Connections from one source address: beyond about this many the kernel searches long for a free port.
const PER_SOURCE: usize = 12_000;
/// How long it may take until all are open, beyond what their rate needs.
const OPEN_WITHIN: Duration = Duration::from_secs(60);
/// Events of a turn: few enough that samples are taken in time.
const EVENTS_PER_TURN: usize = 128;
/// Of a server's frame, the longest header.
const HEADER_BYTES_MAX: usize = 10;
/// Of the answer to the handshake.
const ANSWER_BYTES_MAX: usize = 4096;

/// What has come since it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    /// Whole documents.
    pub(super) delivered: u64,
    /// Versions that clients didn't get, between those that they got.
    pub(super) skipped: u64,
    /// Documents that were compared byte by byte.
    pub(super) compared: u64,
}

/// See the module's documentation.
pub(super) struct Crowd<'a> {
    driver: EpollDriver,
    api: &'a Api,
    target: SocketAddr,
    key: &'static str,
    clients: Vec<Client>,
    /// By the index of the driver's connection.
    numbers: Vec<u32>,
    clock: Clock,
    pub(super) came: Came,
    pub(super) open: usize,
    pub(super) lost: usize,
    /// Why the first one was lost.
    pub(super) first_loss: Option<String>,
    /// What came and was wrong; the first few.
    pub(super) wrong: Vec<String>,
    document_bytes: usize,
}

struct Client {
    conn: ConnId,
    stage: Stage,
    /// The version that it has; its number, and when it was due. `None`: what there was before the first.
    has: Option<Head>,
    frame: Frame,
    kept: Option<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The answer to the handshake, as far as it has come.
    Shaking(Vec<u8>),
    /// No document yet.
    Waiting,
    Open,
    Lost,
}

/// The frame at hand.
#[derive(Default)]
struct Frame {
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    /// Payload bytes that have come.
    len: u64,
    /// The first of them, and the last two.
    start: Vec<u8>,
    end: [u8; 2],
}

impl Frame {
    fn header_needs(&self) -> usize {
        match (self.header_len, self.header[1] & 0x7f) {
            (0 | 1, _) => 2,
            (_, 126) => 4,
            (_, 127) => 10,
            _ => 2,
        }
    }

    fn payload_len(&self) -> u64 {
        match self.header[1] & 0x7f {
            126 => u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
            127 => self.header[2..].iter().fold(0, |len, byte| len << 8 | u64::from(*byte)),
            short => u64::from(short),
        }
    }

    /// Takes of `data` what belongs to this frame; true when it is whole. `kept` gets the payload as well.
    fn take(&mut self, data: &mut &[u8], kept: Option<&mut Vec<u8>>) -> bool {
        while self.header_len < self.header_needs() {
            let Some((byte, rest)) = data.split_first() else { return false };
            self.header[self.header_len] = *byte;
            self.header_len += 1;
            *data = rest;
        }
        let left = self.payload_len() - self.len;
        let here = data.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (bytes, rest) = data.split_at(here);
        *data = rest;
        self.len += here as u64;
        let missing = BODY_AT.saturating_sub(self.start.len()).min(here);
        self.start.extend_from_slice(&bytes[..missing]);
        match bytes {
            [.., one, two] => self.end = [*one, *two],
            [one] => self.end = [self.end[1], *one],
            [] => {}
        }
        if let Some(kept) = kept {
            kept.extend_from_slice(bytes);
        }
        self.len == self.payload_len()
    }

    fn clear(&mut self) {
        self.start.clear();
        *self = Self { start: std::mem::take(&mut self.start), ..Self::default() };
    }
}

impl<'a> Crowd<'a> {
    /// None yet, of clients of `key` at `target`, whose documents have so many bytes.
    pub(super) fn new(
        target: SocketAddr,
        key: &'static str,
        document_bytes: usize,
        api: &'a Api,
    ) -> Result<Self, Error> {
        let options = Options { events_per_turn: EVENTS_PER_TURN, ..Options::default() };
        Ok(Self {
            driver: EpollDriver::new(&options).map_err(Error::io("opening the driver"))?,
            api,
            target,
            key,
            clients: Vec::new(),
            numbers: Vec::new(),
            clock: Clock::new(),
            came: Came::default(),
            open: 0,
            lost: 0,
            first_loss: None,
            wrong: Vec::new(),
            document_bytes,
        })
    }

    /// Opens `count` connections, `rate_hz` a second; returns when each has the document.
    pub(super) fn open(&mut self, count: usize, rate_hz: f64) -> Result<(), Error> {
        let every = Duration::from_secs_f64(1.0 / rate_hz);
        let mut next = Instant::now();
        let deadline = next + every.mul_f64(count as f64) + OPEN_WITHIN;
        while self.open < count {
            let now = Instant::now();
            if now > deadline || self.lost > 0 {
                let why = self.first_loss.as_deref().unwrap_or("they are still under way");
                return Err(Error::Generator(format!("{} of {count} connections opened; {why}", self.open)));
            }
            if next <= now && self.clients.len() < count && self.clients.len() - self.open < CONNECTING_MAX {
                self.begin()?;
                next = (next + every).max(now.checked_sub(Duration::from_millis(5)).unwrap_or(now));
                continue;
            }
            self.turn(now + Duration::from_millis(3))?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Error> {
        let number = self.clients.len();
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2 + (number / PER_SOURCE) as u8));
        let conn = self.driver.connect(self.target, Some(source)).map_err(Error::io("connecting"))?;
        if self.numbers.len() <= conn.index() {
            self.numbers.resize(conn.index() + 1, u32::MAX);
        }
        self.numbers[conn.index()] = number as u32;
        self.clients.push(Client {
            conn,
            stage: Stage::Shaking(Vec::new()),
            has: None,
            frame: Frame::default(),
            kept: (number < COMPARING).then(Vec::new),
        });
        // The key needs only be 16 bytes, and unlike a cached one (RFC 6455 section 4.1).
        let request = format!(
            "GET /ws/{} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: \
             c3RlbnRvci1sYWItbG9hZA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            self.key, self.target
        );
        let _ = self.driver.send_bytes(conn, request.as_bytes());
        Ok(())
    }

    /// Takes in what comes until `until`.
    pub(super) fn turn(&mut self, until: Instant) -> Result<(), Error> {
        let timeout = until.saturating_duration_since(Instant::now());
        self.driver.wait(Some(timeout)).map_err(Error::io("waiting for events"))?;
        while let Some(event) = self.driver.next_event() {
            match event {
                Event::Received { conn, data, .. } => {
                    if let Some(number) = self.find(conn) {
                        self.on_bytes(number, &data);
                    }
                    self.driver.recycle(data);
                }
                Event::PeerFinished(conn) => self.lose(conn, "the server ended it"),
                Event::Closed { conn, error } => {
                    let why = error.map_or("it was closed".to_owned(), |error| error.to_string());
                    self.lose(conn, &why);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn find(&self, conn: ConnId) -> Option<usize> {
        let number = *self.numbers.get(conn.index())? as usize;
        let client = self.clients.get(number)?;
        (client.conn == conn && client.stage != Stage::Lost).then_some(number)
    }

    fn lose(&mut self, conn: ConnId, why: &str) {
        let Some(number) = self.find(conn) else { return };
        let client = &mut self.clients[number];
        self.open -= usize::from(client.stage == Stage::Open);
        client.stage = Stage::Lost;
        self.driver.close(conn);
        self.lost += 1;
        self.first_loss.get_or_insert_with(|| why.to_owned());
    }

    fn on_bytes(&mut self, number: usize, data: &[u8]) {
        let client = &mut self.clients[number];
        let conn = client.conn;
        let gathered;
        let mut data = data;
        if let Stage::Shaking(answer) = &mut client.stage {
            answer.extend_from_slice(data);
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            match end {
                Some(end) if answer.starts_with(b"HTTP/1.1 101 ") => {
                    gathered = answer.split_off(end + 4);
                    client.stage = Stage::Waiting;
                }
                None if answer.len() < ANSWER_BYTES_MAX => return,
                _ => {
                    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
                    let why = format!("the handshake was answered with {}", String::from_utf8_lossy(line));
                    return self.lose(conn, &why);
                }
            }
            data = &gathered;
        }
        while !data.is_empty() {
            let client = &mut self.clients[number];
            if !client.frame.take(&mut data, client.kept.as_mut()) {
                return;
            }
            match client.frame.header[0] {
                // Text, whole.
                0x81 => self.on_document(number),
                0x88 => {
                    let code = client.frame.start.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                    return self.lose(conn, &format!("it was closed with {code:?}"));
                }
                0x89 => {
                    let mut pong = Vec::new();
                    // A server's pings carry little.
                    encode(&mut pong, Opcode::Pong, &client.frame.start, false, Some([0; 4]));
                    let sending = self.driver.send_bytes(conn, &pong);
                    debug_assert!(sending == Sending::Done, "a pong fits into a socket's buffer");
                }
                0x8a => {}
                first => return self.lose(conn, &format!("a frame that begins with {first:#x}")),
            }
            let client = &mut self.clients[number];
            client.frame.clear();
            if let Some(kept) = &mut client.kept {
                kept.clear();
            }
        }
    }

    fn on_document(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let frame = &client.frame;
        let digits = frame.start.get(HEAD_AT..BODY_AT);
        let head = digits.filter(|digits| is_intact(digits)).and_then(Head::read);
        let whole = frame.len == self.document_bytes as u64 && frame.end == *b"]}";
        let Some(head) = head.filter(|_| whole) else {
            return self.complain(number, "not the document");
        };
        let first = client.stage == Stage::Waiting;
        if first {
            client.stage = Stage::Open;
            self.open += 1;
        }
        // Before the first version its head has no time.
        let version = (head.intended_ns > 0).then_some(head);
        let (had, has) = (client.has.map(|head| head.sequence), version.map(|head| head.sequence));
        client.has = version;
        let compared = client.kept.as_ref().and_then(|kept| Some((self.api.version(has?)?, kept)));
        if let Some((expected, kept)) = compared {
            self.came.compared += 1;
            if kept[..] != expected[..] {
                return self.complain(number, "another document than was answered");
            }
        }
        if !first && has <= had {
            return self.complain(number, "no newer version");
        }
        self.came.delivered += 1;
        if !first {
            // What was before the first version has the place before 0.
            let place = |number: Option<u64>| number.map_or(0, |number| number + 1);
            self.came.skipped += place(has) - place(had) - 1;
        }
    }

    fn complain(&mut self, number: usize, what: &str) {
        if self.wrong.len() < 10 {
            self.wrong.push(format!("client {number}: {what}"));
        }
    }

    /// How old what each client has is now, ascending: since when that version was due. Clients without a version, and those
    /// that were lost, have no age.
    pub(super) fn ages(&self) -> Vec<Duration> {
        let now_ns = self.clock.at_ns(Instant::now()).max(monotonic_ns());
        let open = self.clients.iter().filter(|client| client.stage == Stage::Open);
        let mut ages: Vec<Duration> = open
            .filter_map(|client| Some(Duration::from_nanos(now_ns.saturating_sub(client.has?.intended_ns))))
            .collect();
        ages.sort_unstable();
        ages
    }
}

#[cfg(test)]
mod tests;
