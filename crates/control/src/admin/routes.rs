//! What the admin port answers.

use super::{Refusal, State, api, json};
use crate::metrics;
use crate::process;
use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) fn router(state: Arc<State>) -> Router {
    let routes = api::OPERATIONS.iter().map(api::Operation::route);
    routes
        .fold(Router::new(), |router, (path, handler)| router.route(&path, handler))
        .fallback(async || {
            let message = "known paths are /api/v1/publish, /api/v1/emit, /api/v1/join, /api/v1/leave, /api/v1/disconnect, \
                           /api/v1/sessions, /api/v1/rooms, /api/v1/feeds/KEY, /api/v1/status, /metrics and /healthz";
            Refusal::new(api::ROUTE, message)
        })
        .method_not_allowed_fallback(async || {
            let message = "the path doesn't support this method; /api/v1/publish, emit, join, leave, disconnect and sessions \
                           support POST, /api/v1/feeds/KEY PUT and DELETE, the others GET";
            Refusal::new(api::METHOD, message)
        })
        .with_state(state)
}

pub(super) async fn healthz(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    if state.data_plane.is_ready() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

/// On the blocking pool: the data plane's figures may be many, and `/proc` is a file system.
pub(super) async fn show_metrics(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let encode = move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &state.registry).map(|()| text)
    };
    match tokio::task::spawn_blocking(encode).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        _ => Refusal::new(api::INTERNAL, "can't write the metrics").into_response(),
    }
}

#[derive(Serialize)]
struct Status {
    version: &'static str,
    ready: bool,
    uptime_seconds: u64,
    publications: u64,
    feeds: FeedsStatus,
    upstreams: Vec<UpstreamStatus>,
    process: Option<ProcessStatus>,
}

#[derive(Serialize)]
struct FeedsStatus {
    keys: usize,
    subscribed: usize,
    cold: usize,
    live: usize,
    stale: usize,
    complete: usize,
    not_found: usize,
    in_flight: usize,
    waiting: usize,
    documents_bytes: usize,
}

#[derive(Serialize)]
struct UpstreamStatus {
    name: String,
    fetches: u64,
    failures: u64,
    in_flight: usize,
    waiting: usize,
    rate_waits: u64,
    last_failure: Option<FailureStatus>,
}

#[derive(Serialize)]
struct FailureStatus {
    key: String,
    message: String,
    seconds_ago: u64,
}

#[derive(Serialize)]
struct ProcessStatus {
    resident_bytes: usize,
    cpu_seconds: f64,
    file_descriptors: usize,
    file_descriptors_max: usize,
}

pub(super) async fn status(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let stats = tokio::task::spawn_blocking(process::stats).await.ok().and_then(Result::ok);
    let feeds = state.feeds.stats();
    let now = SystemTime::now();
    let upstreams = state.feeds.upstreams().into_iter().map(|upstream| UpstreamStatus {
        name: upstream.name.to_string(),
        fetches: upstream.fetches,
        failures: upstream.failures,
        in_flight: upstream.lane.in_flight,
        waiting: upstream.lane.waiting,
        rate_waits: upstream.lane.rate_waits,
        last_failure: upstream.last_failure.map(|(key, message, at)| FailureStatus {
            key: key.to_string(),
            message,
            seconds_ago: now.duration_since(at).unwrap_or_default().as_secs(),
        }),
    });
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        ready: state.data_plane.is_ready(),
        uptime_seconds: state.begun.elapsed().as_secs(),
        publications: state.metrics.publications.get(),
        feeds: FeedsStatus {
            keys: feeds.keys,
            subscribed: feeds.wanted,
            cold: feeds.cold,
            live: feeds.live,
            stale: feeds.stale,
            complete: feeds.complete,
            not_found: feeds.not_found,
            in_flight: feeds.in_flight,
            waiting: feeds.waiting,
            documents_bytes: feeds.documents_bytes,
        },
        upstreams: upstreams.collect(),
        process: stats.map(|stats| ProcessStatus {
            resident_bytes: stats.resident_bytes,
            cpu_seconds: stats.cpu.as_secs_f64(),
            file_descriptors: stats.descriptors,
            file_descriptors_max: stats.descriptors_max,
        }),
    };
    json(StatusCode::OK, &status)
}
