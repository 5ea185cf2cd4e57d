//! Connections whose tokens wait for a turn of the core with time for their signatures.
//!
//! Addresses alternate: the nth waiting tokens of all addresses are verified before any (n+1)th token.

use super::Questions;
use crate::ports::SignatureWork;
use std::collections::BTreeMap;

/// The waiting tokens, by address.
#[derive(Default)]
pub(super) struct SignatureQueue {
    /// The address of each waiting question, by round and number.
    order: BTreeMap<(u64, u64), u64>,
    /// The round of each waiting question.
    rounds: BTreeMap<u64, u64>,
    /// The last round, and the number of waiting questions, of each address with waiting questions.
    sources: BTreeMap<u64, (u64, usize)>,
    /// The round of the last question that had its turn.
    round: u64,
}

impl SignatureQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn push(&mut self, source: u64, number: u64) {
        let (last, count) = self.sources.entry(source).or_insert((self.round, 0));
        *last = self.round.max(*last) + 1;
        *count += 1;
        self.order.insert((*last, number), source);
        self.rounds.insert(number, *last);
    }

    /// Removes a question, if it waits.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(round) = self.rounds.remove(&number) else { return };
        let Some(source) = self.order.remove(&(round, number)) else { return };
        if let Some((_, count)) = self.sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&source);
            }
        }
    }

    /// Returns the question whose turn it is. The question stays in the queue until it is removed.
    fn next(&mut self) -> Option<u64> {
        let (&(round, number), _) = self.order.first_key_value()?;
        self.round = round;
        Some(number)
    }
}

impl Questions {
    /// Continues with the next waiting token if this turn of the core has time left. Returns `false` if it hasn't, or no
    /// token waits.
    pub(crate) fn poll_unverified(&mut self, work: &SignatureWork) -> bool {
        let Some(number) = work.is_left().then(|| self.unverified.next()).flatten() else { return false };
        self.decide(number, Ok(()));
        true
    }

    /// Returns `true` if tokens wait for a later turn.
    pub(crate) fn has_unverified(&self) -> bool {
        !self.unverified.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each assertion lists the numbers of the questions in the order in which they are taken.
    #[test]
    fn addresses_take_turns() {
        let mut queue = SignatureQueue::default();
        let take = |queue: &mut SignatureQueue| {
            let number = queue.next();
            number.into_iter().for_each(|number| queue.remove(number));
            number
        };
        for (source, number) in [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6)] {
            queue.push(source, number);
        }
        queue.remove(5);
        queue.remove(5);
        assert_eq!([(); 3].map(|()| take(&mut queue)), [Some(1), Some(4), Some(6)]);
        // A new address waits only until the current round ends.
        queue.push(4, 7);
        queue.push(4, 8);
        assert_eq!([(); 5].map(|()| take(&mut queue)), [Some(2), Some(7), Some(3), Some(8), None]);
        assert!(queue.rounds.is_empty() && queue.sources.is_empty());
    }
}
