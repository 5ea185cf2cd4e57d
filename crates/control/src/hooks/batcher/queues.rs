//! The questions of a hook that wait for their first request. Suspects have a queue of their own.
//!
//! Invariant: every question in `waiting` is in `turns` or in `apart`.

use super::{Limits, Source};
use crate::fair::{FairQueue, Item};
use crate::hooks::failure::Cause;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;
use stentor_ports::Ticket;

/// Maximum number of suspects. Above it, the oldest suspect is removed from the list.
const SUSPECTS_MAX: usize = 64;

/// When queues are compared, this many bytes count as much as one question.
const QUEUE_BYTES: usize = 1_024;

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
pub(super) struct Waiting<A> {
    pub(super) id: u64,
    pub(super) asker: A,
    pub(super) text: Vec<u8>,
    pub(super) asked_at: Instant,
    /// Number of the failed request, if the question is asked again.
    pub(super) again: Option<u64>,
    /// `true` if the question is in `apart`.
    pub(super) is_apart: bool,
}

impl<A: Source> Waiting<A> {
    fn place(&self) -> Place {
        Place { id: self.id, len: 1 + self.text.len() / QUEUE_BYTES }
    }
}

pub(super) struct Queues<A> {
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
    /// Size of the texts of all waiting questions in bytes.
    bytes: usize,
    /// Clients whose last question has failed, oldest first.
    suspects: VecDeque<u64>,
}

impl<A: Source> Queues<A> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            by_ticket: HashMap::new(),
            turns: FairQueue::default(),
            apart: FairQueue::default(),
            is_turn_of_apart: false,
            next: None,
            bytes: 0,
            suspects: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the time at which the oldest question was asked.
    pub(super) fn first_asked_at(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(_, first)| first.asked_at)
    }

    fn queue(&mut self, is_apart: bool) -> &mut FairQueue<Place> {
        if is_apart { &mut self.apart } else { &mut self.turns }
    }

    pub(super) fn insert(&mut self, waiting: Waiting<A>) {
        let id = waiting.id;
        self.queue(waiting.is_apart).insert(waiting.asker.owner(), id, waiting.place());
        self.bytes += waiting.text.len();
        self.by_ticket.insert(waiting.asker.ticket(), id);
        self.waiting.insert(id, waiting);
    }

    fn remove(&mut self, id: u64) -> Option<Waiting<A>> {
        let waiting = self.waiting.remove(&id)?;
        self.queue(waiting.is_apart).remove(waiting.asker.owner(), id);
        self.bytes -= waiting.text.len();
        self.by_ticket.remove(&waiting.asker.ticket());
        self.next.take_if(|next| *next == id);
        Some(waiting)
    }

    /// Refuses the last questions of the longest queues until there is space for the question `new`. If the
    /// queue of `new` is the longest, removes `new` and returns its asker.
    pub(super) fn make_room(&mut self, new: u64, refused: &mut Vec<(A, Cause)>) -> Option<A> {
        while self.waiting.len() > self.limits.waiting_max || self.bytes > self.limits.waiting_bytes_max {
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
            refused.push((asker, Cause::QueueFull));
        }
        None
    }

    /// Removes a question. Returns `true` if it waited.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        self.by_ticket.get(&ticket).copied().and_then(|id| self.remove(id)).is_some()
    }

    /// Returns `true` if the waiting questions fill a batch.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.limits.batch_max || self.bytes >= self.limits.batch_bytes_max
    }

    pub(super) fn is_suspect(&self, asker: &A) -> bool {
        self.suspects.contains(&asker.source())
    }

    /// Records that a question of a client was answered, or that it has failed, presumably because of its
    /// content. Updates the suspects.
    pub(super) fn judge(&mut self, source: u64, has_failed: bool) {
        self.suspects.retain(|suspect| *suspect != source);
        if has_failed {
            if self.suspects.len() >= SUSPECTS_MAX {
                self.suspects.pop_front();
            }
            self.suspects.push_back(source);
        }
    }

    /// Takes the questions of the next request.
    pub(super) fn next_batch(&mut self) -> Option<Vec<Waiting<A>>> {
        let is_turn_of_apart = self.is_turn_of_apart;
        [is_turn_of_apart, !is_turn_of_apart].into_iter().find_map(|is_apart| {
            let batch = if is_apart { self.next_apart() } else { self.next_together() };
            self.is_turn_of_apart = !is_apart;
            (!batch.is_empty()).then_some(batch)
        })
    }

    /// Takes the next questions of clients that aren't suspects. Moves questions of suspects to `apart`.
    fn next_together(&mut self) -> Vec<Waiting<A>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < self.limits.batch_max
            && let Some(id) = self.next.take().or_else(|| self.turns.next().map(|place| place.id))
            && let Some(waiting) = self.waiting.get(&id)
        {
            if self.is_suspect(&waiting.asker) {
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

    /// Takes the oldest question, if it has waited for `timeout`.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<Waiting<A>> {
        let (&id, first) = self.waiting.first_key_value()?;
        let is_late = now.saturating_duration_since(first.asked_at) >= self.limits.timeout;
        is_late.then(|| self.remove(id)).flatten()
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Waiting<A>> + use<A> {
        (self.turns, self.apart, self.next) = (FairQueue::default(), FairQueue::default(), None);
        self.by_ticket.clear();
        self.bytes = 0;
        std::mem::take(&mut self.waiting).into_values()
    }
}
