//! Connections to an upstream: HTTP/1.1, kept open for the next fetches.
//!
//! A connection has no task of its own. The fetch that uses it reads and writes ([`Connection::drive`]), so a response wakes one task,
//! and idle connections cost nothing. An idle connection that the server closed is noticed when a fetch wants it.

use super::failure::{Failure, chain};
use super::{HEAD_BYTES_MAX, IDLE_TIMEOUT};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::{Request, Response, Uri, body::Incoming};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tower_service::Service;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Those of one upstream.
pub(super) struct Connections {
    connector: HttpsConnector<HttpConnector>,
    idle_max: usize,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is the last.
    connections: Vec<Connection>,
    /// Whether a task closes those that stay idle.
    is_swept: bool,
}

pub(super) struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    io: Pin<Box<http1::Connection<Stream, Empty<Bytes>>>>,
    /// Whether `io` has ended, and must not be polled again.
    is_over: bool,
    idle_since: Instant,
}

impl Connection {
    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(&mut self, request: Request<Empty<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let response = self.sender.send_request(request);
        self.drive(response).await
    }

    /// Waits for `work`, and reads and writes meanwhile.
    pub(super) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            self.poll_io(context);
            work.as_mut().poll(context)
        })
        .await
    }

    fn poll_io(&mut self, context: &mut Context<'_>) {
        // What ended it is the result of the request.
        self.is_over = self.is_over || self.io.as_mut().poll(context).is_ready();
    }

    /// Whether a request can be sent.
    async fn is_usable(&mut self) -> bool {
        poll_fn(|context| {
            self.poll_io(context);
            Poll::Ready(!self.is_over && self.sender.is_ready())
        })
        .await
    }
}

impl Connections {
    pub(super) fn new(connector: HttpsConnector<HttpConnector>, idle_max: usize) -> Self {
        Self { connector, idle_max, idle: Arc::default() }
    }

    /// An idle connection, if there is one.
    pub(super) async fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = lock(&self.idle).connections.pop()?;
            if connection.idle_since.elapsed() < IDLE_TIMEOUT && connection.is_usable().await {
                return Some(connection);
            }
        }
    }

    /// A new connection to the host of `url`.
    pub(super) async fn connect(&self, url: &Uri) -> Result<Connection, Failure> {
        let mut connector = self.connector.clone();
        let stream = async {
            poll_fn(|context| connector.poll_ready(context)).await?;
            connector.call(url.clone()).await
        };
        let stream = stream.await.map_err(|error| Failure::Connect(chain(&*error)))?;
        let mut builder = http1::Builder::new();
        let handshake = builder.max_buf_size(HEAD_BYTES_MAX).handshake(stream).await;
        let (sender, io) = handshake.map_err(|error| Failure::Connect(chain(&error)))?;
        Ok(Connection { sender, io: Box::pin(io), is_over: false, idle_since: Instant::now() })
    }

    /// Keeps a connection whose response was read, or dropped, for the next fetch.
    pub(super) async fn give_back(&self, mut connection: Connection) {
        if !connection.is_usable().await {
            return;
        }
        connection.idle_since = Instant::now();
        let mut idle = lock(&self.idle);
        if idle.connections.len() < self.idle_max {
            idle.connections.push(connection);
            if !std::mem::replace(&mut idle.is_swept, true) {
                tokio::spawn(sweep(self.idle.clone()));
            }
        }
    }
}

/// Closes connections that stay idle, until there are none.
async fn sweep(idle: Arc<Mutex<Idle>>) {
    loop {
        sleep(IDLE_TIMEOUT).await;
        let mut idle = lock(&idle);
        idle.connections.retain(|connection| connection.idle_since.elapsed() < IDLE_TIMEOUT);
        if idle.connections.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
