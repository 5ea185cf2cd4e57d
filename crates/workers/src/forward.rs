//! Requests for paths that aren't Stentor's: they go to the HTTP servers of an application's workers.
//!
//! ```text
//!  client ── a core: no path of ours ── Forward::forward ──► task: hyper ──► the HTTP server of a worker
//! ```
//!
//! The connection leaves its core with one request, whose headers the core has parsed and checked. Bodies pass in both directions without
//! being held: a side that doesn't read slows the other one down. The connection is closed after the response, so that the next request
//! reaches a core. A WebSocket is carried until one side ends it.
//!
//! Headers of one hop are left out (RFC 9110, section 7.6.1), and so are the headers with which clients could pretend to be proxies
//! (`X-Forwarded-…`, and those of `[auth.proxy]`). `X-Forwarded-For` and `X-Forwarded-Proto` have the client as Stentor knows it.
//!
//! Each request has a line in the access log, when its connection ends.
//!
//! **Bounds.** At most [`ForwardOptions::connections_max`] connections, each charged to the ledger. A request waits for a worker as long
//! as a session does. A connection without a byte in either direction for [`ForwardOptions::idle_timeout`] ends.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use stentor_ports::{
    ACCESS_LOG, Charge, Class, ClientConnection, Forward, ForwardedClient, LOGGED_PATH_BYTES_MAX, Ledger,
    Metric, MetricKind, MetricSource, is_named, shown, source_of,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Approximate size of a connection that is passed on, with the buffers of both sides, in bytes.
const CONNECTION_BYTES: usize = 32 << 10;
/// Maximum size of the headers of a request or response in bytes. A core has accepted the request's before.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum time to connect to a worker, which is near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An address has at most this part of the connections.
const ADDRESS_PART: usize = 4;

/// Headers of one hop, and of proxies in front of Stentor.
const NOT_PASSED: [&str; 13] = [
    "connection",
    "expect",
    "forwarded",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-real-ip",
    "http2-settings",
];

/// Bounds and times of requests that are passed on.
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum time for which a request waits for a worker.
    pub grace: Duration,
    /// Time without a byte in either direction after which a connection ends.
    pub idle_timeout: Duration,
    /// Further headers that workers don't receive: those of an authenticating proxy. Clients could forge the user in them, and
    /// workers must not learn the proxy's secret.
    pub hidden_headers: Vec<Box<str>>,
}

/// The addresses of the HTTP servers of an application's workers.
pub(crate) type Targets = Arc<[SocketAddr]>;

/// Passes requests on to the HTTP servers of an application's workers.
pub(crate) struct Forwarder {
    options: ForwardOptions,
    targets: watch::Receiver<Targets>,
    runtime: tokio::runtime::Handle,
    ledger: Arc<Ledger>,
    open: Arc<Open>,
    /// Number of requests so far. The next worker follows from it.
    requests: AtomicUsize,
    /// Number of requests that no worker has answered.
    unanswered: AtomicU64,
    refused: AtomicU64,
}

/// The open connections by client address, as [`source_of`] numbers it.
type Open = Mutex<HashMap<u64, usize>>;

/// Counts a connection until it is dropped.
struct Counted(Arc<Open>, u64);

impl Counted {
    fn new(open: &Arc<Open>, source: u64) -> Self {
        *open.lock().entry(source).or_default() += 1;
        Self(open.clone(), source)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.1);
            }
        }
    }
}

stentor_ports::opaque_debug!(Forwarder, "Forwarder");

type Body = BoxBody<Bytes, hyper::Error>;

/// The reason why no worker has answered.
enum Unanswered {
    /// No worker has an HTTP server.
    NoWorker,
    /// No HTTP server of a worker accepts a connection.
    Refused(io::Error),
    /// The worker hasn't sent a valid response.
    Broken(String),
}

impl Unanswered {
    fn response(&self) -> Response<Body> {
        let (status, message) = match self {
            Self::NoWorker => {
                (StatusCode::SERVICE_UNAVAILABLE, "no worker of the application has an HTTP server now")
            }
            Self::Refused(_) => (StatusCode::BAD_GATEWAY, "the application's HTTP server can't be reached"),
            Self::Broken(_) => (StatusCode::BAD_GATEWAY, "the application's HTTP server hasn't answered"),
        };
        let body = Full::new(Bytes::from(format!("{message}\n"))).map_err(|never| match never {}).boxed();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl Forwarder {
    /// Must be called within the runtime that carries the connections.
    pub(crate) fn new(
        options: ForwardOptions,
        targets: watch::Receiver<Targets>,
        ledger: Arc<Ledger>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            targets,
            runtime: tokio::runtime::Handle::current(),
            ledger,
            open: Arc::default(),
            requests: AtomicUsize::new(0),
            unanswered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Answers the request of a connection.
    async fn serve(self: Arc<Self>, connection: ClientConnection, client: ForwardedClient, held: Held) {
        let ClientConnection { socket, input, .. } = connection;
        let Ok(stream) = TcpStream::from_std(socket) else { return };
        let line = held.line.clone();
        let io =
            Watched { held: Some(held), ..Watched::new(stream, input.into(), self.options.idle_timeout) };
        let answer = |request: Request<Incoming>| {
            let (forwarder, line) = (self.clone(), line.clone());
            async move {
                line.begin(&request);
                let response = forwarder.pass(request, client).await.unwrap_or_else(|error| {
                    forwarder.unanswered.fetch_add(1, Ordering::Relaxed);
                    match &error {
                        Unanswered::NoWorker => {}
                        Unanswered::Refused(error) => {
                            tracing::warn!(%error, "the HTTP server of a worker can't be reached")
                        }
                        Unanswered::Broken(error) => {
                            tracing::warn!(error, "the HTTP server of a worker hasn't answered")
                        }
                    }
                    error.response()
                });
                line.status.store(response.status().as_u16(), Ordering::Relaxed);
                Ok::<_, Infallible>(response)
            }
        };
        let served = hyper::server::conn::http1::Builder::new()
            .keep_alive(false)
            .timer(TokioTimer::new())
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(io), hyper::service::service_fn(answer))
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection that was passed on to a worker has ended");
        }
    }

    /// Passes a request on, and its response back.
    async fn pass(
        &self,
        mut request: Request<Incoming>,
        client: ForwardedClient,
    ) -> Result<Response<Body>, Unanswered> {
        let stream = self.connect().await?;
        let io = TokioIo::new(Watched::new(stream, Bytes::new(), self.options.idle_timeout));
        let builder = hyper::client::conn::http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(io);
        let broken = |error: hyper::Error| Unanswered::Broken(error.to_string());
        let (mut sender, connection) = builder.await.map_err(broken)?;
        self.runtime.spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        let upgrade = request.headers().get(header::UPGRADE).cloned();
        let of_client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        // A request may name the server in its target (RFC 9112, section 3.2.2), which is for proxies.
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        let hidden = &self.options.hidden_headers;
        remove_hop(headers, |header| {
            header.starts_with("x-forwarded-") || hidden.iter().any(|name| is_named(header, name))
        });
        let address = client.ip.to_string();
        if let Ok(address) = HeaderValue::from_str(&address) {
            headers.insert(HeaderName::from_static("x-forwarded-for"), address);
        }
        let scheme = if client.is_secure { "https" } else { "http" };
        headers.insert(HeaderName::from_static("x-forwarded-proto"), HeaderValue::from_static(scheme));
        if let Some(upgrade) = upgrade {
            headers.insert(header::UPGRADE, upgrade);
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        let mut response = sender.send_request(request).await.map_err(broken)?;
        let switched =
            (response.status() == StatusCode::SWITCHING_PROTOCOLS).then(|| hyper::upgrade::on(&mut response));
        let upgrade = response.headers().get(header::UPGRADE).cloned();
        let headers = response.headers_mut();
        remove_hop(headers, |_| false);
        match (of_client, switched) {
            (Some(of_client), Some(of_worker)) => {
                headers.extend(upgrade.map(|upgrade| (header::UPGRADE, upgrade)));
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                self.runtime.spawn(async move {
                    if let (Ok(client), Ok(worker)) = (of_client.await, of_worker.await) {
                        let (mut client, mut worker) = (TokioIo::new(client), TokioIo::new(worker));
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut worker).await;
                    }
                });
            }
            (None, Some(_)) => {
                return Err(Unanswered::Broken("it switches protocols without being asked".into()));
            }
            (_, None) => {}
        }
        Ok(response.map(BodyExt::boxed))
    }

    /// Connects to a worker, each in turn.
    async fn connect(&self) -> Result<TcpStream, Unanswered> {
        let targets = {
            let mut followed = self.targets.clone();
            match timeout(self.options.grace, followed.wait_for(|targets| !targets.is_empty())).await {
                Ok(Ok(targets)) => targets.clone(),
                _ => return Err(Unanswered::NoWorker),
            }
        };
        let first = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut error = ErrorKind::NotConnected.into();
        for place in 0..targets.len() {
            let address = targets[(first + place) % targets.len()];
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(failed)) => error = failed,
                Err(_) => error = ErrorKind::TimedOut.into(),
            }
        }
        Err(Unanswered::Refused(error))
    }
}

/// The metrics with these values.
pub(crate) fn metrics([open, requests, unanswered, refused]: [u64; 4]) -> Vec<Metric> {
    use MetricKind::{Counter, Gauge};
    let metric = |kind, name, help, value| Metric { name, help, kind, samples: vec![(Vec::new(), value)] };
    vec![
        metric(
            Gauge,
            "link_http_connections",
            "Connections that are passed on to HTTP servers of workers (links.http)",
            open,
        ),
        metric(
            Counter,
            "link_http_requests",
            "Requests for other paths that were passed on to HTTP servers of workers (links.http)",
            requests,
        ),
        metric(
            Counter,
            "link_http_requests_failed",
            "Requests for other paths that were answered with 502 or 503, because no HTTP server of a worker answered",
            unanswered,
        ),
        metric(
            Counter,
            "link_http_connections_refused",
            "Requests for other paths that were refused because of links.http_connections_max",
            refused,
        ),
    ]
}

impl MetricSource for Forwarder {
    fn metrics(&self) -> Vec<Metric> {
        let open = self.open.lock().values().sum::<usize>() as u64;
        let requests = self.requests.load(Ordering::Relaxed) as u64;
        let [unanswered, refused] =
            [&self.unanswered, &self.refused].map(|count| count.load(Ordering::Relaxed));
        metrics([open, requests, unanswered, refused])
    }
}

impl Forward for Forwarder {
    fn has_room(&self, client: ForwardedClient) -> bool {
        let max = self.options.connections_max;
        let has_room = {
            let open = self.open.lock();
            let of_address = open.get(&source_of(client.ip)).copied().unwrap_or_default();
            open.values().sum::<usize>() < max && of_address < max.div_ceil(ADDRESS_PART)
        };
        if !has_room {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    fn forward(self: Arc<Self>, connection: ClientConnection, client: ForwardedClient) {
        // Cores that have seen room at the same time may exceed the maximum by one each.
        let counted = Counted::new(&self.open, source_of(client.ip));
        let bytes = CONNECTION_BYTES + connection.input.capacity();
        let charge = Charge::of(self.ledger.clone(), Class::Link, bytes);
        let held = Held { line: Arc::new(Line::new(client.ip)), _counted: counted, _charge: charge };
        self.runtime.clone().spawn(self.serve(connection, client, held));
    }
}

/// Places of a client's connection, until it ends: in the access log, among the open connections, and in the ledger.
struct Held {
    line: Arc<Line>,
    _counted: Counted,
    _charge: Charge,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.line.log();
    }
}

/// A line of the access log.
struct Line {
    begun: Instant,
    address: IpAddr,
    /// Method and path of the request.
    request: OnceLock<(Method, String)>,
    /// The status of the response. 0: there was none.
    status: AtomicU16,
    /// Number of bytes that were sent to the client.
    bytes: AtomicU64,
}

impl Line {
    fn new(address: IpAddr) -> Self {
        let (status, bytes) = (AtomicU16::new(0), AtomicU64::new(0));
        Self { begun: Instant::now(), address, request: OnceLock::new(), status, bytes }
    }

    fn begin(&self, request: &Request<Incoming>) {
        let mut path = shown(request.uri().path());
        path.truncate(LOGGED_PATH_BYTES_MAX);
        let _ = self.request.set((request.method().clone(), path));
    }

    fn log(&self) {
        let Some((method, path)) = self.request.get() else { return };
        let [status, bytes] =
            [u64::from(self.status.load(Ordering::Relaxed)), self.bytes.load(Ordering::Relaxed)];
        let duration_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (address, method, status) = (self.address, method.as_str(), (status > 0).then_some(status));
        tracing::info!(target: ACCESS_LOG, %address, method, path, status, bytes, duration_ms, "request");
    }
}

/// Removes the headers of one hop, those that `Connection` names, and those that `is_other` names.
fn remove_hop(headers: &mut HeaderMap, is_other: impl Fn(&str) -> bool) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let of_hop = |name: &HeaderName| NOT_PASSED.contains(&name.as_str()) || is_other(name.as_str());
    let known: Vec<HeaderName> = headers.keys().filter(|name| of_hop(name)).cloned().collect();
    for name in named.into_iter().chain(known) {
        headers.remove(name);
    }
}

/// A stream that ends after a time without a byte, with bytes that were read from it before.
struct Watched {
    stream: TcpStream,
    input: Bytes,
    idle_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// `None`: the connection to a worker.
    held: Option<Held>,
}

impl Watched {
    fn new(stream: TcpStream, input: Bytes, idle_timeout: Duration) -> Self {
        Self { stream, input, idle_timeout, timer: Box::pin(sleep(idle_timeout)), held: None }
    }

    /// Passes the result of a call on. A call that waits fails when the time without a byte is over.
    fn watch<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.timer.as_mut().reset(Instant::now() + self.idle_timeout);
            return result;
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.input.is_empty() {
            let bytes = this.input.len().min(buffer.remaining());
            buffer.put_slice(&this.input.split_to(bytes));
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        this.watch(cx, read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if let (Poll::Ready(Ok(bytes)), Some(held)) = (&written, &this.held) {
            held.line.bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        this.watch(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
