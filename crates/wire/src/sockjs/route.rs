//! Paths: what follows a service's prefix, read to a [`Route`].
//!
//! Parts are compared and handed on as they are in the request, never percent-decoded: identifiers are opaque, and a
//! key is decoded by whoever checks keys. One slash at the end of a path is allowed, as in sockjs-node.
//!
//! **Feeds.** `/feed/KEY` is a base path of its own for each key, so the server id `feed` is reserved. A key has one
//! part or more, hence what comes after it is found from the right. Of the parts after `/feed`:
//!
//! 1. If there are four or more and the last is a transport, the last three are server, session and transport, and
//!    the key is the rest. A dot in server or session is not found, even if another reading were possible.
//! 2. Else, if there are two or more and the last is `info`, `websocket` or an iframe page, it is that, and the key is
//!    the rest. So the raw WebSocket is out of reach for keys of three parts or more, by rule 1.
//! 3. Else, if the last is a transport, it is not found.
//! 4. Else it is the greeting, and the key is everything.
//!
//! A session of a key is never misread: its path always has the four parts of rule 1. What the rules cost is the
//! greeting of keys that end in `info` and the like.

/// Longest session or server id, in bytes. Clients use 3 to 36.
pub const PART_BYTES_MAX: usize = 256;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'p> {
    /// The key of `/feed/KEY/…`, still percent-encoded: non-empty parts joined by slashes, not checked further.
    pub key: Option<&'p str>,
    /// What is asked for under the prefix, or under the key.
    pub resource: Resource<'p>,
}

/// What there is under a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'p> {
    /// The text at the prefix itself.
    Greeting,
    /// The page that transports across domains load.
    Iframe,
    /// What the service can do.
    Info,
    /// A WebSocket without SockJS framing.
    RawWebSocket,
    /// A session, by one of the transports.
    Session {
        /// For load balancers; it says nothing about the session.
        server: &'p str,
        /// Which session. Several WebSocket connections may bear the same one.
        session: &'p str,
        /// How.
        transport: Transport,
    },
}

/// How a session's bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Both ways over one WebSocket.
    WebSocket,
    /// Out: one frame per response.
    Xhr,
    /// In: a body of messages.
    XhrSend,
    /// Out: frames in one long response.
    XhrStreaming,
    /// Out: frames as Server-Sent Events.
    EventSource,
    /// Out: frames as scripts in an HTML page.
    HtmlFile,
    /// Out: one frame per response, as a call of a function.
    Jsonp,
    /// In: a form with messages.
    JsonpSend,
}

impl Transport {
    /// All of them.
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

    /// The last part of its paths.
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

/// Reads what follows the prefix in a path (without the query). `None` is not found.
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

/// The parts after `/feed`, by the rules above.
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

/// The end of a session's path, and what is before it.
struct LastThree<'p> {
    before: Option<&'p str>,
    server: &'p str,
    session: &'p str,
    transport: Transport,
}

impl<'p> LastThree<'p> {
    /// `None` if there are not three parts, or the last is no transport.
    fn of(parts: &'p str) -> Option<Self> {
        let (parts, transport) = parts.rsplit_once('/')?;
        let transport = Transport::from_part(transport)?;
        let (parts, session) = parts.rsplit_once('/')?;
        let (before, server) =
            parts.rsplit_once('/').map_or((None, parts), |(before, server)| (Some(before), server));
        Some(LastThree { before, server, session, transport })
    }

    /// `None` if an id is impossible.
    fn resource(&self) -> Option<Resource<'p>> {
        let is_id = |part: &str| part.len() <= PART_BYTES_MAX && !part.contains('.');
        let &LastThree { server, session, transport, .. } = self;
        (is_id(server) && is_id(session)).then_some(Resource::Session { server, session, transport })
    }
}

/// A path of one part.
fn page(part: &str) -> Option<Resource<'_>> {
    match part {
        "info" => Some(Resource::Info),
        "websocket" => Some(Resource::RawWebSocket),
        _ => {
            // sockjs-node's pattern lets any character stand for the dot of `.html`; that is a slip.
            let version = part.strip_prefix("iframe")?.strip_suffix(".html")?;
            let allowed =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
            version.bytes().all(allowed).then_some(Resource::Iframe)
        }
    }
}
