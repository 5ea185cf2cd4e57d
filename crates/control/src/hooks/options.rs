//! Options of hooks.

use super::pattern::Pattern;
use crate::error::Error;
use hyper::Uri;
use std::path::PathBuf;
use std::time::Duration;

stentor_ports::named! {
    /// A kind of question or notice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum HookKind {
        /// A client wants to connect.
        Connect = "connect",
        /// A client wants to subscribe to a room or feed.
        Subscribe = "subscribe",
        /// A client wants to publish to a room.
        Publish = "publish",
        /// A client has sent an event.
        Event = "event",
        /// A session has begun.
        Connected = "connected",
        /// A session has ended.
        Disconnected = "disconnected",
        /// A session has subscribed to a room or feed, or the server has added it there.
        Subscribed = "subscribed",
        /// A room or feed has its first subscriber on this node.
        Occupied = "occupied",
        /// A room or feed has lost its last subscriber on this node.
        Vacated = "vacated",
        /// Another node of the cluster was lost.
        NodeLost = "node_lost",
        /// A list of the rooms and feeds with subscribers on this node, sent after dropped notices.
        Resync = "resync",
    }
}

impl HookKind {
    /// All questions, in the order of their declaration.
    pub const QUESTIONS: [Self; 4] = [Self::Connect, Self::Subscribe, Self::Publish, Self::Event];
    /// All notices, which have no answers.
    pub const NOTICES: [Self; 7] = [
        Self::Connected,
        Self::Disconnected,
        Self::Subscribed,
        Self::Occupied,
        Self::Vacated,
        Self::NodeLost,
        Self::Resync,
    ];
}

/// The decision for a question that a hook doesn't answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// Refuses the client with `unavailable`. The client may try again.
    #[default]
    Refuse,
    /// Decides as without the hook. Events are still refused, because they have no other handler.
    Allow,
}

/// A key that is never shown in output.
#[derive(Clone, PartialEq, Eq)]
pub struct HookSecret(String);

impl HookSecret {
    /// Makes a key from these bytes.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the key.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

stentor_ports::opaque_debug!(HookSecret, "HookSecret(…)");

stentor_ports::with_defaults! {
    /// The options of a hook.
    #[derive(Clone, Debug)]
    pub struct HookOptions {
        /// Name of the hook in logs and metrics, unique.
        pub name: String = String::new(),
        /// The URL for requests: `http://` or `https://`, a host, and optionally a path and a query.
        pub url: String = String::new(),
        /// The questions and notices that the hook receives.
        pub on: Vec<HookKind> = Vec::new(),
        /// Socket.IO namespaces of the hook. `*` matches any text. Empty means all.
        pub namespaces: Vec<String> = Vec::new(),
        /// Rooms and feeds of the hook. Empty means all.
        pub topics: Vec<String> = Vec::new(),
        /// Event names of the hook. Empty means all events without another handler.
        pub events: Vec<String> = Vec::new(),
        /// Maximum number of a session's rooms in questions about sessions and in notices of the end of a session. 0 sends none.
        pub rooms_max: usize = 0,
        /// The key for signatures. `None` sends unsigned requests.
        pub secret: Option<HookSecret> = None,
        /// Maximum time that a question may wait to be sent. Also the maximum time of a request, from its newest
        /// question to the end of the response.
        pub timeout: Duration = Duration::from_secs(2),
        /// The decision for a question without an answer.
        pub when_unavailable: WhenUnavailable = WhenUnavailable::default(),
        /// Maximum number of questions in one request.
        pub batch_max: usize = 100,
        /// Time for which questions are collected while another request is in flight.
        pub batch_delay: Duration = Duration::from_millis(5),
        /// Maximum number of requests in flight.
        pub concurrency_max: usize = 8,
        /// Maximum number of questions that wait for a request.
        pub waiting_max: usize = 10_000,
        /// Maximum size of the waiting questions in bytes.
        pub waiting_bytes_max: usize = 16 << 20,
        /// Maximum size of a response in bytes.
        pub response_bytes_max: usize = 4 << 20,
        /// Maximum number of cached answers with a `ttl`.
        pub cached_answers_max: usize = 10_000,
        /// File with PEM certificates to trust for https, instead of the system's.
        pub ca_file: Option<PathBuf> = None,
    }
}

impl HookOptions {
    /// Checks the URL, and combinations of options that the ranges of values don't cover. Returns the invalid fields, each with the
    /// reason.
    pub fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong: Vec<_> = self.uri().err().map(|text| ("url", text)).into_iter().collect();
        if self.on.is_empty() {
            let text = "name at least one of connect, subscribe, publish, event, or a notice";
            wrong.push(("on", text.to_owned()));
        }
        wrong
    }

    /// Returns `true` if the hook handles an event that has no other handler. `None` stands for every namespace.
    pub fn takes_event(&self, namespace: Option<&str>, name: &str) -> bool {
        let any_namespace = Self { namespaces: Vec::new(), ..self.clone() };
        let options = if namespace.is_none() { &any_namespace } else { self };
        Filter::new(options).takes_event(namespace.unwrap_or("/"), name, false)
    }

    /// Returns the parsed URL.
    pub(super) fn uri(&self) -> Result<Uri, String> {
        let expected = "expected a URL beginning with http:// or https://";
        let uri: Uri = self.url.parse().map_err(|error| format!("{expected}: {error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(expected.to_owned());
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

/// The questions and notices that a hook receives.
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

    /// Returns `true` if the hook receives this kind of question or notice about a topic. Feeds have no
    /// namespace.
    pub(super) fn takes_topic(&self, kind: HookKind, namespace: Option<&str>, name: &str) -> bool {
        self.is_on(kind)
            && namespace.is_none_or(|namespace| self.takes_namespace(namespace))
            && any(&self.topics, name)
    }

    /// Returns `true` if the hook handles an event. With `by_name`, only if one of its patterns is the
    /// event's name.
    pub(super) fn takes_event(&self, namespace: &str, name: &str, by_name: bool) -> bool {
        let takes = match by_name {
            true => self.events.iter().any(|pattern| pattern.is_exactly(name)),
            false => any(&self.events, name),
        };
        takes && self.is_on(HookKind::Event) && self.takes_namespace(namespace)
    }
}

/// Returns `true` if any of the patterns matches, or if there are none.
fn any(patterns: &[Pattern], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}
