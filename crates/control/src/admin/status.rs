//! Health, metrics and status, for monitoring.

use super::commands::refuse;
use super::{Refusal, State, json, reason};
use crate::unix_time::unix_seconds;
use crate::{metrics, process};
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::{Map, Value, json as object};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use stentor_ports::{Metric, NodeInfo};

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let readiness = state.data_plane.lifecycle.readiness();
    let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{readiness}\n")).into_response()
}

/// Handles `GET /metrics` on the blocking pool, because the data plane may have many metrics, and reading
/// `/proc` blocks.
pub(super) async fn show_metrics(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let encode = move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &state.registry).map(|()| text)
    };
    match tokio::task::spawn_blocking(encode).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        _ => Refusal::new(reason::INTERNAL, "can't write the metrics").into_response(),
    }
}

#[derive(Serialize)]
struct Node {
    id: String,
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    uptime_seconds: u64,
    connections: usize,
    this: bool,
}

pub(super) async fn nodes(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let now = unix_seconds();
    let node = |node: NodeInfo| Node {
        id: node.id,
        name: node.name,
        version: node.version,
        address: node.address,
        uptime_seconds: now.saturating_sub(node.started_at_seconds),
        connections: node.connections,
        this: node.is_this,
    };
    let nodes: Vec<Node> = state.data_plane.nodes().into_iter().map(node).collect();
    json(StatusCode::OK, &object!({ "nodes": nodes }))
}

/// Sums each of the data plane's metrics over the cores. If a metric has other labels, its value is an object
/// with the labels' values as keys.
fn sums(metrics: Vec<Metric>) -> Map<String, Value> {
    let mut all = Map::new();
    for Metric { name, samples, .. } in metrics {
        let mut sum = 0;
        let mut by_label = Map::new();
        for (labels, value) in samples {
            let labels = labels.into_iter().filter(|(label, _)| *label != "core");
            let labels: Vec<_> = labels.map(|(_, text)| text).collect();
            if labels.is_empty() {
                sum += value;
            } else {
                let one = by_label.entry(labels.join(" ")).or_insert_with(|| 0.into());
                *one = (one.as_u64().unwrap_or_default() + value).into();
            }
        }
        let value = if by_label.is_empty() { sum.into() } else { by_label.into() };
        all.insert(name.to_owned(), value);
    }
    all
}

/// Handles `GET /api/v1/overview`.
pub(super) async fn overview(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response<Body> {
    let after_ms = match uri.query().filter(|query| !query.is_empty()) {
        None => Some(0),
        Some(query) => query.strip_prefix("after_ms=").and_then(|time| time.parse().ok()),
    };
    match after_ms {
        Some(after_ms) => json(StatusCode::OK, &state.services.overview.view(after_ms)),
        None => refuse(&state, Refusal::new(reason::OVERVIEW_QUERY, "the query is after_ms=N")),
    }
}

/// Handles `GET /api/v1/status` on the blocking pool, like [`show_metrics`].
pub(super) async fn status(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let data_plane = state.data_plane.clone();
    let read = move || (process::stats().ok(), sums(data_plane.metrics()));
    let Ok((process, data_plane)) = tokio::task::spawn_blocking(read).await else {
        return Refusal::new(reason::INTERNAL, "can't read the metrics").into_response();
    };
    let (feeds, now) = (state.feeds.stats(), SystemTime::now());
    let upstreams = state.feeds.upstreams().into_iter().map(|upstream| {
        let last_failure = upstream.last_failure.map(|(key, message, at)| {
            let seconds_ago = now.duration_since(at).unwrap_or_default().as_secs();
            object!({ "key": key.as_str(), "message": message, "seconds_ago": seconds_ago })
        });
        object!({
            "name": &*upstream.name,
            "fetches": upstream.fetches,
            "failures": upstream.failures,
            "in_flight": upstream.lane.in_flight,
            "waiting": upstream.lane.waiting,
            "rate_waits": upstream.lane.rate_waits,
            "effective_interval_seconds": upstream.max_age.unwrap_or(upstream.lane.interval).as_secs_f64(),
            "interval_set_by": if upstream.max_age.is_some() { "max-age" } else { "poll_interval" },
            "retry_after_seconds": upstream.lane.held_until.map_or(0, |until| {
                until.saturating_duration_since(Instant::now()).as_secs_f64().ceil() as u64
            }),
            "limited_by": upstream.lane.limited_by.map(|(limit, _)| limit.name()),
            "last_failure": last_failure,
        })
    });
    let status = object!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": state.data_plane.lifecycle.readiness().is_ready(),
        "uptime_seconds": state.begun.elapsed().as_secs(),
        "publications": state.metrics.publications.get(),
        "data_plane": data_plane,
        "feeds": {
            "keys": feeds.keys,
            "subscribed": feeds.wanted,
            "cold": feeds.cold,
            "live": feeds.live,
            "stale": feeds.stale,
            "complete": feeds.complete,
            "not_found": feeds.not_found,
            "in_flight": feeds.in_flight,
            "waiting": feeds.waiting,
            "documents_bytes": feeds.documents_bytes,
        },
        "upstreams": upstreams.collect::<Vec<_>>(),
        "process": process.map(|process| object!({
            "resident_bytes": process.resident_bytes,
            "cpu_seconds": process.cpu.as_secs_f64(),
            "file_descriptors": process.descriptors,
            "file_descriptors_max": process.descriptors_max,
        })),
    });
    json(StatusCode::OK, &status)
}
