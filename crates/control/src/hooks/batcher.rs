//! Gathers the questions of one hook into requests, and gives their answers back. Sans-I/O: time, questions and responses come
//! in; batches and answers come out.
//!
//! ```text
//!  ask ──► waiting ──► batch in flight ──► answered
//!   │         │               └── failed ──► failed, with the cause
//!   │         └── deadline, or the breaker opens ──► failed
//!   └── full, or the breaker is open ──► refused at once
//! ```
//!
//! The first question leaves at once if no request is in flight. Others are gathered until a batch is full or the oldest has
//! waited for [`Limits::gather`].
//!
//! Invariants: every question that was accepted is answered once; at most [`Limits::requests_max`] batches are in flight, one while
//! the breaker is half open; a batch is within `batch_max` questions and, unless it has only one, `batch_bytes_max`; questions
//! leave in the order in which they came; after `poll_batch(now)` returned `None`, `poll_timeout()` is later than `now`.

use super::breaker::Breaker;
use super::failure::Cause;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Bounds of one hook.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Questions of one request.
    pub(super) batch_max: usize,
    /// Bytes of the questions of one request.
    pub(super) batch_bytes_max: usize,
    /// How long questions are gathered for one request.
    pub(super) gather: Duration,
    /// Time for a question, from when it is asked to the end of the response.
    pub(super) timeout: Duration,
    /// Requests in flight.
    pub(super) requests_max: usize,
    /// Questions that wait for a request.
    pub(super) waiting_max: usize,
    /// Bytes of these questions.
    pub(super) waiting_bytes_max: usize,
}

/// A question that waits. `A` is whoever asked.
struct Waiting<A> {
    id: u64,
    asker: A,
    text: Vec<u8>,
    asked_at: Instant,
}

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) number: u64,
    /// The texts of the questions, in order.
    pub(super) questions: Vec<Vec<u8>>,
    /// When the response has to be there.
    pub(super) deadline: Instant,
}

/// What became of a question.
pub(super) type Answered<A, T> = (A, Result<T, Cause>);

/// See the module's documentation.
pub(super) struct Batcher<A> {
    limits: Limits,
    waiting: VecDeque<Waiting<A>>,
    waiting_bytes: usize,
    /// Askers of the questions in flight, by number of the request; with the ids of the questions, in order.
    in_flight: HashMap<u64, Vec<(u64, A)>>,
    failed: Vec<(A, Cause)>,
    breaker: Breaker,
    last_id: u64,
    last_request: u64,
}

impl<A> Batcher<A> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: HashMap::new(),
            failed: Vec::new(),
            breaker: Breaker::default(),
            last_id: 0,
            last_request: 0,
        }
    }

    /// Asks a question. `write` gets its id and writes its text. Returns whether the caller has to look at
    /// [`Self::poll_batch`] or [`Self::poll_timeout`] again.
    ///
    /// # Errors
    /// It isn't asked: the cause, with the asker.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        asker: A,
        write: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<bool, (A, Cause)> {
        if self.breaker.is_open(now) {
            return Err((asker, Cause::BreakerOpen));
        }
        let id = self.last_id + 1;
        if self.waiting.len() >= self.limits.waiting_max {
            return Err((asker, Cause::QueueFull));
        }
        let text = write(id);
        if self.waiting_bytes + text.len() > self.limits.waiting_bytes_max {
            return Err((asker, Cause::QueueFull));
        }
        self.last_id = id;
        self.waiting_bytes += text.len();
        self.waiting.push_back(Waiting { id, asker, text, asked_at: now });
        Ok(self.waiting.len() == 1 || self.is_full())
    }

    /// Whether a batch is full.
    fn is_full(&self) -> bool {
        self.waiting.len() >= self.limits.batch_max || self.waiting_bytes >= self.limits.batch_bytes_max
    }

    /// The next request to be sent.
    pub(super) fn poll_batch(&mut self, now: Instant) -> Option<Batch> {
        self.expire(now);
        let first = self.waiting.front()?;
        let is_due = self.in_flight.is_empty()
            || self.is_full()
            || now.saturating_duration_since(first.asked_at) >= self.limits.gather;
        if !is_due || !self.has_slot(now) {
            return None;
        }
        let deadline = first.asked_at + self.limits.timeout;
        self.last_request += 1;
        let number = self.last_request;
        let (mut questions, mut askers, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = self.waiting.front()
            && questions.len() < self.limits.batch_max
            && (questions.is_empty() || bytes + next.text.len() <= self.limits.batch_bytes_max)
            && let Some(Waiting { id, asker, text, .. }) = self.waiting.pop_front()
        {
            bytes += text.len();
            askers.push((id, asker));
            questions.push(text);
        }
        self.waiting_bytes -= bytes;
        self.in_flight.insert(number, askers);
        self.breaker.begin(now, number);
        Some(Batch { number, questions, deadline })
    }

    /// Whether a request may be sent.
    fn has_slot(&self, now: Instant) -> bool {
        self.in_flight.len() < self.limits.requests_max && self.breaker.allows_request(now)
    }

    /// When [`Self::poll_batch`] is to be called at the latest, if nothing else happens.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let first = self.waiting.front()?;
        let deadline = first.asked_at + self.limits.timeout;
        // If there is no slot, a response makes one.
        let due = self.has_slot(now).then_some(first.asked_at + self.limits.gather);
        Some(due.map_or(deadline, |due| due.min(deadline)))
    }

    /// Fails questions that nothing can answer in time any more.
    fn expire(&mut self, now: Instant) {
        while self
            .waiting
            .front()
            .is_some_and(|first| now.saturating_duration_since(first.asked_at) >= self.limits.timeout)
            && let Some(Waiting { asker, text, .. }) = self.waiting.pop_front()
        {
            self.waiting_bytes -= text.len();
            self.failed.push((asker, Cause::Timeout));
        }
    }

    /// The response to a request has come, with answers by id, or it failed. Ids that weren't asked are ignored; questions without
    /// an answer fail.
    pub(super) fn handle_response<T>(
        &mut self,
        now: Instant,
        number: u64,
        response: Result<Vec<(u64, T)>, Cause>,
    ) -> Vec<Answered<A, T>> {
        let Some(askers) = self.in_flight.remove(&number) else { return Vec::new() };
        let mut answers: HashMap<u64, T> = HashMap::new();
        let missing = match response {
            Ok(given) => {
                // The first of several answers to a question counts.
                for (id, answer) in given {
                    answers.entry(id).or_insert(answer);
                }
                Cause::MissingAnswer
            }
            Err(cause) => cause,
        };
        let mut has_answer = false;
        let answered = askers.into_iter().map(|(id, asker)| {
            let answer = answers.remove(&id).ok_or(missing);
            has_answer |= answer.is_ok();
            (asker, answer)
        });
        let answered = answered.collect();
        if self.breaker.end(now, number, has_answer) {
            // What waits would wait in vain.
            self.waiting_bytes = 0;
            let waiting = self.waiting.drain(..).map(|waiting| (waiting.asker, Cause::BreakerOpen));
            self.failed.extend(waiting);
        }
        answered
    }

    /// Questions that failed while they waited.
    pub(super) fn take_failed(&mut self) -> Vec<(A, Cause)> {
        std::mem::take(&mut self.failed)
    }

    /// Whether requests have failed so that the breaker isn't closed.
    pub(super) fn is_broken(&self) -> bool {
        !self.breaker.is_closed()
    }

    /// Questions that wait for a request.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of these questions.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
