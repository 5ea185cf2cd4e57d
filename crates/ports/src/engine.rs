//! The options of applications whose clients are served by workers: those that the workers' Socket.IO servers have.
//!
//! The link sets them before it accepts the first worker, and the cores read them with each request of a client.

use crate::{ClientConnection, LinkApp};
use parking_lot::RwLock;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The path of an application whose workers haven't chosen one.
const DEFAULT_PATH: &str = "/socket.io/";

/// The default of [`EngineOptions::queue_bytes_max`].
const QUEUE_BYTES_MAX: usize = 64 << 10;

crate::with_defaults! {
    /// Options of the engine of an application. `None`: the node's own option applies.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EngineOptions {
        /// The path of the application's clients. It begins with `/`. Paths that begin with it are the application's.
        pub path: Box<str> = DEFAULT_PATH.into(),
        /// Time between two pings.
        pub ping_interval: Option<Duration> = None,
        /// Time for the answer to a ping.
        pub ping_timeout: Option<Duration> = None,
        /// Time for a client to change from polling to a WebSocket.
        pub upgrade_timeout: Option<Duration> = None,
        /// Maximum size of a client's message, and of the body of a POST, in bytes.
        pub message_bytes_max: Option<usize> = None,
        /// Size of a client's messages that wait for its worker, in bytes, above which the client isn't read.
        pub queue_bytes_max: usize = QUEUE_BYTES_MAX,
        /// `true` if clients may poll.
        pub has_polling: bool = true,
        /// `true` if clients may use WebSockets.
        pub has_websocket: bool = true,
        /// `true` if polling clients may change to a WebSocket.
        pub allows_upgrades: bool = true,
        /// `true` if clients of Engine.IO 3 are accepted, provided that the node accepts them.
        pub allows_version_3: bool = true,
        /// `true` if the workers serve the client's script at the path of the clients.
        pub serves_client: bool = true,
        /// The cookie of new sessions, whose value is the session's id.
        pub cookie: Option<EngineCookie> = None,
        /// The rules for pages of other origins. `None`: those of the node.
        pub cors: Option<EngineCors> = None,
        /// `true` if these are options of a worker. Before the first worker, the rules for pages aren't known.
        pub is_of_worker: bool = false,
    }
}

impl EngineOptions {
    /// Options without an engine's, for clients of this path. Empty: `/socket.io/`.
    pub fn of_path(path: &str) -> Self {
        let path = if path.is_empty() { DEFAULT_PATH } else { path };
        Self { path: path.into(), ..Self::default() }
    }

    /// `true` if a request with this path is one of the application's clients. Its path may have a longer end, as with the package
    /// `engine.io`, or no `/` at its end.
    fn is_at(&self, path: &str) -> bool {
        path.starts_with(&*self.path) || self.path.strip_suffix('/') == Some(path)
    }
}

/// The client of a request that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedClient {
    /// The client's address. Behind trusted proxies, the address that they report.
    pub ip: IpAddr,
    /// `true` if the client uses TLS.
    pub is_secure: bool,
}

/// Passes requests for paths that aren't the node's on to the HTTP servers of an application's workers. The cores call it on their threads:
/// no call blocks.
pub trait Forward: fmt::Debug + Send + Sync {
    /// `true` if one more request of this client can be passed on. Otherwise the request counts as refused.
    fn has_room(&self, client: ForwardedClient) -> bool;

    /// Passes on the request at which a connection stands, and ends the connection after the response.
    fn forward(self: Arc<Self>, connection: ClientConnection, client: ForwardedClient);
}

/// A cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCookie {
    /// The name.
    pub name: Box<str>,
    /// The attributes as in `Set-Cookie`: each begins with `; `.
    pub attributes: Box<str>,
}

/// Rules for pages of other origins, as of the package `cors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCors {
    /// The origins whose pages may connect.
    pub origins: EngineOrigins,
    /// `true` if pages may send cookies.
    pub credentials: bool,
    /// The value of `Access-Control-Allow-Methods`.
    pub methods: Box<str>,
    /// The value of `Access-Control-Allow-Headers`. `None`: the headers that the page names.
    pub allowed_headers: Option<Box<str>>,
    /// The value of `Access-Control-Expose-Headers`.
    pub exposed_headers: Option<Box<str>>,
    /// The value of `Access-Control-Max-Age`.
    pub max_age: Option<Box<str>>,
    /// The status of the response to a preflight request.
    pub preflight_status: u16,
}

/// The origins whose pages may connect to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineOrigins {
    /// All origins: the response has `*`.
    Any,
    /// All origins: the response has the page's own.
    Reflected,
    /// These origins, compared whole.
    Listed(Vec<Box<str>>),
}

impl EngineOptions {
    /// `true` if a path is that of the client's script, such as `/socket.io/socket.io.min.js`, and the workers serve it.
    pub fn has_script(&self, path: &str) -> bool {
        let name = path.strip_prefix(&*self.path).map(|name| name.trim_start_matches('/'));
        let is_script = |name: &str| {
            let file = name.strip_suffix(".map").unwrap_or(name);
            name.starts_with("socket.io") && file.ends_with(".js") && !name.contains('/')
        };
        self.serves_client && name.is_some_and(is_script)
    }
}

impl EngineCors {
    /// `true` if pages of this origin may connect.
    pub fn allows(&self, origin: &str) -> bool {
        match &self.origins {
            EngineOrigins::Any | EngineOrigins::Reflected => true,
            EngineOrigins::Listed(list) => list.iter().any(|listed| **listed == *origin),
        }
    }

    /// The headers of a response to a page of this origin. `None`: the request has no `Origin`.
    pub fn headers<'a>(&'a self, origin: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
        let allowed = match &self.origins {
            EngineOrigins::Any => Some("*"),
            _ => origin.filter(|origin| self.allows(origin)),
        };
        let mut headers = Vec::with_capacity(4);
        headers.extend(allowed.map(|origin| ("Access-Control-Allow-Origin", origin)));
        if self.origins != EngineOrigins::Any {
            headers.push(("Vary", "Origin"));
        }
        if self.credentials {
            headers.push(("Access-Control-Allow-Credentials", "true"));
        }
        headers.extend(self.exposed_headers.as_deref().map(|names| ("Access-Control-Expose-Headers", names)));
        headers
    }

    /// The further headers of the response to a preflight request. `asked` are the headers that the page names.
    pub fn preflight_headers<'a>(&'a self, asked: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
        let mut headers = vec![("Access-Control-Allow-Methods", &*self.methods)];
        let allowed = self.allowed_headers.as_deref().or(asked);
        headers.extend(allowed.map(|names| ("Access-Control-Allow-Headers", names)));
        headers.extend(self.max_age.as_deref().map(|seconds| ("Access-Control-Max-Age", seconds)));
        headers
    }
}

/// The options of all applications, in the order of [`LinkApp`].
#[derive(Debug)]
pub struct LinkApps {
    options: RwLock<Vec<Arc<EngineOptions>>>,
    /// Number of refused requests of each application that may still be reported.
    reports: Box<[AtomicU32]>,
}

impl LinkApps {
    /// Makes applications with these options for their clients. The workers of an application may replace its options.
    pub fn new(options: impl IntoIterator<Item = EngineOptions>) -> Self {
        let options: Vec<_> = options.into_iter().map(Arc::new).collect();
        let reports = options.iter().map(|_| AtomicU32::new(0)).collect();
        Self { options: RwLock::new(options), reports }
    }

    /// Takes one of the reports about an application's requests that Stentor refuses itself. `false`: no worker listens, or the
    /// application has used its reports up.
    pub fn take_report(&self, app: LinkApp) -> bool {
        let take = |own: &AtomicU32| {
            own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        self.reports.get(usize::from(app.0)).is_some_and(take)
    }

    /// Number of reports that an application has left.
    pub fn reports(&self, app: LinkApp) -> u32 {
        self.reports.get(usize::from(app.0)).map_or(0, |left| left.load(Ordering::Relaxed))
    }

    /// Gives an application this number of reports.
    pub fn set_reports(&self, app: LinkApp, count: u32) {
        if let Some(own) = self.reports.get(usize::from(app.0)) {
            own.store(count, Ordering::Relaxed);
        }
    }

    /// The application of a request's path, with its options. The longest path wins.
    pub fn find(&self, path: &str) -> Option<(LinkApp, Arc<EngineOptions>)> {
        let apps = self.options.read();
        let found = apps.iter().enumerate().filter(|(_, options)| options.is_at(path));
        let (place, options) = found.max_by_key(|(_, options)| options.path.len())?;
        Some((LinkApp(u16::try_from(place).ok()?), options.clone()))
    }

    /// The application, other than `app`, whose clients have this path.
    pub fn other_at(&self, path: &str, app: LinkApp) -> Option<LinkApp> {
        let apps = self.options.read();
        let place = apps.iter().position(|options| *options.path == *path)?;
        Some(LinkApp(u16::try_from(place).ok()?)).filter(|other| *other != app)
    }

    /// Sets the options of an application's workers. Clients that are connected keep theirs.
    pub fn set(&self, app: LinkApp, options: EngineOptions) {
        let mut apps = self.options.write();
        if let Some(known) = apps.get_mut(usize::from(app.0)) {
            *known = Arc::new(EngineOptions { is_of_worker: true, ..options });
        }
    }
}
