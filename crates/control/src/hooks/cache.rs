//! Answers that are kept because the backend gave them a `ttl`: a bounded number, the oldest evicted first.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_ports::Denial;

/// Approximate size of an answer besides its key.
const ANSWER_BYTES: usize = 256;

type Decided = Result<(), Denial>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Cache {
    /// Until when each answer holds, and in which place of `order` it was put.
    answers: HashMap<Box<str>, (Instant, u64, Decided)>,
    /// Keys in the order in which they were put, with their numbers. Those that were put again are there twice.
    order: VecDeque<(Box<str>, u64)>,
    /// Approximate size of everything.
    bytes: usize,
    last: u64,
    answers_max: usize,
}

impl Cache {
    pub(super) fn new(answers_max: usize) -> Self {
        Self { answers: HashMap::new(), order: VecDeque::new(), bytes: 0, last: 0, answers_max }
    }

    pub(super) fn find(&self, now: Instant, key: &str) -> Option<Decided> {
        let (until, _, decided) = self.answers.get(key)?;
        (now < *until).then(|| decided.clone())
    }

    pub(super) fn put(&mut self, now: Instant, key: Box<str>, ttl: Duration, decided: Decided) {
        if self.answers_max == 0 {
            return;
        }
        self.last += 1;
        self.answers.insert(key.clone(), (now + ttl, self.last, decided));
        self.bytes += bytes_of(&key);
        self.order.push_back((key, self.last));
        while (self.order.len() > self.answers_max || self.is_front_old(now))
            && let Some((key, number)) = self.order.pop_front()
        {
            self.bytes -= bytes_of(&key);
            if self.answers.get(&key).is_some_and(|(_, newest, _)| *newest == number) {
                self.answers.remove(&key);
            }
        }
    }

    /// Approximate size of everything.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the oldest answer is over or was put again.
    fn is_front_old(&self, now: Instant) -> bool {
        self.order.front().is_some_and(|(key, number)| {
            self.answers.get(key).is_none_or(|(until, newest, _)| newest != number || *until <= now)
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.bytes, self.order.iter().map(|(key, _)| bytes_of(key)).sum::<usize>());
        assert!(self.answers.len() <= self.order.len());
        self.order.len()
    }
}

/// Approximate size of an answer: its key is there twice.
fn bytes_of(key: &str) -> usize {
    ANSWER_BYTES + 2 * key.len()
}
