//! The admin port: HTTP/1.1 on its own address, loopback by default.
//!
//! [`api`] declares every operation. Every request passes [`guard`] first. The resources of a client are
//! bounded: number of connections, size and time of the headers, size and time of a message, and time without
//! reading the response. Bodies are charged to the ledger, and refused while memory is short.

mod acknowledged;
pub mod api;
mod body;
mod commands;
mod fetch;
mod guard;
mod idempotency;
mod keys;
mod lines;
mod links;
mod lists;
mod openapi;
mod page;
mod places;
mod publish;
mod push;
pub(crate) mod reason;
mod reload;
mod repoll;
mod revocations;
mod status;

pub(crate) use keys::NodeFeeds;
pub use openapi::openapi;

use crate::auth::Auth;
use crate::current::Current;
use crate::feeds::Request as FeedRequest;
use crate::links::Links;
use crate::metrics::{Metrics, ReasonLabels, Refusals};
use crate::options::{AdminOptions, Reload};
use crate::overview::Overview;
use crate::pushed_documents::PushedDocuments;
use crate::signals::{Signals, stopped};
use crate::upstream::Prober;
use crate::view::FeedsView;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use places::{Places, Progress};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use reason::Reason;
use repoll::repoll;
use serde::Serialize;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_ports::{DataPlane, Ledger};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Maximum size in bytes of a request's headers, and of one read of a body. With 64 KiB, 250 unfinished
/// bodies took 30 MB more.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 64;
/// Delay before the next accept after an error, such as no free file descriptor.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Parts of the process that requests call. `None`: the process doesn't have it.
pub(crate) struct Services {
    pub(crate) reload: Option<Arc<dyn Reload>>,
    pub(crate) links: Option<Arc<dyn Links>>,
    pub(crate) overview: Arc<Overview>,
    pub(crate) documents: Option<fn(&str) -> Option<String>>,
}

/// State shared by all requests.
pub(crate) struct State {
    pub(crate) options: Current<AdminOptions>,
    pub(crate) services: Services,
    pub(crate) data_plane: DataPlane,
    pub(crate) signals: Arc<Signals>,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    pub(crate) feeds: Arc<FeedsView>,
    /// Fetches keys for `POST /api/v1/fetch`.
    pub(crate) prober: Current<Prober>,
    /// Requests to the feeds' task.
    pub(crate) feed_requests: mpsc::Sender<FeedRequest>,
    pub(crate) pushed_documents: Arc<PushedDocuments>,
    pub(crate) begun: Instant,
    pub(crate) idempotency_keys: idempotency::IdempotencyKeys,
    pub(crate) auth: Option<Arc<Auth>>,
    /// Accounts for bodies of requests while they are read and processed.
    pub(crate) ledger: Arc<Ledger>,
    /// `Some` if the port uses TLS.
    pub(crate) tls: Option<TlsAcceptor>,
}

/// The address of a connection's other side.
#[derive(Clone, Copy, Debug)]
struct Peer(SocketAddr);

/// An error response.
#[derive(Debug)]
struct Refusal {
    reason: Reason,
    message: String,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    message: &'a str,
}

impl Refusal {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Counts the refusal in `refusals`. `known` are the reasons that docs/metrics.md lists for this metric.
    fn count(&self, refusals: &Refusals, mut known: impl Iterator<Item = &'static str>) {
        debug_assert!(known.any(|code| code == self.reason.code), "{self:?}");
        refusals.get_or_create(&ReasonLabels { reason: self.reason.code }).inc();
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let Reason { status, code, .. } = self.reason;
        let mut response = json(status, &ErrorBody { code, message: &self.message });
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Makes a JSON response. Serialization can't fail, because the values' keys are strings and their numbers
/// are finite.
fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn router(state: Arc<State>) -> Router {
    let routes = api::OPERATIONS.iter().map(api::Operation::route);
    let router = routes.fold(Router::new(), |router, (path, handler)| router.route(&path, handler));
    page::add_to(links::add_to(router))
        .fallback(async || {
            let message = "known paths are / (the status page), /api/v1/publish, /api/v1/emit, /api/v1/join, /api/v1/leave, /api/v1/disconnect, \
                           /api/v1/sessions, /api/v1/rooms, /api/v1/rooms/members, /api/v1/revocations, /api/v1/feeds, /api/v1/feeds/KEY, /api/v1/fetch, /api/v1/status, /api/v1/overview, /api/v1/nodes, /api/v1/links, \
                           /api/v1/reload, /link/v1, /metrics, /healthz and \
                           /readyz";
            Refusal::new(reason::ROUTE, message)
        })
        .method_not_allowed_fallback(async || {
            let message = "the path doesn't support this method; /api/v1/publish, emit, join, leave, disconnect, fetch and reload \
                           support POST, sessions and revocations POST and GET, /api/v1/feeds/KEY PUT and DELETE, the others GET";
            Refusal::new(reason::METHOD, message)
        })
        .with_state(state)
}

/// State of the admin port. Only in the state `Yes` does it accept connections, and further requests on open
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listening {
    Yes,
    /// The port accepts no new connections until it resumes.
    Paused,
    /// The socket is closed, and stays closed.
    Closed,
}

/// Serves until `stop` is set. Requests in progress may then finish within `shutdown_timeout`.
///
/// While paused, accepts no connections, and each open connection ends with its response.
pub(crate) async fn serve(
    listener: Arc<TcpListener>,
    state: Arc<State>,
    mut listening: watch::Receiver<Listening>,
    mut stop: watch::Receiver<bool>,
) {
    let mut listener = Some(listener);
    let router = TowerToHyperService::new(router(state.clone()));
    let mut places = Places::default();
    loop {
        let state_of_port = *listening.borrow_and_update();
        if state_of_port == Listening::Closed {
            listener = None;
        }
        let accepting = listener.as_deref().filter(|_| state_of_port == Listening::Yes);
        tokio::select! {
            () = stopped(&mut stop) => break,
            Ok(()) = listening.changed() => {}
            () = places.ended() => {}
            accepted = accept(accepting) => match accepted {
                Err(error) => {
                    tracing::warn!(%error, "the admin port can't accept connections");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
                Ok((stream, _)) => {
                    let message = "too many connections (admin_limits.connections_max)";
                    match places.make_room(state.options.load().connections_max).await {
                        Ok(false) => {}
                        Ok(true) => Refusal::new(reason::TOO_MANY_CONNECTIONS, message)
                            .count(&state.metrics.admin_refusals, reason::refusals()),
                        Err(()) => {
                            turn_away(&stream, &state, reason::TOO_MANY_CONNECTIONS, message);
                            continue;
                        }
                    }
                    let (state, router, progress) = (state.clone(), router.clone(), Progress::default());
                    let (listening, stop) = (listening.clone(), stop.clone());
                    places.spawn(progress.clone(), async move {
                        let _counted = Counted::new(state.metrics.admin_connections.clone());
                        connection(stream, &state, router, &progress, listening, stop).await;
                    });
                }
            },
        }
    }
    drop(listener);
    // Dropping the remaining connections aborts them.
    let _ = tokio::time::timeout(state.options.load().shutdown_timeout, places.all_ended()).await;
}

/// Accepts the next connection. Waits forever without a listener (the port is paused).
async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Counts a connection in a gauge, from the creation of this value until it is dropped, also by a panic.
struct Counted(Gauge);

impl Counted {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Refuses a connection. Sends the reason if it fits into the socket's buffer. A client that expects TLS only
/// sees that the connection closes.
fn turn_away(stream: &TcpStream, state: &State, reason: Reason, message: &str) {
    let refusal = Refusal::new(reason, message);
    refusal.count(&state.metrics.admin_refusals, reason::refusals());
    let (status, code, message) = (refusal.reason.status, refusal.reason.code, refusal.message);
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
         {{\"code\":\"{code}\",\"message\":\"{message}\"}}\n"
    );
    let _ = stream.try_write(answer.as_bytes());
}

/// Carries out the TLS handshake. Returns `None` if it fails.
async fn handshake(stream: TcpStream, acceptor: &TlsAcceptor, state: &State) -> Option<TlsStream<TcpStream>> {
    let opened = tokio::time::timeout(state.options.load().header_timeout, async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
            // An unread request would reset the connection before the client has read the response.
            let _ = stream.try_read(&mut [0; 4096]);
            turn_away(&stream, state, reason::TLS, "plain HTTP was sent to a port that uses TLS");
            return Ok(None);
        }
        acceptor.accept(stream).await.map(Some)
    });
    let error = match opened.await {
        Ok(Ok(opened)) => return opened,
        Ok(Err(error)) => error.to_string(),
        Err(late) => late.to_string(),
    };
    tracing::debug!(error, "a TLS handshake on the admin port failed");
    Refusal::new(reason::TLS, error).count(&state.metrics.admin_refusals, reason::refusals());
    None
}

async fn connection(
    stream: TcpStream,
    state: &State,
    router: TowerToHyperService<Router>,
    progress: &Progress,
    listening: watch::Receiver<Listening>,
    mut stop: watch::Receiver<bool>,
) {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return };
    let addresses = (local, Peer(peer));
    let _ = stream.set_nodelay(true);
    // The kernel ends the connection of a client that doesn't read its response.
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(state.options.load().body_timeout));
    let Some(acceptor) = &state.tls else {
        return answer(stream, addresses, state, router, progress, listening, stop).await;
    };
    let opened = tokio::select! {
        opened = handshake(stream, acceptor, state) => opened,
        () = stopped(&mut stop) => None,
    };
    if let Some(stream) = opened {
        answer(stream, addresses, state, router, progress, listening, stop).await;
    }
}

/// Answers the requests of a connection until it ends.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    (local, peer): (SocketAddr, Peer),
    state: &State,
    router: TowerToHyperService<Router>,
    progress: &Progress,
    mut listening: watch::Receiver<Listening>,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        respond(state, &router, progress, local, request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(state.options.load().header_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = repoll(async {
        tokio::select! {
            ended = connection.as_mut() => ended,
            // After a takeover, the next request must reach the new process, so the connection ends after the
            // current response.
            () = async {
                tokio::select! {
                    _ = listening.wait_for(|state| *state != Listening::Yes) => {}
                    () = stopped(&mut stop) => {}
                }
            } => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the admin port failed");
    }
}

async fn respond(
    state: &State,
    router: &TowerToHyperService<Router>,
    progress: &Progress,
    local: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let options = state.options.load();
    let mut response = match guard::check(&options, local, &request) {
        Ok(()) if guard::is_authorized(&options, &request) => {
            router.call(request.map(|body| progress.watch(body))).await?
        }
        Ok(()) => router.call(request).await?,
        Err(refusal) => {
            refusal.count(&state.metrics.admin_refusals, reason::refusals());
            refusal.into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
