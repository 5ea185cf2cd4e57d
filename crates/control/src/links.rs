//! The application link, as the admin port calls it. The binary implements these traits, because the control plane knows no WebSockets.

use axum::http::HeaderMap;
use hyper::upgrade::Upgraded;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use stentor_ports::{Done, LinkApp, LinkInfo, LinkList};

/// The request of a worker for a link: `GET /link/v1`.
#[derive(Debug)]
pub struct WorkerRequest<'a> {
    /// The query, without `?`.
    pub query: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// `true` if the request has the token of the admin port.
    pub has_admin_token: bool,
    /// `true` if the admin port has a token.
    pub needs_token: bool,
    /// The worker's address.
    pub peer: Option<IpAddr>,
}

/// Takes the connection of a worker.
pub type Connect = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The answer 101 to a worker.
pub struct WorkerAccepted {
    /// The headers of the response.
    pub headers: Vec<(&'static str, String)>,
    /// Takes the connection when the response has been sent.
    pub connect: Connect,
}

stentor_ports::opaque_debug!(WorkerAccepted, "WorkerAccepted");

/// The answer to a request that isn't a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRefused {
    /// `true` if the request asks for no WebSocket.
    pub needs_upgrade: bool,
    /// The reason, for people.
    pub message: String,
}

/// The service of the application link.
pub trait Links: fmt::Debug + Send + Sync {
    /// Checks the request of a worker.
    ///
    /// # Errors
    /// If the request isn't a handshake.
    fn accept(&self, request: &WorkerRequest<'_>) -> Result<WorkerAccepted, WorkerRefused>;

    /// The application with this name.
    fn find(&self, app: &str) -> Option<LinkApp>;

    /// The name of an application.
    fn name(&self, app: LinkApp) -> Option<String>;

    /// The links of this node's workers.
    fn links(&self) -> Vec<LinkInfo>;

    /// Lists the links of all nodes' workers.
    fn list(&self, done: Done<LinkList>);
}
