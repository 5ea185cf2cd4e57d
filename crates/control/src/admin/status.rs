//! What monitoring reads: health, metrics and status.

use super::{Refusal, State, json, reason};
use crate::{metrics, process};
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json as object;
use std::sync::Arc;
use std::time::SystemTime;
use stentor_edge::NodeInfo;

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    if state.data_plane.is_ready() {
        "ready\n".into_response()
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
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
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

pub(super) async fn status(Shared(state): Shared<Arc<State>>) -> Response<Body> {
    let process = tokio::task::spawn_blocking(process::stats).await.ok().and_then(Result::ok);
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
            "last_failure": last_failure,
        })
    });
    let status = object!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": state.data_plane.is_ready(),
        "uptime_seconds": state.begun.elapsed().as_secs(),
        "publications": state.metrics.publications.get(),
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
