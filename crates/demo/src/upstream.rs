//! The demo's upstream: an ordinary HTTP API with live documents.
//!
//! | path | document | about |
//! |---|---|---|
//! | `/matchcentre/1` … | a match centre: teams, statistics, events, commentary | 165 kB |
//! | `/scoreboard/1` … | the score, ratings and newest events | 5 kB |
//! | `/replay` | recorded versions; the first request starts the replay | as recorded |
//!
//! A match has a new version each second. The first request for a version makes the version. Its
//! `generated_ms` is the time of that request, so that a page can show the delay. Each version has its own
//! `ETag`. Matches have `Cache-Control: max-age=1`. A replay has no `Cache-Control`, so the feed's interval
//! applies.
//!
//! The API may also be a backend of Stentor: it then answers the event [`STOP_EVENT`], with which a visitor stops the API for
//! [`OUTAGE`]. Meanwhile, documents have the status 503. In a cluster, each node has an API, and a visitor stops a whole node with
//! the event [`STOP_NODE_EVENT`], which the named node carries out. The path for these questions is a secret of the server,
//! because any web page can send requests to a port of this machine.

use crate::replay::Replay;
pub use crate::simulation::GoalId;
use crate::simulation::{Game, World, centre, scoreboard};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;

/// The event of a client that stops the API.
pub const STOP_EVENT: &str = "stop_api";
/// The event of a client that stops the node of a cluster whose name is `node`.
pub const STOP_NODE_EVENT: &str = "stop_node";
/// Time for which the API answers with 503 after this event.
pub const OUTAGE: Duration = Duration::from_secs(20);

/// Returns the time since 1970.
pub type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// The last announced goal of each match.
pub type Announced = HashMap<u32, GoalId>;

/// The kind of a match's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Centre,
    Scoreboard,
}

/// A version of a document.
#[derive(Clone)]
struct Version {
    etag: String,
    body: Bytes,
}

/// The documents of the API.
pub struct DemoUpstream {
    live: Mutex<Live>,
    replay: Option<Replay>,
    replay_began: OnceLock<Duration>,
    clock: Clock,
    began: Duration,
    /// The time at which the API answers again.
    stopped_until: Mutex<Duration>,
    /// The node of a cluster to which the API belongs. `None` without a cluster.
    node: Option<ClusterNode>,
}

/// The node of a cluster to which an API belongs.
pub struct ClusterNode {
    /// The name, which documents show.
    pub name: String,
    /// Stops the node soon, so that there is time for an answer.
    pub stop: Box<dyn Fn() + Send + Sync>,
}

struct Live {
    world: World,
    /// The newest version of each document (kind and match), with its second.
    newest: HashMap<(Kind, u32), (u64, Version)>,
}

impl DemoUpstream {
    /// Makes the API with this number of matches from `seed`. They begin at `kickoff`, or now if it is
    /// `None`.
    pub fn new(
        seed: u64,
        matches: u32,
        kickoff: Option<Duration>,
        replay: Option<Replay>,
        clock: Clock,
    ) -> Self {
        let live = Live { world: World::new(seed, matches), newest: HashMap::new() };
        let began = kickoff.unwrap_or_else(&clock);
        let (live, replay_began, stopped_until) = (Mutex::new(live), OnceLock::new(), Mutex::default());
        Self { live, replay, replay_began, clock, began, stopped_until, node: None }
    }

    /// Makes it the API of a cluster's node.
    #[must_use]
    pub fn of_node(self, node: Option<ClusterNode>) -> Self {
        Self { node, ..self }
    }

    /// Returns the newest version of a match's document. `None` if there is no such match.
    fn newest(&self, kind: Kind, id: u32) -> serde_json::Result<Option<Version>> {
        let now = (self.clock)();
        let second = now.saturating_sub(self.began).as_secs();
        let mut live = self.live.lock();
        if let Some((of, version)) = live.newest.get(&(kind, id))
            && *of >= second
        {
            return Ok(Some(version.clone()));
        }
        let Some(game) = live.world.game(id, second) else { return Ok(None) };
        let generated_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let body = match kind {
            Kind::Centre => centre(game, generated_ms, self.node.as_ref().map(|node| &*node.name))?,
            Kind::Scoreboard => scoreboard(game, generated_ms)?,
        };
        let version = Version { etag: format!("\"{second}-{generated_ms}\""), body: body.into() };
        live.newest.insert((kind, id), (second, version.clone()));
        Ok(Some(version))
    }

    /// Returns the id and the text of each match's newest goal, unless `announced` already has it. Adds them
    /// to `announced`.
    pub fn new_goals(&self, announced: &mut Announced) -> Vec<(String, String)> {
        let second = (self.clock)().saturating_sub(self.began).as_secs();
        let world = &mut self.live.lock().world;
        let mut lines = Vec::new();
        for id in 1..=world.matches() {
            let goal = world.game(id, second).and_then(Game::newest_goal);
            if let Some((goal, line)) = goal
                && announced.insert(id, goal) != Some(goal)
            {
                lines.push((format!("goal-{id}-{}-{}", goal.game, goal.event), line));
            }
        }
        lines
    }

    /// Returns the current version of the replay. The first call starts the replay.
    fn replayed(&self) -> Option<Version> {
        let replay = self.replay.as_ref()?;
        let now = (self.clock)();
        let (number, body) = replay.at(now.saturating_sub(*self.replay_began.get_or_init(|| now)));
        Some(Version { etag: format!("\"{number}\""), body: body.clone() })
    }

    /// Stops the API for a while. A second call changes nothing meanwhile.
    fn stop(&self) {
        let now = (self.clock)();
        let mut until = self.stopped_until.lock();
        if *until <= now {
            *until = now + OUTAGE;
        }
    }

    fn is_stopped(&self) -> bool {
        (self.clock)() < *self.stopped_until.lock()
    }

    /// Stops the node if this is its name. Returns `false` if it isn't.
    fn stop_node(&self, name: Option<&str>) -> bool {
        let node = self.node.as_ref().filter(|node| Some(&*node.name) == name);
        node.inspect(|node| (node.stop)()).is_some()
    }

    /// Returns the keys of all documents.
    fn keys(&self) -> Vec<String> {
        let matches = self.live.lock().world.matches();
        let mut keys: Vec<_> =
            (1..=matches).flat_map(|id| [format!("matchcentre/{id}"), format!("scoreboard/{id}")]).collect();
        keys.extend(self.replay.as_ref().map(|_| "replay".into()));
        keys
    }
}

/// Serves the API until the runtime ends. It answers questions of hooks at the path `hooks`; at none if it is `None`.
///
/// # Errors
/// The listening socket fails.
pub async fn serve(
    listener: TcpListener,
    upstream: Arc<DemoUpstream>,
    hooks: Option<&str>,
) -> std::io::Result<()> {
    axum::serve(listener, router(upstream, hooks)).await
}

fn router(upstream: Arc<DemoUpstream>, hooks: Option<&str>) -> Router {
    let a_match = |kind| {
        get(
            async move |State(upstream): State<Arc<DemoUpstream>>,
                        Path(id): Path<String>,
                        headers: HeaderMap| { a_match(&upstream, kind, &id, &headers) },
        )
    };
    let documents = Router::new()
        .route("/", get(index))
        .route("/matchcentre/{id}", a_match(Kind::Centre))
        .route("/scoreboard/{id}", a_match(Kind::Scoreboard))
        .route("/replay", get(replay));
    hooks
        .into_iter()
        .fold(documents, |router, path| router.route(path, post(answer_hooks)))
        .with_state(upstream)
}

async fn index(State(upstream): State<Arc<DemoUpstream>>) -> Response {
    let body = serde_json::json!({ "keys": upstream.keys() }).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Answers the questions of Stentor about events of clients.
async fn answer_hooks(State(upstream): State<Arc<DemoUpstream>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<serde_json::Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let questions = request["questions"].as_array().into_iter().flatten();
    let answers = questions.map(|question| {
        let ack = match question["event"].as_str() {
            Some(STOP_EVENT) if upstream.node.is_none() => {
                upstream.stop();
                serde_json::json!({ "seconds": OUTAGE.as_secs() })
            }
            Some(STOP_NODE_EVENT) if upstream.node.is_some() => {
                serde_json::json!({ "stops": upstream.stop_node(question["arguments"][0]["node"].as_str()) })
            }
            _ => return serde_json::json!({ "id": question["id"], "allow": false }),
        };
        serde_json::json!({ "id": question["id"], "ack": [ack] })
    });
    let body = serde_json::json!({ "answers": answers.collect::<Vec<_>>() }).to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn a_match(upstream: &DemoUpstream, kind: Kind, id: &str, headers: &HeaderMap) -> Response {
    if upstream.is_stopped() {
        return stopped();
    }
    // Refuses other spellings of an id, with a sign or leading zeros.
    let number = id.parse().ok().filter(|number: &u32| number.to_string() == id);
    match number.map(|id| upstream.newest(kind, id)) {
        Some(Ok(Some(version))) => answer(version, headers, Some("max-age=1")),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Some(Ok(None)) | None => no_such_key(),
    }
}

async fn replay(State(upstream): State<Arc<DemoUpstream>>, headers: HeaderMap) -> Response {
    if upstream.is_stopped() {
        return stopped();
    }
    upstream.replayed().map_or_else(no_such_key, |version| answer(version, &headers, None))
}

fn stopped() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "a visitor of the demo has stopped the API for a while\n")
        .into_response()
}

fn no_such_key() -> Response {
    (StatusCode::NOT_FOUND, "there is no such key\n").into_response()
}

/// Makes the response with a version, or a 304 if the client already has it (RFC 9110, 13.1.2).
fn answer(version: Version, request: &HeaderMap, cache: Option<&'static str>) -> Response {
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_this = |tag: &str| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == version.etag;
    let unchanged = known.flat_map(|value| value.split(',')).any(|tag| is_this(tag.trim()));
    let mut response = if unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, "application/json")], version.body).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(etag) = version.etag.try_into() {
        headers.insert(header::ETAG, etag);
    }
    if let Some(cache) = cache {
        headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static(cache));
    }
    response
}

#[cfg(test)]
mod tests;
