//! Tests of the upstream's responses, on a clock that the test advances.

use super::*;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

/// Questions of a hook for the event that stops the API, and for another one.
const QUESTION: &str =
    r#"{"questions":[{"id":7,"hook":"event","event":"stop_api"},{"id":8,"event":"other"}]}"#;

struct Running {
    router: TowerToHyperService<Router>,
    now_ms: Arc<AtomicU64>,
}

/// Start of the clock: a date in November 2026. A time since the start is never mistaken for a time since
/// 1970.
const START_MS: u64 = 1_795_000_000_000;

/// The path for questions of hooks.
const HOOKS: &str = "/hooks/secret";

fn start(replay: Option<Replay>) -> Running {
    start_with(replay, Some(HOOKS))
}

fn start_with(replay: Option<Replay>, hooks: Option<&str>) -> Running {
    start_on(None, replay, hooks)
}

fn start_on(node: Option<ClusterNode>, replay: Option<Replay>, hooks: Option<&str>) -> Running {
    let now_ms = Arc::new(AtomicU64::new(START_MS));
    let clock = now_ms.clone();
    let clock: Clock = Box::new(move || Duration::from_millis(clock.load(Ordering::SeqCst)));
    let router = router(Arc::new(DemoUpstream::new(1, 3, None, replay, clock).of_node(node)), hooks);
    Running { router: TowerToHyperService::new(router), now_ms }
}

impl Running {
    async fn ask(&self, path: &str, etag: Option<&str>) -> axum::http::Response<Bytes> {
        let mut request = Request::get(path);
        if let Some(etag) = etag {
            request = request.header(header::IF_NONE_MATCH, etag);
        }
        let response = self.router.call(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        axum::http::Response::from_parts(parts, to_bytes(body, 1 << 20).await.unwrap())
    }

    async fn post(&self, path: &str, body: &str) -> axum::http::Response<Bytes> {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let response = self.router.call(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        axum::http::Response::from_parts(parts, to_bytes(body, 1 << 20).await.unwrap())
    }

    fn pass(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

fn text(response: &axum::http::Response<Bytes>, name: header::HeaderName) -> &str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

fn json(response: &axum::http::Response<Bytes>) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response, header::CONTENT_TYPE), "application/json");
    serde_json::from_slice(response.body()).unwrap()
}

#[tokio::test]
async fn a_document_has_a_new_version_each_second() {
    let running = start(None);
    for (path, least, most) in [("/matchcentre/1", 156_000, 172_400), ("/scoreboard/3", 4_000, 6_000)] {
        let first = running.ask(path, None).await;
        let value = json(&first);
        assert!((least..most).contains(&first.body().len()), "{path}: {}", first.body().len());
        assert_eq!(text(&first, header::CACHE_CONTROL), "max-age=1");
        let etag = text(&first, header::ETAG);

        running.pass(300);
        assert_eq!(running.ask(path, None).await.body(), first.body(), "the same second, the same version");
        for known in [etag.to_string(), format!("\"x\", W/{etag}"), "*".into()] {
            let same = running.ask(path, Some(&known)).await;
            assert_eq!(same.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(text(&same, header::ETAG), etag);
            assert!(same.body().is_empty());
        }

        running.pass(1000);
        let next = running.ask(path, Some(etag)).await;
        let now = json(&next);
        assert_ne!(text(&next, header::ETAG), etag);
        let passed = now["generated_ms"].as_u64().unwrap() - value["generated_ms"].as_u64().unwrap();
        assert_eq!(passed, 1300);
        assert_ne!(now["match"]["clock"], value["match"]["clock"]);
    }
}

#[tokio::test]
async fn unknown_keys_are_not_found() {
    let running = start(None);
    for path in [
        "/matchcentre/0",
        "/matchcentre/4",
        "/matchcentre/01",
        "/matchcentre/x",
        "/scoreboard/-1",
        "/replay",
        "/x",
    ] {
        assert_eq!(running.ask(path, None).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let keys = json(&running.ask("/", None).await);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 6);
    assert_eq!(keys["keys"][0], "matchcentre/1");
}

#[tokio::test]
async fn a_replay_begins_with_its_first_request() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("1.json", "[1]"), ("2.json", "[2]"), ("3.json", "[3]")] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let running = start(Some(Replay::load(dir.path(), 2.0).unwrap()));
    running.pass(60_000);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let version = running.ask("/replay", None).await;
        assert_eq!(text(&version, header::CACHE_CONTROL), "");
        seen.push(json(&version)[0].as_u64().unwrap());
        running.pass(500);
    }
    assert_eq!(seen, [1, 2, 3, 3, 3]);
    let last = running.ask("/replay", Some("\"2\"")).await;
    assert_eq!(last.status(), StatusCode::NOT_MODIFIED);
    let keys = json(&running.ask("/", None).await);
    assert_eq!(keys["keys"].as_array().unwrap().last().unwrap(), "replay");
}

#[test]
fn each_goal_is_announced_once() {
    let now_ms = Arc::new(AtomicU64::new(START_MS));
    let clock = now_ms.clone();
    let upstream = DemoUpstream::new(
        1,
        3,
        None,
        None,
        Box::new(move || Duration::from_millis(clock.load(Ordering::SeqCst))),
    );
    let mut announced = HashMap::new();
    let mut goals = Vec::new();
    for _ in 0..3000 {
        now_ms.fetch_add(1000, Ordering::SeqCst);
        goals.extend(upstream.new_goals(&mut announced));
        assert!(upstream.new_goals(&mut announced).is_empty(), "once");
    }
    // Three matches with about three goals each are played almost three times.
    assert!((12..80).contains(&goals.len()), "{}", goals.len());
    let distinct: std::collections::HashSet<_> = goals.iter().map(|(id, _)| id).collect();
    assert_eq!(distinct.len(), goals.len());
    for (_, goal) in goals {
        assert!(goal.starts_with("Goal! ") && goal.contains('–') && goal.ends_with("')"), "{goal}");
    }
}

#[tokio::test]
async fn a_visitor_stops_the_api_for_a_while() {
    let running = start(None);
    let outage_ms = u64::try_from(OUTAGE.as_millis()).unwrap();
    let answers = json(&running.post(HOOKS, QUESTION).await);
    assert_eq!(answers["answers"][0], serde_json::json!({"id": 7, "ack": [{"seconds": 20}]}));
    assert_eq!(answers["answers"][1]["allow"], false);
    running.pass(outage_ms - 1);
    assert_eq!(running.ask("/matchcentre/1", None).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    // Another event doesn't prolong the outage.
    running.post(HOOKS, QUESTION).await;
    running.pass(1);
    assert_eq!(running.ask("/matchcentre/1", None).await.status(), StatusCode::OK);
    running.post(HOOKS, QUESTION.replace("stop_api", "x").as_str()).await;
    assert_eq!(running.ask("/scoreboard/1", None).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn only_the_secret_path_stops_the_api() {
    for (hooks, path) in [(Some(HOOKS), "/hooks"), (Some(HOOKS), "/hooks/x"), (None, "/hooks"), (None, HOOKS)]
    {
        let running = start_with(None, hooks);
        assert_eq!(running.post(path, QUESTION).await.status(), StatusCode::NOT_FOUND, "{hooks:?} {path}");
        assert_eq!(running.ask("/matchcentre/1", None).await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_visitor_stops_the_named_node_of_a_cluster() {
    let stopped = Arc::new(AtomicU64::new(0));
    let count = stopped.clone();
    let stop = Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst));
    let node = ClusterNode { name: "b".into(), stop };
    let running = start_on(Some(node), None, Some(HOOKS));
    assert_eq!(json(&running.ask("/matchcentre/1", None).await)["node"], "b");
    for (name, stops) in [("\"a\"", false), ("1", false), ("\"b\"", true)] {
        let arguments = format!(r#""event":"stop_node","arguments":[{{"node":{name}}}]"#);
        let question = format!(r#"{{"questions":[{{"id":7,{arguments}}},{{"id":8,"event":"stop_api"}}]}}"#);
        let answers = json(&running.post(HOOKS, &question).await);
        assert_eq!(answers["answers"][0], serde_json::json!({"id": 7, "ack": [{"stops": stops}]}));
        assert_eq!(answers["answers"][1]["allow"], false, "each node has an API");
        assert_eq!(stopped.load(Ordering::SeqCst), u64::from(stops));
    }
    let alone = start(None);
    assert_eq!(json(&alone.ask("/matchcentre/1", None).await)["node"], serde_json::Value::Null);
    let answers = json(&alone.post(HOOKS, QUESTION.replace("stop_api", "stop_node").as_str()).await);
    assert_eq!(answers["answers"][0]["allow"], false);
}
