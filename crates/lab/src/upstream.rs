//! An HTTP API with one document whose versions are numbered and timed, for servers that fetch what they push.
//!
//! A version is a JSON string around the layout of [`crate::payload`]. It is answered *when it is due*, at
//! `begin + n / rate`: a request that comes earlier waits, so the time between two polls isn't in the latency,
//! and one that comes later gets the version at once, so the server's lateness is. Each version is answered
//! once; the next request gets the next one, so a server that polls misses none. Before `begin` the first
//! request is answered `null`, and the others wait.
//!
//! It follows RFC 9112 by `stentor-wire`, on a thread of its own. Deliberately absent: every path is the same
//! document, bodies of requests are refused, and nothing is cached (no `Cache-Control`, no validators).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_driver::{ConnId, Driver, EpollDriver, Event, ListenOptions, Options, Sending, Waker};
use stentor_wire::http1::{BodyKind, HeadScanner, Limits, parse_request, write_response_head};

use crate::Error;
use crate::clock::{Clock, monotonic_ns};
use crate::generator::Latencies;
use crate::payload::{self, HEAD_BYTES, Head};

/// Connections at once; beyond, they are closed.
const CONNECTIONS_MAX: usize = 64;
/// Below this the driver's wait is too coarse, and the thread polls instead (see the fleet's).
const POLL_BELOW: Duration = Duration::from_micros(2_200);
/// What a wait is shortened by, to be back in time.
const WAKE_EARLY: Duration = Duration::from_micros(1_200);
/// The document before the first version.
const NOTHING_YET: &[u8] = b"null";

/// A running upstream. Dropping it ends it.
pub struct Upstream {
    address: SocketAddr,
    control: Arc<Control>,
    waker: Waker,
    thread: Option<JoinHandle<Result<Latencies, Error>>>,
}

#[derive(Default)]
struct Control {
    over: AtomicBool,
    /// When version 0 is due, nanoseconds of CLOCK_MONOTONIC; 0: not said yet.
    begin_ns: AtomicU64,
}

impl Upstream {
    /// Starts one on loopback, whose document has `bytes` bytes and `rate_hz` versions a second.
    pub fn start(bytes: usize, rate_hz: f64) -> Result<Self, Error> {
        let control = Arc::new(Control::default());
        let seen = Arc::clone(&control);
        let (tell, told) = channel();
        // The driver belongs to its thread.
        let thread = std::thread::spawn(move || {
            let mut serving = match Serving::open(bytes, rate_hz, seen) {
                Ok((serving, address)) => {
                    let _ = tell.send(Ok((address, serving.driver.waker())));
                    serving
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(Latencies::new());
                }
            };
            serving.run()?;
            Ok(serving.lag)
        });
        let died = |_| Error::Generator("the upstream failed".into());
        let (address, waker) = told.recv().map_err(died)??;
        Ok(Self { address, control, waker, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says when version 0 is due.
    pub fn begin_in(&self, span: Duration) {
        self.control.begin_ns.store(monotonic_ns() + span.as_nanos() as u64, Ordering::Release);
        self.waker.wake();
    }

    /// Ends it; returns how late each version was answered that was waited for.
    pub fn stop(mut self) -> Result<Latencies, Error> {
        self.end().unwrap_or_else(|| Err(Error::Generator("the upstream failed".into())))
    }

    fn end(&mut self) -> Option<Result<Latencies, Error>> {
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
    document: Vec<u8>,
    period: Duration,
    /// The version that is answered next.
    next: u64,
    /// Whether the first request has been answered.
    greeted: bool,
    lag: Latencies,
}

impl Serving {
    fn open(bytes: usize, rate_hz: f64, control: Arc<Control>) -> Result<(Self, SocketAddr), Error> {
        let mut driver =
            EpollDriver::new(&Options::default()).map_err(Error::io("the driver of the upstream"))?;
        let address = driver
            .listen(SocketAddr::from(([127, 0, 0, 1], 0)), &ListenOptions::default())
            .map_err(Error::io("the upstream's address"))?;
        // The head and two quotes are the least.
        let mut document = payload::blank(bytes.max(HEAD_BYTES + 2));
        for end in [0, document.len() - 1] {
            document[end] = b'"';
        }
        let serving = Self {
            driver,
            control,
            clock: Clock::new(),
            clients: HashMap::new(),
            document,
            period: Duration::from_secs_f64(1.0 / rate_hz),
            next: 0,
            greeted: false,
            lag: Latencies::new(),
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
            self.greeted = true;
            self.answer_all(NOTHING_YET.to_vec());
            return None;
        }
        let begin_ns = self.control.begin_ns.load(Ordering::Acquire);
        if begin_ns == 0 {
            return None;
        }
        let intended_ns = begin_ns + self.period.mul_f64(self.next as f64).as_nanos() as u64;
        let now_ns = monotonic_ns();
        if now_ns < intended_ns {
            return Some(Duration::from_nanos(intended_ns - now_ns));
        }
        self.lag.record_ns(now_ns - intended_ns.max(self.clock.at_ns(waiting)).min(now_ns));
        let mut document = self.document.clone();
        Head { sequence: self.next, intended_ns }.write(&mut document[1..]);
        self.next += 1;
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
                if let Some(client) = self.clients.get_mut(&conn)
                    && !client.take(&data, at)
                {
                    self.drop_client(conn);
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
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::payload::is_padding;

    fn ask(stream: &mut TcpStream) -> Vec<u8> {
        stream.write_all(b"GET /key HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let head = String::from_utf8(answer).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && !head.contains("Cache-Control"), "{head}");
        let length = head.split("Content-Length: ").nth(1).unwrap().split('\r').next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        body
    }

    #[test]
    fn answers_each_version_once_and_not_before_its_time() {
        let upstream = Upstream::start(1000, 100.0).unwrap();
        let mut stream = TcpStream::connect(upstream.address()).unwrap();
        assert_eq!(ask(&mut stream), b"null");
        upstream.begin_in(Duration::from_millis(20));
        let begin_ns = upstream.control.begin_ns.load(Ordering::Acquire);
        for sequence in 0..5 {
            let body = ask(&mut stream);
            let intended_ns = begin_ns + sequence * 10_000_000;
            assert!(monotonic_ns() >= intended_ns);
            assert_eq!((body.len(), body[0], body[999]), (1000, b'"', b'"'));
            let head = Head::read(&body[1..=HEAD_BYTES]);
            assert_eq!(head, Some(Head { sequence, intended_ns }));
            assert!(is_padding(&body[1 + HEAD_BYTES..999]));
        }
        assert_eq!(upstream.stop().unwrap().len(), 5);
    }

    #[test]
    fn closes_on_what_it_does_not_answer() {
        let upstream = Upstream::start(100, 1.0).unwrap();
        for request in [
            &b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"[..],
            b"GET\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET",
        ] {
            let mut stream = TcpStream::connect(upstream.address()).unwrap();
            stream.write_all(request).unwrap();
            let mut rest = Vec::new();
            // An end or a reset, not an answer.
            let _ = stream.read_to_end(&mut rest);
            assert!(rest.is_empty(), "{rest:?}");
        }
    }
}
