//! A cache of answers with a `ttl`. At the maximum number of answers, the oldest one is evicted.

use super::charged::Held;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use stentor_ports::Denial;

/// Approximate size of an answer without its key, in bytes.
const ANSWER_BYTES: usize = 256;

type Decided = Result<(), Denial>;

/// The cached answers (see the module's documentation).
#[derive(Debug)]
pub(super) struct Cache {
    /// For each key: the time at which the answer expires, its number in `order`, and the answer.
    answers: HashMap<Box<str>, (Instant, u64, Decided)>,
    /// Keys in insertion order, with their numbers. A key that was inserted again has an old and a new entry.
    order: VecDeque<(Box<str>, u64)>,
    /// Approximate size of all answers in bytes.
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

    /// Returns `true` if the first entry of `order` is obsolete: its answer has expired or was inserted
    /// again.
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

impl Held for Cache {
    fn held_bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the approximate size of an answer in bytes. Its key is stored twice.
fn bytes_of(key: &str) -> usize {
    ANSWER_BYTES + 2 * key.len()
}
