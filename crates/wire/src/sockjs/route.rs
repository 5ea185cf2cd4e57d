//! Parses the part of a path after a service's prefix into a [`Route`].
//!
//! Path segments are compared and returned as they are in the request, never percent-decoded: identifiers are
//! opaque, and the lookup of a key decodes it. One slash at the end of a path is allowed, as in sockjs-node.
//!
//! **Feeds.** `/feed/KEY` is a base path of its own for each key, so the server id `feed` is reserved. A key
//! has one or more segments, hence the path is read from the right. Rules for the segments after `/feed`:
//!
//! 1. If there are four or more and the last is a transport, the last three are server, session and
//!    transport, and the key is the rest. If the server or session contains a dot, the path is
//!    not found, even if another rule would match.
//! 2. Otherwise, if there are two or more and the last is `info`, `websocket` or an iframe page, that is the
//!    resource, and the key is the rest. So the raw WebSocket is unavailable for keys of three or more
//!    segments, by rule 1.
//! 3. Otherwise, if the last is a transport, the path is not found.
//! 4. Otherwise the resource is the greeting, and all segments are the key.
//!
//! A session of a key is never misread: its path always has the four segments of rule 1. In return, keys that
//! end in `info` and the like have no greeting.

/// Maximum length of a session or server id in bytes. Clients use 3 to 36.
pub const PART_BYTES_MAX: usize = 256;

/// The resource that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'p> {
    /// The key in `/feed/KEY/…`, still percent-encoded: non-empty segments joined by slashes, otherwise
    /// unchecked.
    pub key: Option<&'p str>,
    /// The resource under the prefix, or under the key.
    pub resource: Resource<'p>,
}

/// A resource under a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'p> {
    /// The text at the prefix itself.
    Greeting,
    /// The page that cross-domain transports load.
    Iframe,
    /// A description of the service's features.
    Info,
    /// A WebSocket without SockJS framing.
    RawWebSocket,
    /// A session, through one of the transports.
    Session {
        /// The server id. It only serves load balancers.
        server: &'p str,
        /// The session id. Several WebSocket connections may use the same one.
        session: &'p str,
        /// The transport.
        transport: Transport,
    },
}

/// The transport of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Both directions over one WebSocket.
    WebSocket,
    /// Server to client: one frame per response.
    Xhr,
    /// Client to server: a body of messages.
    XhrSend,
    /// Server to client: frames in one long response.
    XhrStreaming,
    /// Server to client: frames as Server-Sent Events.
    EventSource,
    /// Server to client: frames as scripts in an HTML page.
    HtmlFile,
    /// Server to client: one frame per response, as a function call.
    Jsonp,
    /// Client to server: a form with messages.
    JsonpSend,
}

impl Transport {
    /// All transports.
    pub const ALL: [Transport; 8] = [
        Transport::WebSocket,
        Transport::Xhr,
        Transport::XhrSend,
        Transport::XhrStreaming,
        Transport::EventSource,
        Transport::HtmlFile,
        Transport::Jsonp,
        Transport::JsonpSend,
    ];

    /// Returns the last segment of its paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::WebSocket => "websocket",
            Transport::Xhr => "xhr",
            Transport::XhrSend => "xhr_send",
            Transport::XhrStreaming => "xhr_streaming",
            Transport::EventSource => "eventsource",
            Transport::HtmlFile => "htmlfile",
            Transport::Jsonp => "jsonp",
            Transport::JsonpSend => "jsonp_send",
        }
    }

    fn from_part(part: &str) -> Option<Transport> {
        Transport::ALL.into_iter().find(|transport| transport.as_str() == part)
    }
}

/// Parses the part of a path after the prefix, without the query. `None` means not found.
pub fn parse_path(rest: &str) -> Option<Route<'_>> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Some(Route { key: None, resource: Resource::Greeting });
    }
    let parts = rest.strip_prefix('/')?;
    if parts.split('/').any(str::is_empty) {
        return None;
    }
    match parts.split_once('/') {
        Some(("feed", parts)) => feed(parts),
        Some(_) => {
            let session = LastThree::of(parts).filter(|session| session.before.is_none())?;
            Some(Route { key: None, resource: session.resource()? })
        }
        None => Some(Route { key: None, resource: page(parts)? }),
    }
}

/// Parses the segments after `/feed` by the rules above.
fn feed(parts: &str) -> Option<Route<'_>> {
    if let Some(session) = LastThree::of(parts)
        && session.before.is_some()
    {
        return Some(Route { key: session.before, resource: session.resource()? });
    }
    let (before, last) = parts.rsplit_once('/').map_or((None, parts), |(before, last)| (Some(before), last));
    if before.is_some()
        && let Some(resource) = page(last)
    {
        return Some(Route { key: before, resource });
    }
    Transport::from_part(last).is_none().then_some(Route { key: Some(parts), resource: Resource::Greeting })
}

/// The last three segments of a session's path, and the part before them.
struct LastThree<'p> {
    before: Option<&'p str>,
    server: &'p str,
    session: &'p str,
    transport: Transport,
}

impl<'p> LastThree<'p> {
    /// Splits a path. `None` if it has fewer than three segments, or the last one is no transport.
    fn of(parts: &'p str) -> Option<Self> {
        let (parts, transport) = parts.rsplit_once('/')?;
        let transport = Transport::from_part(transport)?;
        let (parts, session) = parts.rsplit_once('/')?;
        let (before, server) =
            parts.rsplit_once('/').map_or((None, parts), |(before, server)| (Some(before), server));
        Some(LastThree { before, server, session, transport })
    }

    /// Returns the session resource; `None` if an id is invalid.
    fn resource(&self) -> Option<Resource<'p>> {
        let is_id = |part: &str| part.len() <= PART_BYTES_MAX && !part.contains('.');
        let &LastThree { server, session, transport, .. } = self;
        (is_id(server) && is_id(session)).then_some(Resource::Session { server, session, transport })
    }
}

/// Parses a path of one segment.
fn page(part: &str) -> Option<Resource<'_>> {
    match part {
        "info" => Some(Resource::Info),
        "websocket" => Some(Resource::RawWebSocket),
        _ => {
            // In sockjs-node's pattern the dot of `.html` matches any character, by mistake.
            let version = part.strip_prefix("iframe")?.strip_suffix(".html")?;
            let allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
            version.bytes().all(allowed).then_some(Resource::Iframe)
        }
    }
}
