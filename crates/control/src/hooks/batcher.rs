//! Batches the questions of one hook into requests, and returns their answers. Sans-I/O: time, questions and
//! responses go in; batches and answers come out.
//!
//! ```text
//!  ask ──► waiting ──► batch in flight ──► answered
//!   │         │               └── failed ──► failed, with the cause
//!   │         │               └── failed, possibly because of one question ──► each half again, until that one is alone
//!   │         └── deadline, or the breaker opens ──► failed
//!   │         └── full, and its queue is the longest ──► refused
//!   └── full, or the breaker is open ──► refused at once
//! ```
//!
//! Questions take turns ([`crate::fair`]). If too many questions wait, the last one of the longest queue is
//! refused, possibly the new one. Therefore a client that asks about thousands of rooms neither delays other
//! clients nor causes refusals for them.
//!
//! The first question is sent at once if no request is in flight. Otherwise, questions are collected until a
//! batch is full or the oldest one has waited for [`Limits::batch_delay`].
//!
//! If questions of a failed request are asked again, the breaker counts one failure if all of them fail, and
//! otherwise none. A client whose question has failed is a suspect until one of its questions is answered.
//! Questions of a suspect are sent in separate requests, which alternate with those of other clients. The
//! question that tests whether the backend answers again is one of another client. Therefore one client's
//! questions never cause refusals for other clients.
//!
//! Invariants: every accepted question is answered once, unless it is cancelled; at most
//! [`Limits::requests_max`] batches are in flight, and one while the breaker is half open; a batch is within
//! `batch_max` questions and, unless it has only one, within `batch_bytes_max`; a session's questions are
//! sent in the order in which they came, unless they are asked again or the session becomes or stops being a
//! suspect; after `poll_batch(now)` returned `None`, `poll_timeout()` is later than `now`.

mod queues;

use super::QUESTION_BYTES;
use super::breaker::{Breaker, Outcome};
use super::charged::Held;
use super::failure::Cause;
use crate::fair::Owner;
use queues::{Queues, Waiting};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_ports::Ticket;

/// Limits of one hook.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of questions in one request.
    pub(super) batch_max: usize,
    /// Maximum size of the questions in one request, in bytes.
    pub(super) batch_bytes_max: usize,
    /// Maximum time for which questions are collected for one request.
    pub(super) batch_delay: Duration,
    /// Maximum time that a question may wait. Also the maximum time of a request, from its newest question to
    /// the end of the response.
    pub(super) timeout: Duration,
    /// Maximum number of requests in flight.
    pub(super) requests_max: usize,
    /// Maximum number of questions that wait for a request.
    pub(super) waiting_max: usize,
    /// Maximum size of the waiting questions in bytes.
    pub(super) waiting_bytes_max: usize,
}

/// The client that asks a question.
pub(super) trait Source {
    /// Returns a number for the client's session, or for its address while it has no session.
    fn source(&self) -> u64;
    /// Returns the address and session whose turns the question uses.
    fn owner(&self) -> Owner;
    /// Returns the ticket of the question.
    fn ticket(&self) -> Ticket;
}

/// A request.
struct InFlight<A> {
    /// For each question, in order: its id, its asker, and the time at which it was asked.
    askers: Vec<(u64, A, Instant)>,
    again: Option<u64>,
}

/// The questions of a failed request that are asked again.
struct Again {
    unanswered: usize,
    has_answer: bool,
    /// Clients of the questions that have failed.
    sources: Vec<u64>,
}

/// One request to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) number: u64,
    /// The texts of the questions in order.
    pub(super) questions: Vec<Vec<u8>>,
    /// Time at which the response must be complete.
    pub(super) deadline: Instant,
}

/// A question's asker with its answer or the cause of its failure.
pub(super) type Answered<A, T> = (A, Result<T, Cause>);

/// Batches questions; see the module's documentation.
pub(super) struct Batcher<A> {
    limits: Limits,
    queues: Queues<A>,
    /// Halves of failed requests. They are sent before other questions, but never occupy all slots for
    /// requests.
    halves: VecDeque<Vec<Waiting<A>>>,
    halves_bytes: usize,
    /// Questions that are asked again, by the number of their failed request.
    again: HashMap<u64, Again>,
    /// Requests in flight, by number.
    in_flight: HashMap<u64, InFlight<A>>,
    failed: Vec<(A, Cause)>,
    breaker: Breaker,
    last_id: u64,
    last_request: u64,
}

impl<A: Source> Batcher<A> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            queues: Queues::new(limits),
            halves: VecDeque::new(),
            halves_bytes: 0,
            again: HashMap::new(),
            in_flight: HashMap::new(),
            failed: Vec::new(),
            breaker: Breaker::default(),
            last_id: 0,
            last_request: 0,
        }
    }

    /// Asks a question. `write` receives its id and writes its text. Returns `true` if the caller must call
    /// [`Self::poll_batch`] or [`Self::poll_timeout`] again.
    ///
    /// # Errors
    /// Returns the asker and the cause if the question isn't asked. Other questions may have failed in its
    /// favor ([`Self::has_failed`]).
    pub(super) fn ask(
        &mut self,
        now: Instant,
        asker: A,
        write: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<bool, (A, Cause)> {
        let is_apart = self.queues.is_suspect(&asker);
        if self.breaker.is_open(now) || self.breaker.prefers_others(now) && is_apart {
            return Err((asker, Cause::BreakerOpen));
        }
        self.last_id += 1;
        let id = self.last_id;
        let text = write(id);
        if text.len() > self.limits.waiting_bytes_max {
            return Err((asker, Cause::QueueFull));
        }
        let is_first = self.queues.first_asked_at().is_none();
        self.queues.insert(Waiting { id, asker, text, asked_at: now, again: None, is_apart });
        let refused = self.failed.len();
        if let Some(asker) = self.queues.make_room(id, &mut self.failed) {
            return Err((asker, Cause::QueueFull));
        }
        Ok(is_first || self.queues.is_full() || self.failed.len() > refused)
    }

    /// Returns `true` if [`Self::take_failed`] has entries.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Drops a question of a disconnected client if the question still waits for its first request. Returns
    /// `true` if it did.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        self.queues.cancel(ticket)
    }

    /// Asks the questions of a failed request again in two requests, because one of them may have caused the
    /// failure. Returns `false` if the questions aren't asked again.
    pub(super) fn ask_again(&mut self, number: u64, questions: Vec<Vec<u8>>) -> bool {
        let is_batch = |request: &InFlight<A>| request.askers.len() > 1;
        if !self.breaker.is_closed() || !self.in_flight.get(&number).is_some_and(is_batch) {
            return false;
        }
        let Some(request) = self.in_flight.remove(&number) else { return false };
        let first = request.again.unwrap_or(number);
        let unanswered = request.askers.len();
        self.again.entry(first).or_insert(Again { unanswered, has_answer: false, sources: Vec::new() });
        let again = |((id, asker, asked_at), text)| Waiting {
            id,
            asker,
            text,
            asked_at,
            again: Some(first),
            is_apart: false,
        };
        let mut half: Vec<_> = request.askers.into_iter().zip(questions).map(again).collect();
        self.halves_bytes += half.iter().map(|waiting| waiting.text.len()).sum::<usize>();
        let other_half = half.split_off(half.len() / 2);
        self.halves.extend([half, other_half]);
        true
    }

    /// Records the outcome of questions that were asked again. Returns the outcome of their first request if
    /// it is known now.
    fn end_again(&mut self, number: u64, questions: usize, outcome: Outcome) -> Option<Outcome> {
        let again = self.again.get_mut(&number)?;
        again.unanswered -= questions;
        again.has_answer |= outcome == Outcome::Answered;
        if let Outcome::Failed(sources) = &outcome {
            again.sources.extend(sources);
        }
        if again.unanswered > 0 {
            return (outcome == Outcome::Answered).then_some(outcome);
        }
        let again = self.again.remove(&number)?;
        match outcome {
            Outcome::Failed(_) if again.has_answer => None,
            Outcome::Failed(_) => Some(Outcome::Failed(again.sources)),
            outcome => Some(outcome),
        }
    }

    /// Returns the next request to send.
    pub(super) fn poll_batch(&mut self, now: Instant) -> Option<Batch> {
        self.expire(now);
        if self.has_slot(now)
            && self.has_slot_for_half()
            && let Some(half) = self.halves.pop_front()
        {
            self.halves_bytes -= half.iter().map(|waiting| waiting.text.len()).sum::<usize>();
            return Some(self.send(now, half));
        }
        let first_asked_at = self.queues.first_asked_at()?;
        let is_due = self.in_flight.is_empty()
            || self.queues.is_full()
            || now.saturating_duration_since(first_asked_at) >= self.limits.batch_delay;
        if !is_due || !self.has_slot(now) {
            return None;
        }
        let batch = self.queues.next_batch()?;
        Some(self.send(now, batch))
    }

    fn send(&mut self, now: Instant, batch: Vec<Waiting<A>>) -> Batch {
        self.last_request += 1;
        let number = self.last_request;
        // The newest question sets the deadline, so that an old question doesn't shorten the time of the
        // others.
        let asked_at = batch.iter().map(|waiting| waiting.asked_at).max().unwrap_or(now);
        let again = batch.first().and_then(|first| first.again);
        let (mut questions, mut askers) = (Vec::new(), Vec::new());
        for Waiting { id, asker, text, asked_at, .. } in batch {
            askers.push((id, asker, asked_at));
            questions.push(text);
        }
        self.in_flight.insert(number, InFlight { askers, again });
        self.breaker.begin(now, number);
        Batch { number, questions, deadline: asked_at + self.limits.timeout }
    }

    /// Returns `true` if a request may be sent.
    fn has_slot(&self, now: Instant) -> bool {
        self.in_flight.len() < self.limits.requests_max && self.breaker.allows_request(now)
    }

    /// Returns `true` if the next request may be a half of a failed one. Some slots stay free for other
    /// questions.
    fn has_slot_for_half(&self) -> bool {
        let again = self.in_flight.values().filter(|request| request.again.is_some()).count();
        again < self.limits.requests_max.div_ceil(2)
    }

    /// Returns the latest time for the next [`Self::poll_batch`] without other events.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        // If no slot is free, the next request can be sent only after a response, so no timeout is needed.
        let first = self.queues.first_asked_at();
        let due = first.filter(|_| self.has_slot(now)).map(|at| at + self.limits.batch_delay);
        let asked = self.halves.iter().flatten().map(|waiting| waiting.asked_at).chain(first);
        let deadlines = asked.map(|at| at + self.limits.timeout);
        deadlines.chain(due).chain(self.breaker.pause_ends(now)).min()
    }

    /// Fails questions that have waited for `timeout`.
    fn expire(&mut self, now: Instant) {
        while let Some(Waiting { asker, .. }) = self.queues.pop_late(now) {
            self.failed.push((asker, Cause::Timeout));
        }
        let is_late =
            |waiting: &mut Waiting<A>| now.saturating_duration_since(waiting.asked_at) >= self.limits.timeout;
        let late: Vec<_> = self.halves.iter_mut().flat_map(|half| half.extract_if(.., is_late)).collect();
        self.halves.retain(|half| !half.is_empty());
        for question in late {
            self.halves_bytes -= question.text.len();
            let failed = Outcome::Failed(vec![question.asker.source()]);
            let ended = question.again.and_then(|number| self.end_again(number, 1, failed));
            self.failed.push((question.asker, Cause::Timeout));
            if let Some(outcome) = ended {
                self.end_request(now, 0, outcome);
            }
        }
    }

    /// Reports the end of a request to the breaker. If this opens the breaker, fails all waiting questions.
    fn end_request(&mut self, now: Instant, number: u64, outcome: Outcome) {
        if self.breaker.end(now, number, outcome) {
            // The waiting questions can't be sent during the pause.
            self.halves_bytes = 0;
            self.again.clear();
            let waiting = self.queues.take_all().chain(self.halves.drain(..).flatten());
            self.failed.extend(waiting.map(|waiting| (waiting.asker, Cause::BreakerOpen)));
        }
    }

    /// Handles the response to a request, with answers by id, or its failure. Ignores answers with unknown
    /// ids. Questions without an answer fail.
    pub(super) fn handle_response<T>(
        &mut self,
        now: Instant,
        number: u64,
        response: Result<Vec<(u64, T)>, Cause>,
    ) -> Vec<Answered<A, T>> {
        let Some(request) = self.in_flight.remove(&number) else { return Vec::new() };
        let mut answers: HashMap<u64, T> = HashMap::new();
        let missing = match response {
            Ok(given) => {
                // If a question has several answers, the first one is used.
                for (id, answer) in given {
                    answers.entry(id).or_insert(answer);
                }
                Cause::MissingAnswer
            }
            Err(cause) => cause,
        };
        let (mut has_answer, mut sources) = (false, Vec::new());
        let answered = request.askers.into_iter().map(|(id, asker, _)| {
            let (answer, source) = (answers.remove(&id).ok_or(missing), asker.source());
            has_answer |= answer.is_ok();
            sources.extend(answer.is_err().then_some(source));
            if !missing.concerns_all_requests() {
                self.queues.judge(source, answer.is_err());
            }
            (asker, answer)
        });
        let answered: Vec<_> = answered.collect();
        let outcome = match missing {
            _ if has_answer => Outcome::Answered,
            cause if cause.concerns_all_requests() => Outcome::Unavailable,
            _ => Outcome::Failed(sources),
        };
        let ended = match request.again {
            None => Some(outcome),
            Some(first) => self.end_again(first, answered.len(), outcome),
        };
        if let Some(outcome) = ended {
            self.end_request(now, number, outcome);
        }
        answered
    }

    /// Takes the questions that failed while they waited.
    pub(super) fn take_failed(&mut self) -> Vec<(A, Cause)> {
        std::mem::take(&mut self.failed)
    }

    /// Returns `true` if failed requests have opened the breaker, also while it is half open.
    #[cfg(test)]
    pub(super) fn is_broken(&self) -> bool {
        !self.breaker.is_closed()
    }

    /// Returns `true` if the breaker is open, so that questions are refused.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.breaker.is_open(now)
    }

    /// Returns the number of questions that wait for a request.
    pub(super) fn waiting(&self) -> usize {
        self.queues.len() + self.halves.iter().map(Vec::len).sum::<usize>()
    }

    /// Returns the size of the waiting questions in bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.queues.bytes() + self.halves_bytes
    }

    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

impl<A: Source> Held for Batcher<A> {
    fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.waiting() * QUESTION_BYTES
    }
}
