//! `POST /api/v1/fetch`: fetches a key once, outside the schedule, and describes the fetch.
//!
//! The fetch doesn't count towards the limits of the key's section, and is made even while `Retry-After`
//! holds the section. If the fetch returns a document, the hold ends, and the key is fetched again for its
//! subscribers.

use super::commands::{object, refuse};
use super::{Refusal, State, json, reason};
use crate::feeds::Request as FeedRequest;
use crate::upstream::ProbeError;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, Response, StatusCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    key: String,
}

#[derive(Serialize)]
struct Answer {
    document: bool,
    text: String,
}

pub(super) async fn fetch(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let done = async {
        let (Request { key }, _held) = object(&state, &headers, body, "a request").await?;
        let prober = state.prober.load();
        let key = prober.key(&key).map_err(refusal)?;
        let probe = prober.probe(&key).await.ok_or_else(|| refusal(ProbeError::NoFeed(key.clone())))?;
        if probe.has_document {
            // An error means that the server is shutting down.
            let _ = state.feed_requests.send(FeedRequest::Refetch(key)).await;
        }
        Ok(json(StatusCode::OK, &Answer { document: probe.has_document, text: probe.text }))
    };
    done.await.unwrap_or_else(|refusal| refuse(&state, refusal))
}

fn refusal(error: ProbeError) -> Refusal {
    let reason = match error {
        ProbeError::InvalidKey(_) => reason::KEY,
        ProbeError::NoFeed(_) => reason::NO_FEED,
    };
    Refusal::new(reason, error.to_string())
}
