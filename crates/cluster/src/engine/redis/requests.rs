//! Makes requests: each is a script or several, sent in the order of the calls without waiting for answers.

use super::link::Link;
use super::scripts::Call;
use super::{Role, Shared};
use crate::engine::{EngineError, PROBE_INTERVAL};
use redis::{Pipeline, ServerError, ServerErrorKind, Value};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use stentor_edge::{Charge, Class, Ledger};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

/// Scripts that are sent at once.
const BATCH_MAX: usize = 256;

/// What a request is answered with: a reply per call.
pub(super) type Replies = Result<Vec<Value>, EngineError>;

struct Job {
    calls: Vec<Call>,
    reply: oneshot::Sender<Replies>,
}

/// The right to have one more request without an answer.
pub(super) struct Permit {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let requests = &self.shared.requests;
        let mut queue = requests.queue();
        queue.unanswered -= 1;
        requests.charge.subtract(self.bytes);
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Requests without an answer.
    unanswered: usize,
}

/// What waits to be sent.
pub(super) struct Requests {
    queue: Mutex<Queue>,
    added: Notify,
    /// The size of the requests without an answer. Changed while the queue is locked.
    charge: Charge,
}

impl Requests {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        let charge = Charge::new(ledger, Class::Cluster);
        Self { queue: Mutex::default(), added: Notify::new(), charge }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests without an answer, and their size in bytes.
    pub(super) fn unanswered(&self) -> (usize, usize) {
        (self.queue().unanswered, self.charge.bytes())
    }

    pub(super) fn push(&self, calls: Vec<Call>) -> oneshot::Receiver<Replies> {
        let (reply, answer) = oneshot::channel();
        let jobs = &mut self.queue().jobs;
        // Nobody waits for these any more: they took too long, and so they don't count as waiting.
        while jobs.front().is_some_and(|job| job.reply.is_closed()) {
            jobs.pop_front();
        }
        jobs.push_back(Job { calls, reply });
        self.added.notify_one();
        answer
    }

    fn take(&self) -> Option<Job> {
        self.queue().jobs.pop_front()
    }
}

impl Permit {
    pub(super) fn new(shared: &Arc<Shared>, calls: &[Call]) -> Result<Self, EngineError> {
        let bytes: usize = calls.iter().map(Call::size).sum();
        let (requests, limits) = (&shared.requests, &shared.limits);
        let mut queue = requests.queue();
        let is_full = queue.unanswered >= limits.requests_max
            || (queue.unanswered > 0 && requests.charge.bytes() + bytes > limits.outgoing_bytes_max);
        if is_full {
            return Err(EngineError::Full);
        }
        queue.unanswered += 1;
        requests.charge.add(bytes);
        Ok(Self { shared: shared.clone(), bytes })
    }
}

type Sent = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Runs for as long as the engine.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        let mut link = shared.connect(Role::Requests, None).await;
        let mut sent = JoinSet::new();
        let reason = serve(&shared.requests, &mut link, &mut sent).await;
        shared.lost(Role::Requests, &reason);
    }
}

async fn serve(requests: &Requests, link: &mut Link, sent: &mut JoinSet<Result<(), String>>) -> String {
    let mut probe = tokio::time::interval(PROBE_INTERVAL);
    probe.reset();
    loop {
        while let Some(job) = requests.take() {
            if job.reply.is_closed() {
                continue;
            }
            let mut future: Sent = Box::pin(make(link.sender(), job));
            // Its first step puts it into the connection's queue, so that the order is kept.
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
            () = requests.added.notified() => {}
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

/// Makes one request. An error is one of the connection.
async fn make(link: super::link::Sender, job: Job) -> Result<(), String> {
    let mut replies = Vec::with_capacity(job.calls.len());
    let mut broken = None;
    for calls in job.calls.chunks(BATCH_MAX) {
        match batch(&link, calls).await {
            Ok(values) => replies.extend(values),
            Err(reason) => {
                broken = Some(reason);
                break;
            }
        }
    }
    let result = match &broken {
        Some(reason) => Err(EngineError::Unavailable((&**reason).into())),
        None => replies.into_iter().map(check).collect(),
    };
    if let Err(EngineError::Unavailable(reason)) = &result {
        broken.get_or_insert_with(|| reason.to_string());
    }
    // The caller may have stopped waiting.
    let _ = job.reply.send(result);
    broken.map_or(Ok(()), Err)
}

async fn batch(link: &super::link::Sender, calls: &[Call]) -> Result<Vec<Value>, String> {
    let commands = |with_text: bool, calls: &mut dyn Iterator<Item = &Call>| {
        let mut pipeline = Pipeline::with_capacity(calls.size_hint().0);
        calls.for_each(|call| {
            pipeline.add_command(call.command(&link.replication_id, with_text));
        });
        pipeline
    };
    let mut replies = link.send(&commands(false, &mut calls.iter())).await?;
    let unknown: Vec<usize> = (0..replies.len()).filter(|&i| is_unknown_script(&replies[i])).collect();
    if !unknown.is_empty() {
        // With their text, which the server then knows.
        let again = link.send(&commands(true, &mut unknown.iter().map(|&i| &calls[i]))).await?;
        for (i, reply) in unknown.into_iter().zip(again) {
            replies[i] = reply;
        }
    }
    Ok(replies)
}

fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.kind() == Some(ServerErrorKind::NoScript))
}

/// What an error of the server means.
fn check(reply: Value) -> Result<Value, EngineError> {
    let Value::ServerError(error) = reply else { return Ok(reply) };
    let reason = explain(&error);
    Err(match error.code() {
        // It is a replica, starts, or is busy: another server, or this one later, will do it.
        "READONLY" | "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" => {
            EngineError::Unavailable(reason)
        }
        _ => EngineError::Refused(reason),
    })
}

fn explain(error: &ServerError) -> Arc<str> {
    match error.code() {
        "OOM" => "Redis is out of memory (maxmemory)".into(),
        code => format!("{code} {}", error.details().unwrap_or_default()).trim_end().into(),
    }
}
