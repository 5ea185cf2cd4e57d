//! `GET /api/v1/feeds`: the keys that this node fetches, and those with pushed documents.

use super::commands::{LISTED, refuse};
use super::lists::{limit, parameters, refused};
use super::{Refusal, State, json, reason};
use crate::feeds::Request;
use crate::pushed_documents::ListedDocument;
use crate::schedule::{KeysQuery, ListedKey};
use crate::unix_time::unix_millis;
use crate::view::UpstreamView;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, StatusCode, Uri};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::FeedState;
use tokio::sync::oneshot;

/// Maximum number of keys in a list.
pub(super) const KEYS_LISTED_MAX: usize = 1_000;

#[derive(Serialize)]
struct Keys {
    feeds: Vec<Feed>,
    count: usize,
    truncated: bool,
}

#[derive(Serialize)]
struct Feed {
    key: String,
    pushed: bool,
    state: &'static str,
    document_bytes: usize,
    subscribed: bool,
    #[serde(flatten)]
    fetches: Option<Fetches>,
}

/// The fetches of a key. A key with a pushed document has none.
#[derive(Serialize)]
struct Fetches {
    upstream: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    failures: u32,
    fetch_seconds: f64,
    /// Unix times in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_fetch: Option<u64>,
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

impl Feed {
    fn fetched(
        listed: ListedKey,
        url: Option<String>,
        upstreams: &[UpstreamView],
        clock: &UnixClock,
    ) -> Self {
        let at = |time: Option<Instant>| time.map(|time| clock.at(time));
        let fetches = Fetches {
            // After a reload, the list may be older than the upstreams.
            upstream: upstreams.get(listed.upstream).map_or_else(String::new, |view| view.name.to_string()),
            url,
            reason: listed.reason.to_string(),
            failures: listed.failures,
            fetch_seconds: listed.fetch_time.as_secs_f64(),
            failing_since: at(listed.failing_since),
            last_success: at(listed.succeeded_at),
            next_fetch: at(listed.due),
        };
        Self {
            key: listed.key.as_str().to_owned(),
            pushed: false,
            state: listed.state.map_or("cold", |state| state.as_str()),
            document_bytes: listed.document_bytes,
            subscribed: listed.is_subscribed,
            fetches: Some(fetches),
        }
    }

    fn pushed(listed: ListedDocument) -> Self {
        Self {
            key: listed.key.as_str().to_owned(),
            pushed: true,
            state: FeedState::Live.as_str(),
            document_bytes: listed.document_bytes,
            subscribed: listed.is_subscribed,
            fetches: None,
        }
    }
}

pub(super) async fn keys(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let listed = async {
        let query = keys_query(uri.query().unwrap_or_default())?;
        let KeysQuery { search, limit } = query.clone();
        let (reply, list) = oneshot::channel();
        let stopped = |_| Refusal::new(reason::STOPPED, "the server is shutting down");
        state.feed_requests.send(Request::List(query, reply)).await.map_err(|_| stopped(()))?;
        let list = list.await.map_err(|_| stopped(()))?;
        let upstreams = state.feeds.upstreams();
        let (prober, clock) =
            (state.prober.load(), UnixClock { now: Instant::now(), unix_millis: unix_millis() });
        let fetched = list.keys.into_iter().map(|listed| {
            let url = prober.shown_url(&listed.key);
            Feed::fetched(listed, url, &upstreams, &clock)
        });
        let mut feeds: Vec<Feed> = fetched.collect();
        let (pushed, pushed_count) = state.pushed_documents.list(&search, limit - feeds.len());
        feeds.extend(pushed.into_iter().map(Feed::pushed));
        let count = list.count + pushed_count;
        let truncated = feeds.len() < count;
        Ok(json(StatusCode::OK, &Keys { feeds, count, truncated }))
    };
    listed.await.unwrap_or_else(|refusal: Refusal| refuse(&state, refusal))
}

/// Parses the query of `GET /api/v1/feeds`.
fn keys_query(query: &str) -> Result<KeysQuery, Refusal> {
    let mut asked = KeysQuery { search: String::new(), limit: LISTED };
    for parameter in parameters(query) {
        match parameter? {
            ("search", value) => asked.search = value,
            ("limit", value) => asked.limit = limit(&value, KEYS_LISTED_MAX)?,
            _ => return Err(refused("known query parameters are search and limit".into())),
        }
    }
    Ok(asked)
}
