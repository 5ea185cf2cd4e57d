//! The HTTP API behind an overloaded server: one document, whose newest version is answered.
//!
//! Version n is due at `base + (n - first) / rate`, and the rate may change on the way. A request is answered with the newest
//! version that is due, if that is newer than what was answered last, and otherwise waits for the next: so a server that
//! asks too seldom misses versions, as it does with any API ([`crate::upstream`] answers all of them instead). The first
//! request gets the document before its first change.
//!
//! Deliberately absent: paths, validators, bodies of requests, pipelining. A thread per connection; a server opens one.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Error;
use crate::clock::monotonic_ns;
use crate::document::{Document, Shape};
use crate::payload::Head;

/// Connections that are answered, in all; a server needs one, and another when that breaks.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 * 1024;
/// Versions that are kept to compare what arrives with: at ten times what can be delivered, those of some seconds.
const KEPT: usize = 256;
/// How long a request waits before it is seen that all is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running API. Dropping it ends it.
pub(super) struct Api {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    over: AtomicBool,
    versions: Mutex<Versions>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The versions in time. `None` as a pace: none is due.
struct Versions {
    pace: Option<Pace>,
    document: Document,
    /// The newest that was answered, by number.
    answered: Option<u64>,
    greeted: bool,
    kept: VecDeque<(u64, Arc<[u8]>)>,
}

#[derive(Clone, Copy)]
struct Pace {
    first: u64,
    base_ns: u64,
    rate_hz: f64,
}

impl Pace {
    /// The newest version that is due at `now_ns`.
    fn newest(&self, now_ns: u64) -> u64 {
        let since_s = now_ns.saturating_sub(self.base_ns) as f64 / 1e9;
        self.first + (since_s * self.rate_hz) as u64
    }

    fn due_ns(&self, number: u64) -> u64 {
        self.base_ns + ((number - self.first) as f64 / self.rate_hz * 1e9) as u64
    }
}

impl Versions {
    /// What a request is answered with now; or how long until something is due.
    fn answer(&mut self, now_ns: u64) -> Result<Arc<[u8]>, Duration> {
        if !self.greeted {
            self.greeted = true;
            return Ok(self.document.text().into());
        }
        let pace = self.pace.ok_or(LOOK_EVERY)?;
        let newest = pace.newest(now_ns);
        // Rounding may put a version a moment before its time.
        let due_ns = pace.due_ns(newest);
        if self.answered.is_some_and(|answered| newest <= answered) || now_ns < due_ns {
            let next = self.answered.map_or(newest, |answered| newest.max(answered + 1));
            let left = Duration::from_nanos(pace.due_ns(next).saturating_sub(now_ns).max(1));
            return Err(left.min(LOOK_EVERY));
        }
        // Version n is the document after n + 1 changes: what there was before is its zeroth.
        while self.document.version() <= newest {
            self.document.advance();
        }
        self.document.set_head(Head { sequence: newest, intended_ns: due_ns });
        self.answered = Some(newest);
        let text: Arc<[u8]> = self.document.text().into();
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((newest, Arc::clone(&text)));
        Ok(text)
    }
}

impl Api {
    /// Starts one on loopback, which has what there is before the first version.
    pub(super) fn start(shape: Shape) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("the API's address"))?;
        let address = listener.local_addr().map_err(Error::io("the API's address"))?;
        let shared = Arc::new(Shared {
            over: AtomicBool::new(false),
            versions: Mutex::new(Versions {
                pace: None,
                document: Document::new(shape),
                answered: None,
                greeted: false,
                kept: VecDeque::new(),
            }),
        });
        let seen = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            for stream in listener.incoming().take(CONNECTIONS_MAX).map_while(Result::ok) {
                if seen.over.load(Ordering::Acquire) {
                    return;
                }
                let seen = Arc::clone(&seen);
                thread::spawn(move || {
                    // A connection that breaks is the server's to open again.
                    let _ = serve(&stream, &seen);
                });
            }
        });
        Ok(Self { address, shared, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on so many versions a second.
    pub(super) fn set_rate_hz(&self, rate_hz: f64) {
        let mut versions = self.shared.lock();
        let now_ns = monotonic_ns();
        let first = versions.pace.map_or(0, |pace| pace.newest(now_ns) + 1);
        versions.pace = Some(Pace { first, base_ns: now_ns, rate_hz });
    }

    /// Version `number`, where it is remembered.
    pub(super) fn version(&self, number: u64) -> Option<Arc<[u8]>> {
        let versions = self.shared.lock();
        versions.kept.iter().rev().find(|(kept, _)| *kept == number).map(|(_, text)| Arc::clone(text))
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        // The listener's thread looks when somebody comes; the others look by themselves.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(std::io::Read::take(stream, u64::MAX));
    let mut line = Vec::new();
    loop {
        // A request's head, to its empty line.
        reader.get_mut().set_limit(HEAD_BYTES_MAX);
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if line == b"\r\n" {
                break;
            }
        }
        let text = loop {
            if shared.over.load(Ordering::Acquire) {
                return Ok(());
            }
            let answered = shared.lock().answer(monotonic_ns());
            match answered {
                Ok(text) => break text,
                Err(left) => thread::sleep(left),
            }
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        let mut to = stream;
        to.write_all(&[head.as_bytes(), &text].concat())?;
    }
}

#[cfg(test)]
mod tests;
