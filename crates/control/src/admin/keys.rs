//! `GET /api/v1/feeds`: the keys that this node fetches.

use super::commands::{LISTED, refuse};
use super::lists::{limit, parameters, refused};
use super::{Refusal, State, json, reason};
use crate::feeds::Request;
use crate::schedule::{KeysQuery, ListedKey};
use crate::view::UpstreamView;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, StatusCode, Uri};
use serde::Serialize;
use std::sync::Arc;
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
    upstream: String,
    state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    failures: u32,
    fetch_seconds: f64,
    document_bytes: usize,
    subscribed: bool,
}

impl Feed {
    fn new(listed: ListedKey, upstreams: &[UpstreamView]) -> Self {
        Self {
            key: listed.key.as_str().to_owned(),
            // After a reload, the list may be older than the upstreams.
            upstream: upstreams.get(listed.upstream).map_or_else(String::new, |view| view.name.to_string()),
            state: listed.state.map_or("cold", |state| state.as_str()),
            reason: listed.reason.to_string(),
            failures: listed.failures,
            fetch_seconds: listed.fetch_time.as_secs_f64(),
            document_bytes: listed.document_bytes,
            subscribed: listed.is_subscribed,
        }
    }
}

pub(super) async fn keys(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let listed = async {
        let query = keys_query(uri.query().unwrap_or_default())?;
        let (reply, list) = oneshot::channel();
        let stopped = |_| Refusal::new(reason::STOPPED, "the server is shutting down");
        state.feed_requests.send(Request::List(query, reply)).await.map_err(|_| stopped(()))?;
        let list = list.await.map_err(|_| stopped(()))?;
        let upstreams = state.feeds.upstreams();
        let (count, truncated) = (list.count, list.keys.len() < list.count);
        let feeds = list.keys.into_iter().map(|listed| Feed::new(listed, &upstreams)).collect();
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
