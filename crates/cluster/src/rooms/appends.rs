//! Messages in transit to the engine.
//!
//! A publisher with a ticket waits for the decision before it publishes again. So messages with tickets come from different
//! publishers, and may overtake each other. Messages without a ticket keep their order: at most one is in flight, and no other
//! message of its room. Otherwise, a message that is sent again could follow a later one.
//!
//! **Invariants.** Each message is decided once. A message that has timed out is no longer sent, so the publisher's next message
//! follows it. Each attempt has the same idempotency key, so a message has one position in an epoch. An engine that has lost its
//! data doesn't know the key, and stores the message again, in a new epoch.

use crate::NodeId;
use crate::engine::{EngineError, Reply, Request};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_hub::{HistoryLimits, Room};
use stentor_ports::Denial;

/// Maximum number of messages that wait for the engine.
pub(super) const APPENDS_MAX: usize = 512;
/// Maximum size of these messages. A single message may be larger.
pub(super) const APPENDS_BYTES_MAX: usize = 8 << 20;
/// Delay before messages are sent again.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// The next step for a message. `P` names a waiting publisher.
pub(super) enum Step<P> {
    /// Sends the request. Pass its answer to [`Appends::handle_reply`].
    Send(u64, Request),
    /// Reports to the publisher that its message is in the history, or the reason why it isn't.
    Decide(P, Result<(), Denial>),
}

struct Append<P> {
    room: Room,
    payload: Bytes,
    limits: HistoryLimits,
    key: Arc<str>,
    publisher: Option<P>,
    deadline: Instant,
    /// `true` if the message may have reached the engine.
    is_unknown: bool,
}

/// The messages of a room.
#[derive(Default)]
struct Lane {
    queue: VecDeque<u64>,
    in_flight: usize,
    /// `true` if the message in flight has no ticket.
    is_exclusive: bool,
}

/// The messages of one node.
pub(super) struct Appends<P> {
    node: NodeId,
    drawn: u64,
    timeout: Duration,
    appends: HashMap<u64, Append<P>>,
    lanes: HashMap<Room, Lane>,
    bytes: usize,
    /// Messages to send again, in this order.
    stalled: VecDeque<u64>,
    retry_at: Option<Instant>,
    steps: VecDeque<Step<P>>,
    confirmed: u64,
    failures: u64,
}

impl<P> Appends<P> {
    /// Makes the queue of `node`'s messages, each of which is decided within about `timeout`.
    pub(super) fn new(node: NodeId, timeout: Duration) -> Self {
        Self {
            node,
            drawn: 0,
            timeout,
            appends: HashMap::new(),
            lanes: HashMap::new(),
            bytes: 0,
            stalled: VecDeque::new(),
            retry_at: None,
            steps: VecDeque::new(),
            confirmed: 0,
            failures: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.appends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of messages that the engine has confirmed.
    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Number of messages that the engine didn't confirm in time.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    pub(super) fn poll_step(&mut self) -> Option<Step<P>> {
        self.steps.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Adds a message that was published on this node.
    pub(super) fn handle_publish(
        &mut self,
        now: Instant,
        room: &Room,
        payload: Bytes,
        limits: HistoryLimits,
        publisher: Option<P>,
        key: Option<Arc<str>>,
    ) -> Result<(), Option<P>> {
        let is_full = self.appends.len() >= APPENDS_MAX
            || (self.bytes + payload.len() > APPENDS_BYTES_MAX && !self.appends.is_empty());
        if is_full {
            return Err(publisher);
        }
        self.drawn += 1;
        self.bytes += payload.len();
        let key = key.unwrap_or_else(|| format!("{}-{}", self.node, self.drawn).into());
        let deadline = now + self.timeout;
        let append =
            Append { room: room.clone(), payload, limits, key, publisher, deadline, is_unknown: false };
        self.appends.insert(self.drawn, append);
        self.lanes.entry(room.clone()).or_default().queue.push_back(self.drawn);
        self.advance(now, room);
        Ok(())
    }

    /// Handles an answer of the engine.
    pub(super) fn handle_reply(&mut self, now: Instant, id: u64, reply: Result<Reply, EngineError>) {
        let Some(append) = self.appends.get_mut(&id) else { return };
        match reply {
            Ok(_) => {
                self.confirmed += 1;
                self.conclude(now, id, Ok(()));
            }
            Err(EngineError::Refused(reason)) => {
                let message = format!("the message was refused: {reason}");
                self.conclude(now, id, Err(Denial::new("unavailable", message)));
            }
            Err(error) => {
                append.is_unknown |= error != EngineError::Full;
                self.stalled.push_back(id);
                self.retry_at.get_or_insert(now + RETRY_DELAY);
            }
        }
    }

    /// Handles timeouts that are due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        self.retry_at = None;
        for id in std::mem::take(&mut self.stalled) {
            self.send(now, id);
        }
    }

    /// Sends those messages of a room that may be sent now.
    fn advance(&mut self, now: Instant, room: &Room) {
        while let Some(lane) = self.lanes.get_mut(room)
            && let Some(id) = lane.queue.front().copied()
        {
            let is_exclusive = self.appends.get(&id).is_some_and(|append| append.publisher.is_none());
            if lane.in_flight > 0 && (lane.is_exclusive || is_exclusive) {
                return;
            }
            lane.queue.pop_front();
            lane.in_flight += 1;
            lane.is_exclusive = is_exclusive;
            self.send(now, id);
        }
        if self.lanes.get(room).is_some_and(|lane| lane.in_flight == 0) {
            self.lanes.remove(room);
        }
    }

    fn send(&mut self, now: Instant, id: u64) {
        let Some(append) = self.appends.get(&id) else { return };
        if now < append.deadline {
            let request = Request::Append {
                room: append.room.clone(),
                payload: append.payload.clone(),
                idempotency_key: Some(append.key.clone()),
                limits: append.limits,
            };
            return self.steps.push_back(Step::Send(id, request));
        }
        self.failures += 1;
        let message = match append.is_unknown {
            true => "the cluster's engine doesn't answer; whether the message is published is unknown",
            false => "the cluster's engine has no room; the message isn't published",
        };
        self.conclude(now, id, Err(Denial { retry: true, ..Denial::new("unavailable", message) }));
    }

    fn conclude(&mut self, now: Instant, id: u64, decision: Result<(), Denial>) {
        let Some(append) = self.appends.remove(&id) else { return };
        self.bytes -= append.payload.len();
        if let Some(publisher) = append.publisher {
            self.steps.push_back(Step::Decide(publisher, decision));
        }
        if let Some(lane) = self.lanes.get_mut(&append.room) {
            lane.in_flight -= 1;
        }
        self.advance(now, &append.room);
    }
}
