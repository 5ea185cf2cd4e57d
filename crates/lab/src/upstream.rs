//! An HTTP API with one document whose versions are numbered and timed, for servers that fetch what they push.
//!
//! A version is a JSON string around the layout of [`crate::payload`], or that of a [`crate::document`]. It is answered *when it is due*, at
//! `begin + n / rate`: a request that comes earlier waits, so the time between two polls isn't in the latency,
//! and one that comes later gets the version at once, so the server's lateness is. Each version is answered
//! once; the next request gets the next one, so a server that polls misses none. Before `begin` the first
//! request is answered with what is there before version 0 (`null`, or the document before its first change), and the
//! others wait.
//!
//! Where a `Pacer` sets the rate, a request is answered with the newest version that is due instead, so a server that asks too
//! seldom misses versions, as it does with any API.
//!
//! It follows RFC 9112 by `stentor-wire`, on a thread of its own. Deliberately absent: every path is the same
//! document, bodies of requests are refused, and nothing is cached (no `Cache-Control`, no validators).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_driver::{ConnId, Driver, EpollDriver, Event, ListenOptions, Options, Sending, Waker};
use stentor_wire::http1::{BodyKind, HeadScanner, Limits, parse_request, write_response_head};

use crate::Error;
use crate::clock::{Clock, monotonic_ns};
use crate::document::{Document, Shape};
use crate::generator::Latencies;
use crate::payload::{self, HEAD_BYTES, Head};

/// Connections at once; beyond, they are closed.
const CONNECTIONS_MAX: usize = 64;
/// Below this the driver's wait is too coarse, and the thread polls instead (see the pool's).
const POLL_BELOW: Duration = Duration::from_micros(2_200);
/// What a wait is shortened by, to be back in time.
const WAKE_EARLY: Duration = Duration::from_micros(1_200);
/// The document before the first version, where it is a string.
const NOTHING_YET: &[u8] = b"null";

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A string of so many bytes, quotes included.
    Text {
        /// At least what the head and the quotes need.
        bytes: usize,
    },
    /// A document that changes a little.
    Document(Shape),
}

/// How often there is a new version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// So many a second from [`Upstream::begin_in`] on, each of which is answered.
    Every(f64),
    /// As `Upstream::pacer` says; only the newest is answered.
    Newest,
}

/// Sets how often an upstream has a new version.
#[derive(Clone)]
pub(crate) struct Pacer {
    control: Arc<Control>,
    waker: Waker,
}

impl Pacer {
    /// From now on so many versions a second.
    pub(crate) fn set_rate_hz(&self, rate_hz: f64) {
        let now_ns = monotonic_ns();
        let mut pace = self.control.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let first = pace.map_or(0, |pace| pace.newest(now_ns) + 1);
        *pace = Some(Pace { first, base_ns: now_ns, rate_hz });
        self.waker.wake();
    }
}

#[derive(Clone, Copy)]
struct Pace {
    first: u64,
    base_ns: u64,
    rate_hz: f64,
}

impl Pace {
    /// The newest version that is due.
    fn newest(&self, now_ns: u64) -> u64 {
        self.first + (now_ns.saturating_sub(self.base_ns) as f64 / 1e9 * self.rate_hz) as u64
    }

    fn due_ns(&self, number: u64) -> u64 {
        self.base_ns + ((number - self.first) as f64 / self.rate_hz * 1e9) as u64
    }
}

/// What an upstream has done.
#[derive(Clone, Debug)]
pub struct Served {
    /// How late each version was answered that was waited for.
    pub lag: Latencies,
    /// Requests that came.
    pub requests: u64,
}

/// A running upstream. Dropping it ends it.
pub struct Upstream {
    address: SocketAddr,
    control: Arc<Control>,
    waker: Waker,
    thread: Option<JoinHandle<Result<Served, Error>>>,
}

#[derive(Default)]
struct Control {
    over: AtomicBool,
    /// When version 0 is due, nanoseconds of CLOCK_MONOTONIC; 0: not said yet.
    begin_ns: AtomicU64,
    /// Where only the newest version is answered: how often there is one.
    pace: Mutex<Option<Pace>>,
}

impl Upstream {
    /// Starts one on loopback, with versions of `content`. Its first answer takes `hesitates`.
    pub fn start(content: Content, pacing: Pacing, hesitates: Duration) -> Result<Self, Error> {
        let control = Arc::new(Control::default());
        let seen = Arc::clone(&control);
        let (tell, told) = channel();
        // The driver belongs to its thread.
        let thread = std::thread::spawn(move || {
            let mut serving = match Serving::open(content, pacing, hesitates, seen) {
                Ok((serving, address)) => {
                    let _ = tell.send(Ok((address, serving.driver.waker())));
                    serving
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(Served { lag: Latencies::new(), requests: 0 });
                }
            };
            serving.run()?;
            Ok(Served { lag: serving.lag, requests: serving.requests })
        });
        let died = |_| Error::Generator("the upstream failed".into());
        let (address, waker) = told.recv().map_err(died)??;
        Ok(Self { address, control, waker, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For [`Pacing::Newest`].
    pub(crate) fn pacer(&self) -> Pacer {
        Pacer { control: Arc::clone(&self.control), waker: self.waker.clone() }
    }

    /// Says when version 0 is due.
    pub fn begin_in(&self, span: Duration) {
        self.control.begin_ns.store(monotonic_ns() + span.as_nanos() as u64, Ordering::Release);
        self.waker.wake();
    }

    /// Ends it; returns what it has done.
    pub fn stop(mut self) -> Result<Served, Error> {
        self.end().unwrap_or_else(|| Err(Error::Generator("the upstream failed".into())))
    }

    fn end(&mut self) -> Option<Result<Served, Error>> {
        self.control.over.store(true, Ordering::Release);
        self.waker.wake();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Default)]
struct Client {
    scanner: HeadScanner,
    received: Vec<u8>,
    /// Since when a request waits.
    waits: Option<Instant>,
}

struct Serving {
    driver: EpollDriver,
    control: Arc<Control>,
    clock: Clock,
    clients: HashMap<ConnId, Client>,
    versions: Versions,
    pacing: Pacing,
    hesitates: Duration,
    /// The version that is answered next.
    next: u64,
    /// Whether the first request has been answered.
    greeted: bool,
    lag: Latencies,
    requests: u64,
}

enum Versions {
    Text(Vec<u8>),
    Document(Box<Document>),
}

impl Versions {
    fn new(content: Content) -> Self {
        match content {
            Content::Text { bytes } => {
                // The head and two quotes are the least.
                let mut text = payload::blank(bytes.max(HEAD_BYTES + 2));
                for end in [0, text.len() - 1] {
                    text[end] = b'"';
                }
                Self::Text(text)
            }
            Content::Document(shape) => Self::Document(Box::new(Document::new(shape))),
        }
    }

    /// What there is before version 0.
    fn before(&self) -> Vec<u8> {
        match self {
            Self::Text(_) => NOTHING_YET.to_vec(),
            Self::Document(document) => document.text().to_vec(),
        }
    }

    /// Version `head.sequence`, no older than those before.
    fn at(&mut self, head: Head) -> Vec<u8> {
        match self {
            Self::Text(text) => {
                let end = text.len() - 1;
                head.write(&mut text[1..end]);
                text.clone()
            }
            Self::Document(document) => {
                // Version n is the document after n + 1 changes.
                while document.version() <= head.sequence {
                    document.advance();
                }
                document.set_head(head);
                document.text().to_vec()
            }
        }
    }
}

impl Serving {
    fn open(
        content: Content,
        pacing: Pacing,
        hesitates: Duration,
        control: Arc<Control>,
    ) -> Result<(Self, SocketAddr), Error> {
        let mut driver =
            EpollDriver::new(&Options::default()).map_err(Error::io("the driver of the upstream"))?;
        let address = driver
            .listen(SocketAddr::from(([127, 0, 0, 1], 0)), &ListenOptions::default())
            .map_err(Error::io("the upstream's address"))?;
        let serving = Self {
            driver,
            control,
            clock: Clock::new(),
            clients: HashMap::new(),
            versions: Versions::new(content),
            pacing,
            hesitates,
            next: 0,
            greeted: false,
            lag: Latencies::new(),
            requests: 0,
        };
        Ok((serving, address))
    }

    fn run(&mut self) -> Result<(), Error> {
        while !self.control.over.load(Ordering::Acquire) {
            let timeout = self.answer_due().map(|left| match left {
                left if left < POLL_BELOW => Duration::ZERO,
                left => left - WAKE_EARLY,
            });
            self.driver.wait(timeout).map_err(Error::io("waiting for requests"))?;
            while let Some(event) = self.driver.next_event() {
                self.on_event(event);
            }
        }
        Ok(())
    }

    /// Answers whoever waits if a version is due; returns how long it is until one will be.
    fn answer_due(&mut self) -> Option<Duration> {
        let waiting = self.clients.values().filter_map(|client| client.waits).min()?;
        if !self.greeted {
            let left = self.hesitates.saturating_sub(waiting.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
            self.greeted = true;
            self.answer_all(self.versions.before());
            return None;
        }
        let now_ns = monotonic_ns();
        let (number, intended_ns) = match self.pacing {
            Pacing::Every(rate_hz) => {
                let begin_ns = self.control.begin_ns.load(Ordering::Acquire);
                if begin_ns == 0 {
                    return None;
                }
                (self.next, begin_ns + (self.next as f64 / rate_hz * 1e9) as u64)
            }
            Pacing::Newest => {
                let pace = *self.control.pace.lock().unwrap_or_else(PoisonError::into_inner);
                let number = pace?.newest(now_ns).max(self.next);
                (number, pace?.due_ns(number))
            }
        };
        if now_ns < intended_ns {
            return Some(Duration::from_nanos(intended_ns - now_ns));
        }
        // A newest version that nobody waited for isn't late.
        if self.pacing != Pacing::Newest {
            self.lag.record_ns(now_ns - intended_ns.max(self.clock.at_ns(waiting)).min(now_ns));
        }
        let document = self.versions.at(Head { sequence: number, intended_ns });
        self.next = number + 1;
        self.answer_all(document);
        None
    }

    fn answer_all(&mut self, body: Vec<u8>) {
        let mut answer = Vec::with_capacity(body.len() + 128);
        let length = body.len().to_string();
        let headers = [("Content-Type", "application/json"), ("Content-Length", &length)];
        write_response_head(&mut answer, 200, &headers);
        answer.extend_from_slice(&body);
        for (conn, client) in &mut self.clients {
            if client.waits.take().is_some() {
                // The next request comes when this answer has been read, so nothing is in flight by then.
                let _ = self.driver.send_bytes(*conn, &answer) == Sending::Done;
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Accepted { conn, .. } if self.clients.len() < CONNECTIONS_MAX => {
                self.clients.insert(conn, Client::default());
            }
            Event::Accepted { conn, .. } => self.driver.close(conn),
            Event::Received { conn, data, at } => {
                if let Some(client) = self.clients.get_mut(&conn) {
                    if !client.take(&data, at) {
                        self.drop_client(conn);
                    } else if client.waits == Some(at) {
                        self.requests += 1;
                    }
                }
                self.driver.recycle(data);
            }
            Event::PeerFinished(conn) | Event::Closed { conn, .. } => self.drop_client(conn),
            _ => {}
        }
    }

    fn drop_client(&mut self, conn: ConnId) {
        self.clients.remove(&conn);
        self.driver.close(conn);
    }
}

impl Client {
    /// Takes what came; false where it is nothing that is answered here.
    fn take(&mut self, data: &[u8], at: Instant) -> bool {
        // No pipelining: one answer is owed at a time.
        if self.waits.is_some() {
            return false;
        }
        self.received.extend_from_slice(data);
        let limits = Limits::default();
        let end = match self.scanner.find_end(&self.received, &limits) {
            Ok(Some(end)) => end,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let sound = parse_request(&self.received[..end], &limits)
            .is_ok_and(|request| request.method() == "GET" && matches!(request.body(), BodyKind::Empty));
        if !sound || end != self.received.len() {
            return false;
        }
        *self = Self { waits: Some(at), ..Self::default() };
        true
    }
}

#[cfg(test)]
mod tests;
