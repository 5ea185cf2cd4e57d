//! Requests that wait: a queue for each primary. Without a cluster, there is one queue.

use super::link::Sender;
use super::receiver::Replies;
use super::scripts::Call;
use super::slots::{Owners, Ranges};
use crate::engine::EngineError;
use crate::engine::common::Endpoint;
use parking_lot::Mutex;
use redis::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use stentor_ports::Ledger;
use tokio::sync::{Notify, oneshot};

/// The answer to a request: a reply per call.
pub(super) type Outcome = Result<Replies, EngineError>;

pub(super) struct Job {
    pub(super) calls: Vec<Call>,
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// The queue of one primary.
#[derive(Default)]
pub(super) struct Lane {
    /// `None` without a cluster.
    pub(super) endpoint: Option<Endpoint>,
    jobs: Mutex<VecDeque<Job>>,
    pub(super) added: Notify,
    /// The connection's sender. `None` while the primary isn't connected.
    sender: Mutex<Option<Sender>>,
}

impl Lane {
    fn push(&self, job: Job) {
        let mut jobs = self.jobs.lock();
        // Removes requests whose callers have stopped waiting, and so releases their permits.
        while jobs.front().is_some_and(|job| job.reply.is_closed()) {
            jobs.pop_front();
        }
        jobs.push_back(job);
        self.added.notify_one();
    }

    pub(super) fn take(&self) -> Option<Job> {
        self.jobs.lock().pop_front()
    }

    pub(super) fn set_sender(&self, sender: Option<Sender>) {
        *self.sender.lock() = sender;
    }
}

/// The requests of a node.
pub(super) struct Requests {
    lanes: Mutex<Owners<Lane>>,
    /// Notified when slots have moved, or may have moved.
    pub(super) moved: Notify,
}

/// The calls of a request for one lane, with their numbers. The lane is `None` if no primary has the slot.
type Part = (Option<Arc<Lane>>, Vec<usize>, Vec<Call>);

/// The calls of a request, with the lanes that make them.
pub(super) struct Pending {
    /// The numbers of the calls, and the receiver of their answer.
    parts: Vec<(Vec<usize>, oneshot::Receiver<Outcome>)>,
    calls: usize,
}

impl Pending {
    /// Waits for the replies. Returns them in the order of the calls.
    pub(super) async fn replies(self, ledger: &Arc<Ledger>) -> Outcome {
        let mut all = Replies::new(ledger);
        all.values = vec![Value::Nil; self.calls];
        for (numbers, answer) in self.parts {
            let replies = answer.await.map_err(|_| EngineError::connection_lost())??;
            let values = all.take(replies);
            numbers.into_iter().zip(values).for_each(|(number, value)| all.values[number] = value);
        }
        Ok(all)
    }
}

impl Requests {
    /// `is_cluster`: there are no lanes before the first call of [`Self::assign`].
    pub(super) fn new(is_cluster: bool) -> Self {
        let lanes = if is_cluster { Owners::default() } else { Owners::only(Lane::default()) };
        Self { lanes: Mutex::new(lanes), moved: Notify::new() }
    }

    /// The lane of the only primary.
    pub(super) fn only(&self) -> Option<Arc<Lane>> {
        self.lanes.lock().iter().next().cloned()
    }

    /// Sets the primaries of the slots. Returns new lanes, and the primaries that no longer have slots.
    pub(super) fn assign(&self, ranges: Ranges) -> (Vec<Arc<Lane>>, Vec<Endpoint>) {
        let begin = |endpoint: &Endpoint| Lane { endpoint: Some(endpoint.clone()), ..Lane::default() };
        self.lanes.lock().assign(ranges, begin)
    }

    pub(super) fn push(&self, calls: Vec<Call>) -> Pending {
        let mut pending = Pending { parts: Vec::new(), calls: calls.len() };
        let lanes = self.lanes.lock();
        let mut parts: Vec<Part> = Vec::new();
        for (number, call) in calls.into_iter().enumerate() {
            let lane = call.keys.first().and_then(|key| lanes.of(key));
            let part =
                parts.iter_mut().find(|(of, ..)| of.as_ref().map(Arc::as_ptr) == lane.map(Arc::as_ptr));
            match part {
                Some((_, numbers, calls)) => {
                    numbers.push(number);
                    calls.push(call);
                }
                None => parts.push((lane.cloned(), vec![number], vec![call])),
            }
        }
        for (lane, numbers, calls) in parts {
            let (reply, answer) = oneshot::channel();
            match lane {
                Some(lane) => lane.push(Job { calls, reply }),
                None => {
                    self.moved.notify_one();
                    let reason = "no primary of the Redis Cluster has the slot".into();
                    let _ = reply.send(Err(EngineError::Unavailable(reason)));
                }
            }
            pending.parts.push((numbers, answer));
        }
        pending
    }

    /// The sender to this primary. `None` if the primary has no slots or isn't connected.
    pub(super) fn sender(&self, endpoint: &Endpoint) -> Option<Sender> {
        let lane = self.lanes.lock().at(endpoint).cloned();
        lane.and_then(|lane| lane.sender.lock().clone())
    }
}
