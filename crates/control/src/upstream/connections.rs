//! Connections to an upstream: HTTP/1.1, kept open for later fetches.
//!
//! A connection has no task. The fetch that uses it reads and writes ([`Connection::drive`]), so a response
//! wakes one task, and idle connections cost no CPU time. An idle connection that the server closed is
//! detected when a fetch takes it.

use super::explain::with_hint;
use super::failure::{Failure, chain};
use super::transport::{Stream, Transport};
use super::{HEADERS_MAX, IDLE_TIMEOUT};
use crate::options::UpstreamOptions;
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, Response, Uri, body::Incoming};
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The connections of one upstream.
pub(super) struct Connections {
    pub(super) transport: Transport,
    /// The parser's options for responses. They accept spaces before a header's colon and folded lines, as
    /// RFC 9112 allows for clients (sections 5.1 and 5.2).
    http: http1::Builder,
    idle_max: usize,
    age_max: Duration,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// Idle connections. The last one is the most recently used.
    connections: Vec<Connection>,
    /// `true` while a task runs that closes connections that stay idle ([`sweep`]).
    is_swept: bool,
}

pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    io: Pin<Box<http1::Connection<Stream, Full<Bytes>>>>,
    /// `true` if `io` has ended, so that it must not be polled again.
    is_over: bool,
    opened: Instant,
    idle_since: Instant,
}

impl Connection {
    /// Sends a request and waits for the response's headers.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let response = self.sender.send_request(request);
        self.drive(response).await
    }

    /// Waits for `work` while reading from and writing to the connection.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            self.poll_io(context);
            work.as_mut().poll(context)
        })
        .await
    }

    fn poll_io(&mut self, context: &mut Context<'_>) {
        // The result of `io` is ignored, because the request returns the cause of its end.
        self.is_over = self.is_over || self.io.as_mut().poll(context).is_ready();
    }

    /// Returns `true` if a request can be sent.
    async fn is_usable(&mut self) -> bool {
        poll_fn(|context| {
            self.poll_io(context);
            Poll::Ready(!self.is_over && self.sender.is_ready())
        })
        .await
    }
}

impl Connections {
    pub(super) fn new(transport: Transport, options: &UpstreamOptions) -> Self {
        let mut http = http1::Builder::new();
        // Headers above the limit that fit into this buffer are refused later, by `header_bytes`.
        http.max_buf_size(options.response_header_bytes_max.saturating_mul(2))
            .max_headers(HEADERS_MAX)
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true);
        Self {
            transport,
            http,
            idle_max: options.concurrency_max,
            age_max: options.connection_age_max,
            idle: Arc::default(),
        }
    }

    /// Returns `true` if a connection is too old for another request.
    fn is_old(&self, connection: &Connection) -> bool {
        connection.opened.elapsed() >= self.age_max
    }

    /// Takes an idle connection, if there is one.
    pub(super) async fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().connections.pop()?;
            let is_kept = connection.idle_since.elapsed() < IDLE_TIMEOUT && !self.is_old(&connection);
            if is_kept && connection.is_usable().await {
                return Some(connection);
            }
        }
    }

    /// Opens a new connection to the host of `url`.
    pub(super) async fn connect(&self, url: &Uri) -> Result<Connection, Failure> {
        let stream =
            self.transport.open(url).await.map_err(|error| Failure::Connect(with_hint(chain(&*error))))?;
        let handshake = self.http.handshake(stream).await;
        let (sender, io) = handshake.map_err(|error| Failure::Connect(with_hint(chain(&error))))?;
        let now = Instant::now();
        Ok(Connection { sender, io: Box::pin(io), is_over: false, opened: now, idle_since: now })
    }

    /// Keeps a connection for the next fetch, if it can be used again. Its response has been read or dropped.
    pub(super) async fn give_back(&self, mut connection: Connection) {
        if self.is_old(&connection) || !connection.is_usable().await {
            return;
        }
        connection.idle_since = Instant::now();
        let mut idle = self.idle.lock();
        if idle.connections.len() < self.idle_max {
            idle.connections.push(connection);
            if !std::mem::replace(&mut idle.is_swept, true) {
                tokio::spawn(sweep(Arc::downgrade(&self.idle)));
            }
        }
    }
}

/// Closes connections that stay idle, until no connection is left. `idle` is weak so that a reload that
/// replaces the upstream closes its idle connections at once: each takes 25 kB, which the ledger doesn't
/// count.
async fn sweep(idle: Weak<Mutex<Idle>>) {
    loop {
        sleep(IDLE_TIMEOUT).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut idle = idle.lock();
        idle.connections.retain(|connection| connection.idle_since.elapsed() < IDLE_TIMEOUT);
        if idle.connections.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}
