//! An HTTP API with one document with numbered and timed versions, for servers that fetch what they push.
//!
//! A version is a JSON string with the layout of [`crate::payload`] or of [`crate::document`]. It is answered *when it
//! is due*, at `begin + n / rate`. An earlier request waits, so the time between two polls isn't part of the latency. A
//! later request gets the version at once, so the latency includes the server's lateness. Each version is answered once
//! and the next request gets the next one, so a polling server misses none. Before `begin`, the first request gets the
//! state before version 0 (`null`, or the document before its first change), and the others wait.
//!
//! If it skips, a request gets the newest version that is due, so a server with too few requests misses versions, as
//! with any API.
//!
//! The upstream follows RFC 9112 by `stentor-wire`, with a thread for each connection. Deliberately absent: every path
//! is the same document (except with `Content::documents`), requests with bodies are refused, and nothing is cached (no
//! `Cache-Control`, no validators).

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stentor_wire::http1::{BodyKind, HeadScanner, Limits, parse_request, write_response_head};

use crate::Error;
use crate::clock::{Clock, monotonic_ns};
use crate::document::{Document, Shape};
use crate::generator::Latencies;
use crate::payload::{self, HEAD_BYTES, Head};

/// Maximum number of connections. Further ones are closed.
const CONNECTIONS_MAX: usize = 64;
/// Time by which waits end early, to be on time. The rest is polled.
const WAKE_EARLY: Duration = Duration::from_micros(200);
/// The response before the first version, if the document is a string.
const NOTHING_YET: &[u8] = b"null";

/// Content of the responses, in its newest version.
pub(crate) enum Content {
    /// A string.
    Text(Vec<u8>),
    /// A document with few changes per version.
    Document(Box<Document>),
    /// One document per path. Each request gets its next version at once.
    Documents(Shape, HashMap<String, Document>),
}

/// Sets the rate of new versions of an upstream.
#[derive(Clone)]
pub(crate) struct Pacer(Arc<Serving>);

impl Pacer {
    /// Sets the rate after this time. The first version is due then.
    pub(crate) fn set_rate_hz(&self, rate_hz: f64, after: Duration) {
        let now_ns = monotonic_ns();
        self.0.change(|state| {
            let first = state.pace.map_or(0, |pace| pace.newest(now_ns) + 1);
            state.pace = Some(Pace { first, base_ns: now_ns + after.as_nanos() as u64, rate_hz });
        });
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

/// Statistics of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// Lateness of the answers with versions that a request waited for.
    pub(crate) lag: Latencies,
    /// Number of requests.
    pub(crate) requests: u64,
    /// Number of versions that were sent, and of initial documents.
    pub(crate) versions: u64,
}

/// A running upstream. Dropping it ends it.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    serving: Arc<Serving>,
    thread: Option<JoinHandle<()>>,
}

/// State that all connections share.
struct Serving {
    skips: bool,
    hesitates: Duration,
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    over: bool,
    clients: Vec<TcpStream>,
    /// The due times of versions. `None` until they are set.
    pace: Option<Pace>,
    content: Content,
    /// The next version to answer. `None` before the first answer.
    next: Option<u64>,
    /// The last response.
    last: Arc<[u8]>,
    served: Served,
}

impl Upstream {
    /// Starts an upstream on loopback, with versions of `content`, which [`Self::pacer`] times. `skips`: only the newest version is answered,
    /// instead of each one. The first answer takes `hesitates`.
    pub(crate) fn start(content: Content, skips: bool, hesitates: Duration) -> Result<Self, Error> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("the upstream's address"))?;
        let address = listener.local_addr().map_err(Error::io("the upstream's address"))?;
        let state = State {
            over: false,
            clients: Vec::new(),
            pace: None,
            content,
            next: None,
            last: Arc::default(),
            served: Served { lag: Latencies::new(), requests: 0, versions: 0 },
        };
        let serving = Arc::new(Serving {
            skips,
            hesitates,
            clock: Clock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&serving);
        let thread = thread::spawn(move || shared.accept(&listener));
        Ok(Self { address, serving, thread: Some(thread) })
    }

    /// Sets the times of versions. Until then, there is only the initial document.
    pub(crate) fn pacer(&self) -> Pacer {
        Pacer(Arc::clone(&self.serving))
    }

    /// Number of versions answered so far.
    pub(crate) fn versions(&self) -> u64 {
        self.serving.lock().served.versions
    }

    /// Ends the upstream. Returns its statistics.
    pub(crate) fn stop(mut self) -> Served {
        self.end();
        self.serving.lock().served.clone()
    }

    fn end(&mut self) {
        self.serving.change(|state| {
            state.over = true;
            for client in state.clients.drain(..) {
                let _ = client.shutdown(Shutdown::Both);
            }
        });
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}

impl Content {
    /// A string of this length, including its quotes, or of the length of the head and the quotes if that is longer.
    pub(crate) fn text(bytes: usize) -> Self {
        let mut text = payload::blank(bytes.max(HEAD_BYTES + 2));
        for end in [0, text.len() - 1] {
            text[end] = b'"';
        }
        Self::Text(text)
    }

    pub(crate) fn document(shape: Shape) -> Self {
        Self::Document(Box::new(Document::new(shape)))
    }

    pub(crate) fn documents(shape: Shape) -> Self {
        Self::Documents(shape, HashMap::new())
    }

    /// Returns the next version of a path's own document. The first one is the document before its first change. `None`
    /// if paths don't have their own.
    fn next_of(&mut self, path: String) -> Option<Arc<[u8]>> {
        let Self::Documents(shape, documents) = self else { return None };
        let is_there = documents.contains_key(&path);
        let document = documents.entry(path).or_insert_with(|| Document::new(*shape));
        if is_there {
            let sequence = document.version();
            document.advance();
            document.set_head(Head { sequence, intended_ns: monotonic_ns() });
        }
        Some(document.text().into())
    }

    /// The document before version 0.
    fn before(&self) -> Vec<u8> {
        match self {
            Self::Text(_) | Self::Documents(..) => NOTHING_YET.to_vec(),
            Self::Document(document) => document.text().to_vec(),
        }
    }

    /// Version `head.sequence`, which must not be older than the previous ones.
    fn at(&mut self, head: Head) -> Vec<u8> {
        match self {
            Self::Text(text) => {
                let end = text.len() - 1;
                head.write(&mut text[1..end]);
                text.clone()
            }
            Self::Documents(..) => Vec::new(),
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
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for stream in listener.incoming().flatten() {
            threads.retain(|thread| !thread.is_finished());
            let mut state = self.lock();
            if state.over {
                break;
            }
            if let (true, Ok(twin)) = (threads.len() < CONNECTIONS_MAX, stream.try_clone()) {
                state.clients.push(twin);
                let shared = Arc::clone(self);
                threads.push(thread::spawn(move || shared.serve(stream)));
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Answers on one connection until it ends or sends an unsupported request.
    fn serve(&self, mut stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        while let Some((at, path)) = read_request(&mut stream) {
            let Some(body) = self.answer(at, path) else { break };
            let mut answer = Vec::with_capacity(body.len() + 128);
            let length = body.len().to_string();
            let headers = [("Content-Type", "application/json"), ("Content-Length", &length)];
            write_response_head(&mut answer, 200, &headers);
            answer.extend_from_slice(&body);
            if stream.write_all(&answer).is_err() {
                break;
            }
        }
        let peer = stream.peer_addr().ok();
        let _ = stream.shutdown(Shutdown::Both);
        self.lock().clients.retain(|client| client.peer_addr().ok() != peer);
    }

    /// The response to a request that arrived at this time, as soon as it is due. `None` when the upstream ends.
    fn answer(&self, asked: Instant, path: String) -> Option<Arc<[u8]>> {
        let mut state = self.lock();
        state.served.requests += 1;
        if let Some(next) = state.content.next_of(path) {
            return Some(next);
        }
        let wanted = state.next;
        loop {
            if state.over {
                return None;
            }
            // All waiting requests get the same version.
            if state.next != wanted {
                return Some(Arc::clone(&state.last));
            }
            let now_ns = monotonic_ns();
            let due = match wanted {
                None => Some((0, self.clock.at_ns(asked) + self.hesitates.as_nanos() as u64)),
                Some(next) => state.pace.map(|pace| {
                    let number = if self.skips { pace.newest(now_ns).max(next) } else { next };
                    (number, pace.due_ns(number))
                }),
            };
            state = match due {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((_, due_ns)) if now_ns < due_ns => {
                    let left = Duration::from_nanos(due_ns - now_ns).saturating_sub(WAKE_EARLY);
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                Some((number, due_ns)) => {
                    // If no request waited for the newest version, it isn't late.
                    if wanted.is_some() && !self.skips {
                        let waited_ns = due_ns.max(self.clock.at_ns(asked)).min(now_ns);
                        state.served.lag.record_ns(now_ns - waited_ns);
                    }
                    state.last = match wanted {
                        None => state.content.before().into(),
                        Some(_) => state.content.at(Head { sequence: number, intended_ns: due_ns }).into(),
                    };
                    state.next = Some(wanted.map_or(0, |_| number + 1));
                    state.served.versions += 1;
                    self.changed.notify_all();
                    return Some(Arc::clone(&state.last));
                }
            };
        }
    }
}

/// Reads the next request. Returns its time of arrival and its path. `None` if there is no request or it is
/// unsupported.
fn read_request(stream: &mut TcpStream) -> Option<(Instant, String)> {
    let (limits, mut scanner) = (Limits::default(), HeadScanner::default());
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        let at = Instant::now();
        received.extend_from_slice(&buffer[..count]);
        let Some(end) = scanner.find_end(&received, &limits).ok()? else { continue };
        let request = parse_request(&received[..end], &limits).ok()?;
        let is_plain = request.method() == "GET" && matches!(request.body(), BodyKind::Empty);
        // No pipelining: one response is pending at a time.
        return (is_plain && end == received.len()).then(|| (at, request.target().to_owned()));
    }
}

#[cfg(test)]
mod tests;
