//! `GET /api/v1/feeds`: the keys that the nodes of a cluster fetch, and those with pushed documents.

use super::commands::{LISTED, refuse};
use super::lists::{limit, parameters, refused};
use super::publish::ask;
use super::{Refusal, State, json};
use crate::feeds::Request;
use crate::schedule::{KeyList, KeysQuery};
use crate::signals;
use crate::unix_time::unix_millis;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, StatusCode, Uri};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stentor_hub::{FeedState, Key, KeyCharset};
use stentor_ports::{
    CommandError, Done, FeedFetches, FeedInfo, FeedList, FeedLister, FeedsQuery, SubscriberCounts,
};
use tokio::sync::mpsc::error::TrySendError;

/// Maximum number of keys in a list.
pub(super) const KEYS_LISTED_MAX: usize = 1_000;

#[derive(Serialize)]
struct Keys<'a> {
    feeds: Vec<Feed<'a>>,
    count: usize,
    truncated: bool,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    missing_nodes: BTreeSet<&'a str>,
}

#[derive(Serialize)]
struct Feed<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    pushed: bool,
    state: &'a str,
    document_bytes: usize,
    subscribed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribers: Option<usize>,
    #[serde(flatten)]
    fetches: Option<Fetches<'a>>,
}

/// The fetches of a key. A key with a pushed document has none.
#[derive(Serialize)]
struct Fetches<'a> {
    upstream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    failures: u32,
    fetch_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_fetch: Option<u64>,
}

impl<'a> From<&'a FeedFetches> for Fetches<'a> {
    fn from(fetches: &'a FeedFetches) -> Self {
        Self {
            upstream: &fetches.upstream,
            url: fetches.url.as_deref(),
            reason: &fetches.reason,
            failures: fetches.failures,
            fetch_seconds: Duration::from_micros(fetches.took_micros).as_secs_f64(),
            failing_since: fetches.failing_since,
            last_success: fetches.last_success,
            next_fetch: fetches.next_fetch,
        }
    }
}

impl<'a> Feed<'a> {
    fn new(info: &'a FeedInfo, subscribers: Option<usize>) -> Self {
        Self {
            key: &info.key,
            node: info.node.as_deref(),
            pushed: info.fetches.is_none(),
            state: &info.state,
            document_bytes: info.document_bytes,
            subscribed: info.is_subscribed,
            subscribers,
            fetches: info.fetches.as_ref().map(Fetches::from),
        }
    }
}

/// Converts times to Unix time in seconds.
struct UnixClock {
    now: Instant,
    unix_millis: u64,
}

impl UnixClock {
    fn at(&self, time: Instant) -> u64 {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let later = self.unix_millis.saturating_add(millis(time.saturating_duration_since(self.now)));
        later.saturating_sub(millis(self.now.saturating_duration_since(time))) / 1_000
    }
}

/// Lists the keys of this node, for other nodes of its cluster.
pub(crate) struct NodeFeeds(Weak<State>);

impl NodeFeeds {
    /// The control plane keeps the state, and the cluster this port.
    pub(crate) fn new(state: &Arc<State>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(state)))
    }
}

impl FeedLister for NodeFeeds {
    fn list_feeds(&self, query: FeedsQuery, done: Done<FeedList>) {
        match self.0.upgrade() {
            Some(state) => list_own(&state, query, done),
            None => done.answer(Err(CommandError::Stopped)),
        }
    }
}

/// Lists the keys that this node fetches, and those with pushed documents. The feeds' task calls `done`.
fn list_own(state: &Arc<State>, query: FeedsQuery, done: Done<FeedList>) {
    match state.feed_requests.try_reserve() {
        Ok(place) => {
            let (state, keys) =
                (state.clone(), KeysQuery { search: query.search.clone(), limit: query.limit });
            let reply = move |list| done.answer(Ok(own(&state, &query, list)));
            place.send(Request::List(keys, Box::new(reply)));
        }
        Err(TrySendError::Full(())) => done.answer(Err(CommandError::Busy)),
        Err(TrySendError::Closed(())) => done.answer(Err(CommandError::Stopped)),
    }
}

/// Describes the listed keys of the scheduler, followed by those with pushed documents.
fn own(state: &State, query: &FeedsQuery, list: KeyList) -> FeedList {
    let (upstreams, prober) = (state.feeds.upstreams(), state.prober.load());
    let clock = UnixClock { now: Instant::now(), unix_millis: unix_millis() };
    let left = query.limit.saturating_sub(list.keys.len());
    let (pushed, pushed_count) = state.pushed_documents.list(&query.search, left);
    let fetched = list.keys.into_iter().map(|listed| {
        let at = |time: Option<Instant>| time.map(|time| clock.at(time));
        let fetches = FeedFetches {
            // After a reload, the list may be older than the upstreams.
            upstream: upstreams.get(listed.upstream).map_or_else(String::new, |view| view.name.to_string()),
            url: prober.shown_url(&listed.key),
            reason: listed.reason.to_string(),
            failures: listed.failures,
            took_micros: u64::try_from(listed.fetch_time.as_micros()).unwrap_or(u64::MAX),
            failing_since: at(listed.failing_since),
            last_success: at(listed.succeeded_at),
            next_fetch: at(listed.due),
        };
        FeedInfo {
            node: None,
            key: listed.key.as_str().into(),
            state: listed.state.map_or("cold", |state| state.as_str()).into(),
            document_bytes: listed.document_bytes,
            is_subscribed: listed.is_subscribed,
            fetches: Some(fetches),
        }
    });
    let pushed = pushed.into_iter().map(|listed| FeedInfo {
        node: None,
        key: listed.key.as_str().into(),
        state: FeedState::Live.as_str().into(),
        document_bytes: listed.document_bytes,
        is_subscribed: listed.is_subscribed,
        fetches: None,
    });
    FeedList::new(fetched.chain(pushed), list.count + pushed_count)
}

pub(super) async fn keys(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let listed = async {
        let query = keys_query(uri.query().unwrap_or_default())?;
        let own = ask(&state, |done| list_own(&state, query.clone(), done)).await?;
        let list = match &state.data_plane.topology {
            Some(cluster) => ask(&state, |done| cluster.list_feeds(query.clone(), own.clone(), done)).await?,
            None => own,
        };
        let subscribers = count_subscribers(&state, &list).await.unwrap_or_default();
        let counts = subscribers.counts.iter().copied().map(Some).chain(std::iter::repeat(None));
        let feeds = list.feeds.iter().zip(counts).map(|(info, count)| Feed::new(info, count)).collect();
        let (count, truncated) = (list.count, list.feeds.len() < list.count);
        let missing_nodes: BTreeSet<&str> =
            list.missing_nodes.iter().chain(&subscribers.missing_nodes).map(String::as_str).collect();
        Ok(json(StatusCode::OK, &Keys { feeds, count, truncated, missing_nodes }))
    };
    listed.await.unwrap_or_else(|refusal: Refusal| refuse(&state, refusal))
}

/// Counts the subscribers of the listed keys, on all cores and nodes. `None` if a core's inbox is full, because operators need the list
/// without the numbers most when the server is overloaded.
async fn count_subscribers(state: &State, list: &FeedList) -> Option<SubscriberCounts> {
    let key = |info: &FeedInfo| Key::parse_as(&info.key, KeyCharset::Utf8).ok();
    let keys: Vec<Key> = list.feeds.iter().map(key).collect::<Option<_>>()?;
    let give = |done| state.data_plane.commands.count_subscribers(keys.clone(), done);
    signals::command(&state.signals, Duration::ZERO, give, || ()).await.ok()
}

/// Parses the query of `GET /api/v1/feeds`.
fn keys_query(query: &str) -> Result<FeedsQuery, Refusal> {
    let mut asked = FeedsQuery { search: String::new(), limit: LISTED };
    for parameter in parameters(query) {
        match parameter? {
            ("search", value) => asked.search = value,
            ("limit", value) => asked.limit = limit(&value, KEYS_LISTED_MAX)?,
            _ => return Err(refused("known query parameters are search and limit".into())),
        }
    }
    Ok(asked)
}
