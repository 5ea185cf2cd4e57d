//! Open questions by address. When too many are open, a question of the address with the most open questions is refused.

use super::Questions;
use std::collections::{BTreeMap, BTreeSet};

/// Open questions whose client's address is known.
#[derive(Default)]
pub(super) struct Shares {
    /// The address of each question.
    sources: BTreeMap<u64, u64>,
    /// The questions of each address.
    numbers: BTreeMap<u64, BTreeSet<u64>>,
    by_len: BTreeSet<(usize, u64)>,
}

impl Shares {
    fn len_of(&self, source: u64) -> usize {
        self.numbers.get(&source).map_or(0, BTreeSet::len)
    }

    /// Updates `by_len` after the questions of an address have changed. `before` is the previous number of questions.
    fn changed(&mut self, source: u64, before: usize) {
        self.by_len.remove(&(before, source));
        match self.len_of(source) {
            0 => _ = self.numbers.remove(&source),
            now => _ = self.by_len.insert((now, source)),
        }
    }

    pub(super) fn insert(&mut self, source: u64, number: u64) {
        let before = self.len_of(source);
        self.sources.insert(number, source);
        self.numbers.entry(source).or_default().insert(number);
        self.changed(source, before);
    }

    /// Removes a question, if it exists.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(source) = self.sources.remove(&number) else { return };
        let before = self.len_of(source);
        self.numbers.get_mut(&source).map(|numbers| numbers.remove(&number));
        self.changed(source, before);
    }

    /// The newest question of the address with the most open questions, if it has more than `len` of them.
    fn last_of_longest(&self, len: usize) -> Option<u64> {
        let (longest, source) = self.by_len.last()?;
        self.numbers.get(source)?.last().copied().filter(|_| *longest > len)
    }
}

impl Questions {
    /// Makes room for a question of an address (`None` if it is unknown). If too many questions are open, refuses the
    /// newest question of the address with the most open questions. Returns `false` if the new question's address would
    /// have as many.
    pub(super) fn make_room(&mut self, source: Option<u64>) -> bool {
        if self.has_room() {
            return true;
        }
        let len = 1 + source.map_or(0, |source| self.shares.len_of(source));
        let Some(number) = self.shares.last_of_longest(len) else { return false };
        self.unanswered += 1;
        self.refuse_open(number);
        self.has_room()
    }
}
