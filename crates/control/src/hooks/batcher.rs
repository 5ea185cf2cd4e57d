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
//! suspect; every question in `waiting` is in `turns` or in `apart`; after `poll_batch(now)` returned `None`,
//! `poll_timeout()` is later than `now`.

use super::breaker::{Breaker, Outcome};
use super::failure::Cause;
use crate::fair::{FairQueue, Item, Owner};
use std::collections::{BTreeMap, HashMap, VecDeque};
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

/// Maximum number of suspects. Above it, the oldest suspect is removed from the list.
const SUSPECTS_MAX: usize = 64;

/// When queues are compared, this many bytes count as much as one question.
const QUEUE_BYTES: usize = 1_024;

/// The client that asks a question.
pub(super) trait Source {
    /// Returns a number for the client's session, or for its address while it has no session.
    fn source(&self) -> u64;
    /// Returns the address and session whose turns the question uses.
    fn owner(&self) -> Owner;
    /// Returns the ticket of the question.
    fn ticket(&self) -> Ticket;
}

/// A question in a queue.
#[derive(Clone, Copy)]
struct Place {
    id: u64,
    len: usize,
}

impl Item for Place {
    fn len(&self) -> usize {
        self.len
    }
}

/// A waiting question. `A` is the asker.
struct Waiting<A> {
    id: u64,
    asker: A,
    text: Vec<u8>,
    asked_at: Instant,
    /// Number of the failed request, if the question is asked again.
    again: Option<u64>,
    /// `true` if the question is in `apart`.
    is_apart: bool,
}

impl<A: Source> Waiting<A> {
    fn place(&self) -> Place {
        Place { id: self.id, len: 1 + self.text.len() / QUEUE_BYTES }
    }
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
    /// Waiting questions by id, so the oldest is first.
    waiting: BTreeMap<u64, Waiting<A>>,
    by_ticket: HashMap<Ticket, u64>,
    turns: FairQueue<Place>,
    /// Waiting questions of suspects.
    apart: FairQueue<Place>,
    /// `true` if the next request takes questions of `apart`, if both `turns` and `apart` have questions.
    is_turn_of_apart: bool,
    /// The question that comes next, because the last request had no space for it.
    next: Option<u64>,
    waiting_bytes: usize,
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
    /// Clients whose last question has failed, oldest first.
    suspects: VecDeque<u64>,
    last_id: u64,
    last_request: u64,
}

impl<A: Source> Batcher<A> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            by_ticket: HashMap::new(),
            turns: FairQueue::default(),
            apart: FairQueue::default(),
            is_turn_of_apart: false,
            next: None,
            waiting_bytes: 0,
            halves: VecDeque::new(),
            halves_bytes: 0,
            again: HashMap::new(),
            in_flight: HashMap::new(),
            failed: Vec::new(),
            breaker: Breaker::default(),
            suspects: VecDeque::new(),
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
        let is_refused = self.breaker.is_open(now)
            || self.breaker.prefers_others(now) && self.suspects.contains(&asker.source());
        if is_refused {
            return Err((asker, Cause::BreakerOpen));
        }
        self.last_id += 1;
        let id = self.last_id;
        let text = write(id);
        if text.len() > self.limits.waiting_bytes_max {
            return Err((asker, Cause::QueueFull));
        }
        let is_apart = self.suspects.contains(&asker.source());
        let is_first = self.waiting.is_empty();
        self.insert(Waiting { id, asker, text, asked_at: now, again: None, is_apart });
        let refused = self.failed.len();
        if let Some(asker) = self.make_room(id) {
            return Err((asker, Cause::QueueFull));
        }
        Ok(is_first || self.is_full() || self.failed.len() > refused)
    }

    /// Returns `true` if [`Self::take_failed`] has entries.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    fn queue(&mut self, is_apart: bool) -> &mut FairQueue<Place> {
        if is_apart { &mut self.apart } else { &mut self.turns }
    }

    fn insert(&mut self, waiting: Waiting<A>) {
        let id = waiting.id;
        self.queue(waiting.is_apart).insert(waiting.asker.owner(), id, waiting.place());
        self.waiting_bytes += waiting.text.len();
        self.by_ticket.insert(waiting.asker.ticket(), id);
        self.waiting.insert(id, waiting);
    }

    fn remove(&mut self, id: u64) -> Option<Waiting<A>> {
        let waiting = self.waiting.remove(&id)?;
        self.queue(waiting.is_apart).remove(waiting.asker.owner(), id);
        self.waiting_bytes -= waiting.text.len();
        self.by_ticket.remove(&waiting.asker.ticket());
        self.next.take_if(|next| *next == id);
        Some(waiting)
    }

    /// Refuses the last questions of the longest queues until there is space for the question `new`. If the
    /// queue of `new` is the longest, removes `new` and returns its asker.
    fn make_room(&mut self, new: u64) -> Option<A> {
        while self.waiting.len() > self.limits.waiting_max
            || self.waiting_bytes > self.limits.waiting_bytes_max
        {
            let longer = if self.apart.longest() > self.turns.longest() { &self.apart } else { &self.turns };
            let length_of = |id: &u64| {
                let owner = self.waiting.get(id)?.asker.owner();
                let [(address, session), apart] =
                    [&self.turns, &self.apart].map(|queue| queue.waiting_of(owner));
                Some((address + apart.0, session + apart.1))
            };
            let last = longer.last_of_longest().map(|place| place.id);
            let last = last.filter(|last| length_of(last) > length_of(&new)).unwrap_or(new);
            let asker = self.remove(last)?.asker;
            if last == new {
                return Some(asker);
            }
            self.failed.push((asker, Cause::QueueFull));
        }
        None
    }

    /// Drops a question of a disconnected client if the question still waits for its first request. Returns
    /// `true` if it did.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        self.by_ticket.get(&ticket).copied().and_then(|id| self.remove(id)).is_some()
    }

    /// Returns `true` if the waiting questions fill a batch.
    fn is_full(&self) -> bool {
        self.waiting.len() >= self.limits.batch_max || self.waiting_bytes >= self.limits.batch_bytes_max
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

    /// Records that a question of a client was answered, or that it has failed, presumably because of its
    /// content. Updates the suspects.
    fn judge(&mut self, source: u64, has_failed: bool) {
        self.suspects.retain(|suspect| *suspect != source);
        if has_failed {
            if self.suspects.len() >= SUSPECTS_MAX {
                self.suspects.pop_front();
            }
            self.suspects.push_back(source);
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
        let (_, first) = self.waiting.first_key_value()?;
        let is_due = self.in_flight.is_empty()
            || self.is_full()
            || now.saturating_duration_since(first.asked_at) >= self.limits.batch_delay;
        if !is_due || !self.has_slot(now) {
            return None;
        }
        let is_turn_of_apart = self.is_turn_of_apart;
        let batch = [is_turn_of_apart, !is_turn_of_apart].into_iter().find_map(|is_apart| {
            let batch = if is_apart { self.next_apart() } else { self.next_together() };
            self.is_turn_of_apart = !is_apart;
            (!batch.is_empty()).then_some(batch)
        });
        batch.map(|batch| self.send(now, batch))
    }

    /// Takes the next questions of clients that aren't suspects. Moves questions of suspects to `apart`.
    fn next_together(&mut self) -> Vec<Waiting<A>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < self.limits.batch_max
            && let Some(id) = self.next.take().or_else(|| self.turns.next().map(|place| place.id))
            && let Some(waiting) = self.waiting.get(&id)
        {
            if self.suspects.contains(&waiting.asker.source()) {
                let moved = self.remove(id).map(|waiting| Waiting { is_apart: true, ..waiting });
                moved.into_iter().for_each(|waiting| self.insert(waiting));
            } else if !batch.is_empty() && bytes + waiting.text.len() > self.limits.batch_bytes_max {
                self.next = Some(id);
                break;
            } else {
                bytes += waiting.text.len();
                batch.extend(self.remove(id));
            }
        }
        batch
    }

    /// Takes questions of the suspect whose turn it is.
    fn next_apart(&mut self) -> Vec<Waiting<A>> {
        let (mut batch, mut bytes) = (Vec::<Waiting<A>>::new(), 0);
        let mut next = self.apart.next().map(|place| place.id);
        while batch.len() < self.limits.batch_max
            && let Some(id) = next
            && let Some(waiting) = self.waiting.get(&id)
            && batch.first().is_none_or(|first| first.asker.source() == waiting.asker.source())
            && (batch.is_empty() || bytes + waiting.text.len() <= self.limits.batch_bytes_max)
        {
            let owner = waiting.asker.owner();
            bytes += waiting.text.len();
            batch.extend(self.remove(id));
            next = self.apart.first_of(owner).map(|place| place.id);
        }
        batch
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
        let deadline = |waiting: &Waiting<A>| waiting.asked_at + self.limits.timeout;
        // If no slot is free, the next request can be sent only after a response, so no timeout is needed.
        let first = self.waiting.first_key_value().map(|(_, first)| first);
        let due = first.filter(|_| self.has_slot(now)).map(|first| first.asked_at + self.limits.batch_delay);
        let pause_ends = self.breaker.pause_ends(now);
        self.halves.iter().flatten().chain(first).map(deadline).chain(due).chain(pause_ends).min()
    }

    /// Fails questions that have waited for `timeout`.
    fn expire(&mut self, now: Instant) {
        while let Some((&id, first)) = self.waiting.first_key_value()
            && now.saturating_duration_since(first.asked_at) >= self.limits.timeout
            && let Some(Waiting { asker, .. }) = self.remove(id)
        {
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
            (self.waiting_bytes, self.halves_bytes) = (0, 0);
            self.again.clear();
            (self.turns, self.apart, self.next) = (FairQueue::default(), FairQueue::default(), None);
            self.by_ticket.clear();
            let waiting = std::mem::take(&mut self.waiting).into_values();
            let waiting = waiting.chain(self.halves.drain(..).flatten());
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
                self.judge(source, answer.is_err());
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
        self.waiting.len() + self.halves.iter().map(Vec::len).sum::<usize>()
    }

    /// Returns the size of the waiting questions in bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.halves_bytes
    }

    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
