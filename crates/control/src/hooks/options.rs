//! What can be configured of hooks.

use super::pattern::Pattern;
use crate::error::Error;
use hyper::Uri;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What a hook is asked or told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookKind {
    /// A client wants to connect.
    Connect,
    /// A client wants to subscribe to a room or feed.
    Subscribe,
    /// A client wants to publish to a room.
    Publish,
    /// A client has sent an event.
    Event,
    /// A session has begun.
    Connected,
    /// A session has ended.
    Disconnected,
    /// A session has subscribed to a room or feed.
    Subscribed,
    /// A room or feed has its first subscriber on this node.
    Occupied,
    /// A room or feed has lost the last one.
    Vacated,
    /// Another node of the cluster has gone.
    NodeLost,
    /// Notices were dropped: the rooms and feeds that have subscribers on this node.
    Resync,
}

impl HookKind {
    /// Questions, in the order of their declaration.
    pub const QUESTIONS: [Self; 4] = [Self::Connect, Self::Subscribe, Self::Publish, Self::Event];
    /// Notices, which have no answers.
    pub const NOTICES: [Self; 7] = [
        Self::Connected,
        Self::Disconnected,
        Self::Subscribed,
        Self::Occupied,
        Self::Vacated,
        Self::NodeLost,
        Self::Resync,
    ];

    /// Its name in the configuration, in requests and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Event => "event",
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Subscribed => "subscribed",
            Self::Occupied => "occupied",
            Self::Vacated => "vacated",
            Self::NodeLost => "node_lost",
            Self::Resync => "resync",
        }
    }
}

/// What happens to a question that a hook doesn't answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// The client is refused with `unavailable`, and may try again.
    #[default]
    Refuse,
    /// As if there were no hook. Events are refused all the same, because nothing else handles them.
    Allow,
}

/// A key, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HookSecret(String);

impl HookSecret {
    /// A key of these bytes.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookSecret(…)")
    }
}

/// One hook.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// Its name in logs and metrics, unique.
    pub name: String,
    /// Where requests are sent: `http://` or `https://`, a host, and perhaps a path and a query.
    pub url: String,
    /// What it is asked about.
    pub on: Vec<HookKind>,
    /// The Socket.IO namespaces that it is for. `*` stands for any text. Empty: all.
    pub namespaces: Vec<String>,
    /// The rooms and feeds that it is asked about. Empty: all.
    pub topics: Vec<String>,
    /// The names of the events that it handles. Empty: all that nothing else handles.
    pub events: Vec<String>,
    /// The key of the signature. `None`: requests aren't signed.
    pub secret: Option<HookSecret>,
    /// Time that a question waits to be sent, and time for a request, from when its newest question was asked to the end of the response.
    pub timeout: Duration,
    /// What happens to a question without an answer.
    pub when_unavailable: WhenUnavailable,
    /// Questions of one request.
    pub batch_max: usize,
    /// How long questions are gathered for a request while another one is in flight.
    pub batch_delay: Duration,
    /// Requests in flight.
    pub concurrency_max: usize,
    /// Questions that wait for a request.
    pub waiting_max: usize,
    /// Bytes of these questions.
    pub waiting_bytes_max: usize,
    /// Bytes of a response.
    pub response_bytes_max: usize,
    /// Answers that are kept because they carry a `ttl`.
    pub cached_answers_max: usize,
    /// File with PEM certificates to trust for https, instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl Default for HookOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            on: Vec::new(),
            namespaces: Vec::new(),
            topics: Vec::new(),
            events: Vec::new(),
            secret: None,
            timeout: Duration::from_secs(2),
            when_unavailable: WhenUnavailable::default(),
            batch_max: 100,
            batch_delay: Duration::from_millis(5),
            concurrency_max: 8,
            waiting_max: 10_000,
            waiting_bytes_max: 16 << 20,
            response_bytes_max: 4 << 20,
            cached_answers_max: 10_000,
            ca_file: None,
        }
    }
}

impl HookOptions {
    /// Checks what the ranges of the values don't.
    ///
    /// # Errors
    /// Which field is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.uri().map_err(|text| ("url", text))?;
        if self.on.is_empty() {
            return Err((
                "on",
                "name at least one of connect, subscribe, publish, event, or a notice".to_owned(),
            ));
        }
        Ok(())
    }

    /// The parsed URL.
    pub(super) fn uri(&self) -> Result<Uri, String> {
        let uri: Uri = self.url.parse().map_err(|error| format!("not a URL: {error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err("expected a URL beginning with http:// or https://".to_owned());
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("credentials don't belong in the URL; use secret to sign requests".to_owned());
        }
        Ok(uri)
    }

    pub(super) fn error(&self, field: &str, message: impl Into<String>) -> Error {
        Error::setting(format!("hooks.{}.{field}", self.name), message)
    }
}

/// Which questions a hook takes.
#[derive(Debug)]
pub(super) struct Filter {
    on: Vec<HookKind>,
    namespaces: Vec<Pattern>,
    topics: Vec<Pattern>,
    events: Vec<Pattern>,
}

impl Filter {
    pub(super) fn new(options: &HookOptions) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        Self {
            on: options.on.clone(),
            namespaces: patterns(&options.namespaces),
            topics: patterns(&options.topics),
            events: patterns(&options.events),
        }
    }

    pub(super) fn is_on(&self, kind: HookKind) -> bool {
        self.on.contains(&kind)
    }

    pub(super) fn takes_namespace(&self, namespace: &str) -> bool {
        any(&self.namespaces, namespace)
    }

    /// Whether it is asked about a topic. Feeds are in no namespace.
    pub(super) fn takes_topic(&self, kind: HookKind, namespace: Option<&str>, name: &str) -> bool {
        self.is_on(kind)
            && namespace.is_none_or(|namespace| self.takes_namespace(namespace))
            && any(&self.topics, name)
    }

    /// Whether it handles an event. `by_name`: only if it names the event.
    pub(super) fn takes_event(&self, namespace: &str, name: &str, by_name: bool) -> bool {
        let takes = match by_name {
            true => self.events.iter().any(|pattern| pattern.is_exactly(name)),
            false => any(&self.events, name),
        };
        takes && self.is_on(HookKind::Event) && self.takes_namespace(namespace)
    }
}

/// Whether any of the patterns matches; without patterns, everything does.
fn any(patterns: &[Pattern], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}
