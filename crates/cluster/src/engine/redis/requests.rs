//! Makes requests. Each is one or more scripts, sent in the order of the calls without waiting for answers.
//!
//! In a Redis Cluster, each primary has a connection of its own. A request about a slot that has moved follows the
//! slot. While slots move, requests may overtake each other.

use super::lanes::{Job, Lane, Requests};
use super::link::{Link, Sender};
use super::receiver::Replies;
use super::scripts::Call;
use super::server::RECENT;
use super::{Role, Shared, slots};
use crate::engine::common::{Backoff, Endpoint};
use crate::engine::{EngineError, PROBE_INTERVAL};
use redis::{Pipeline, ServerError, ServerErrorKind, Value};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

/// Maximum number of scripts that are sent at once.
const BATCH_MAX: usize = 256;
/// Maximum number of times that a request follows a moving slot.
const REDIRECTIONS_MAX: usize = 32;
/// Delay between these times.
const REDIRECTION_DELAY: Duration = Duration::from_millis(100);

type Sent = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Runs for as long as the engine.
pub(super) async fn run(shared: Arc<Shared>) {
    if !shared.server.is_cluster() {
        if let Some(lane) = shared.requests.only() {
            serve_lane(shared, lane).await;
        }
        return;
    }
    let mut lanes = JoinSet::new();
    let mut tasks: HashMap<Endpoint, AbortHandle> = HashMap::new();
    // The node may have read the slots to connect. Its first requests need them.
    let mut age_max = RECENT;
    loop {
        let ranges = shared.server.ranges(age_max).await;
        age_max = Duration::ZERO;
        let is_known = ranges.is_ok();
        match ranges {
            Ok(ranges) => {
                let (begun, ended) = shared.requests.assign(ranges);
                for lane in begun {
                    let endpoint = lane.endpoint.clone();
                    let task = lanes.spawn(serve_lane(shared.clone(), lane));
                    tasks.extend(endpoint.map(|endpoint| (endpoint, task)));
                }
                for endpoint in ended {
                    tasks.remove(&endpoint).inspect(AbortHandle::abort);
                    shared.outages.end(&(Role::Requests, Some(endpoint)));
                }
            }
            Err(reason) => tracing::debug!(reason, "the slots of the Redis Cluster aren't known"),
        }
        // Removes lanes that have ended.
        while lanes.try_join_next().is_some() {}
        let interval = slots::interval(is_known && !shared.outages.has_any());
        let _ = timeout(interval, shared.requests.moved.notified()).await;
        tokio::time::sleep(REDIRECTION_DELAY / 2).await;
    }
}

async fn serve_lane(shared: Arc<Shared>, lane: Arc<Lane>) {
    let mut backoff = Backoff::default();
    loop {
        let mut link = shared.connect(Role::Requests, lane.endpoint.clone(), None).await;
        let opened_at = Instant::now();
        lane.set_sender(Some(link.sender()));
        let mut sent = JoinSet::new();
        let reason = serve(&shared, &lane, &mut link, &mut sent).await;
        lane.set_sender(None);
        drop((link, sent));
        shared.outages.begin((Role::Requests, lane.endpoint.clone()), &reason);
        // Another primary may have its slots, even if this one can be connected again.
        shared.requests.moved.notify_one();
        backoff.wait_after(opened_at.elapsed()).await;
    }
}

async fn serve(
    shared: &Arc<Shared>,
    lane: &Lane,
    link: &mut Link,
    sent: &mut JoinSet<Result<(), String>>,
) -> String {
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    probe.reset();
    loop {
        while let Some(job) = lane.take() {
            if job.reply.is_closed() {
                continue;
            }
            let mut future: Sent = Box::pin(unconstrained(make(shared.clone(), link.sender(), job)));
            // The first step puts the request into the connection's queue, so that the order is kept. The queue has
            // room, and tokio's budget doesn't end the step before.
            let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            match first {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(reason)) => return reason,
                Poll::Pending => {
                    sent.spawn(future);
                }
            }
        }
        tokio::select! {
            () = lane.added.notified() => {}
            reason = link.closed() => return reason,
            Some(Ok(result)) = sent.join_next() => {
                if let Err(reason) = result {
                    return reason;
                }
            }
            _ = probe.tick() => {
                if let Err(reason) = link.check().await {
                    return reason;
                }
            }
        }
    }
}

/// Makes one request. An error is an error of the connection.
async fn make(shared: Arc<Shared>, link: Sender, job: Job) -> Result<(), String> {
    let mut replies = Replies::new(&shared.server.ledger);
    let mut broken = None;
    for calls in job.calls.chunks(BATCH_MAX) {
        match batch(&link, calls).await {
            Ok(more) => {
                let values = replies.take(more);
                replies.values.extend(values);
            }
            Err(reason) => {
                broken = Some(reason);
                break;
            }
        }
    }
    let result = match &broken {
        Some(reason) => Err(EngineError::Unavailable((&**reason).into())),
        None => {
            follow(&shared.requests, &link, &job, &mut replies).await;
            broken = replies.values.iter().find_map(unfit);
            let refused = replies.values.iter().find_map(refusal);
            refused.map_or(Ok(replies), Err)
        }
    };
    // The caller may have stopped waiting.
    let _ = job.reply.send(result);
    broken.map_or(Ok(()), Err)
}

/// Repeats calls that are redirected, or that fail while their slot moves, for as long as the caller waits.
async fn follow(requests: &Requests, link: &Sender, job: &Job, replies: &mut Replies) {
    for attempt in 0..REDIRECTIONS_MAX {
        let redirected: Vec<_> = replies
            .values
            .iter()
            .enumerate()
            .filter_map(|(i, reply)| Some((i, Redirect::of(reply, link)?)))
            .collect();
        if redirected.is_empty() || job.reply.is_closed() {
            return;
        }
        requests.moved.notify_one();
        if attempt > 0 || redirected.iter().any(|(_, redirect)| *redirect == Redirect::Later) {
            tokio::time::sleep(REDIRECTION_DELAY).await;
        }
        for (i, redirect) in redirected {
            let (sender, is_asking) = match &redirect {
                Redirect::Moved(endpoint) => (requests.sender(endpoint), false),
                Redirect::Ask(endpoint) => (requests.sender(endpoint), true),
                Redirect::Later => (Some(link.clone()), false),
            };
            let Some(sender) = sender else { continue };
            let mut pipeline = Pipeline::new();
            if is_asking {
                pipeline.cmd("ASKING");
            }
            pipeline.add_command(job.calls[i].command(&sender.replication_id, true));
            let Ok(again) = sender.replies(&pipeline).await else { continue };
            if let Some(reply) = replies.take(again).pop() {
                replies.values[i] = reply;
            }
        }
    }
}

/// The place at which a call must be repeated.
#[derive(PartialEq)]
enum Redirect {
    /// The slot has moved to this primary.
    Moved(Endpoint),
    /// The slot is moving, and this call's keys are already at this primary.
    Ask(Endpoint),
    /// The slot is moving, and only some of the keys have moved: the call is to be repeated.
    Later,
}

impl Redirect {
    fn of(reply: &Value, link: &Sender) -> Option<Self> {
        let Value::ServerError(error) = reply else { return None };
        let endpoint = || {
            // `SLOT HOST:PORT`, without the host if it is the same.
            let (host, port) = error.details()?.split_once(' ')?.1.rsplit_once(':')?;
            let host = if host.is_empty() { &link.host } else { host };
            Some(Endpoint { host: host.into(), port: port.parse().ok()? })
        };
        match error.code() {
            "MOVED" => endpoint().map(Self::Moved),
            "ASK" => endpoint().map(Self::Ask),
            "TRYAGAIN" => Some(Self::Later),
            _ => None,
        }
    }
}

async fn batch(link: &Sender, calls: &[Call]) -> Result<Replies, String> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        let with_text = !link.known_scripts.has(call.script);
        pipeline.add_command(call.command(&link.replication_id, with_text));
    }
    let mut replies = link.replies(&pipeline).await?;
    let unknown: Vec<usize> =
        (0..replies.values.len()).filter(|&i| is_unknown_script(&replies.values[i])).collect();
    if !unknown.is_empty() {
        // The server has flushed these scripts.
        let mut pipeline = Pipeline::with_capacity(unknown.len());
        for &i in &unknown {
            link.known_scripts.remove(calls[i].script);
            pipeline.add_command(calls[i].command(&link.replication_id, true));
        }
        let again = replies.take(link.replies(&pipeline).await?);
        for (i, reply) in unknown.into_iter().zip(again) {
            replies.values[i] = reply;
        }
    }
    for (call, reply) in calls.iter().zip(&replies.values) {
        if !matches!(reply, Value::ServerError(_)) {
            link.known_scripts.add(call.script);
        }
    }
    Ok(replies)
}

fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// The reason why the server can't serve requests: it is a replica, is starting, or is busy.
fn unfit(reply: &Value) -> Option<String> {
    match reply {
        Value::ServerError(error)
            if matches!(error.code(), "READONLY" | "LOADING" | "BUSY" | "MASTERDOWN") =>
        {
            Some(explain(error).to_string())
        }
        _ => None,
    }
}

/// The error of a request, if the server replied with one.
fn refusal(reply: &Value) -> Option<EngineError> {
    let Value::ServerError(error) = reply else { return None };
    // Another server can carry out the request, or this one later.
    let is_elsewhere = matches!(error.code(), "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK");
    let reason = explain(error);
    Some(match is_elsewhere || unfit(reply).is_some() {
        true => EngineError::Unavailable(reason),
        false => EngineError::Refused(reason),
    })
}

fn explain(error: &ServerError) -> Arc<str> {
    match error.code() {
        "OOM" => "Redis is out of memory (maxmemory)".into(),
        code => format!("{code} {}", error.details().unwrap_or_default()).trim_end().into(),
    }
}
