//! Epochs that this node has seen replaced. An engine that returns to a former primary also returns to its epochs,
//! whose messages clients already have.

use std::collections::{HashSet, VecDeque};
use stentor_hub::Epoch;

/// Maximum number of epochs that a node remembers: 1.5 MB. The oldest is forgotten first.
const REPLACED_EPOCHS_MAX: usize = 65_536;
/// Memory for an epoch, in both tables.
const EPOCH_BYTES: usize = 24;

#[derive(Default)]
pub(crate) struct Replaced {
    epochs: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Replaced {
    pub(crate) fn add(&mut self, Epoch(epoch): Epoch) {
        if self.epochs.insert(epoch) {
            self.order.push_back(epoch);
        }
        if self.order.len() > REPLACED_EPOCHS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.epochs.remove(&oldest);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.order.len() * EPOCH_BYTES
    }

    pub(crate) fn contains(&self, Epoch(epoch): Epoch) -> bool {
        self.epochs.contains(&epoch)
    }

    /// Accepts an epoch again.
    pub(crate) fn remove(&mut self, Epoch(epoch): Epoch) {
        if self.epochs.remove(&epoch) {
            self.order.retain(|other| *other != epoch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut replaced = Replaced::default();
        (0..=REPLACED_EPOCHS_MAX as u64).for_each(|epoch| replaced.add(Epoch(epoch)));
        replaced.remove(Epoch(2));
        replaced.add(Epoch(REPLACED_EPOCHS_MAX as u64));
        let known = [0, 1, 2, 3].map(|epoch| replaced.contains(Epoch(epoch)));
        assert_eq!(known, [false, true, false, true]);
        assert_eq!(replaced.held_bytes(), (REPLACED_EPOCHS_MAX - 1) * EPOCH_BYTES);
    }
}
