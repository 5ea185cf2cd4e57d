//! The sources of sessions, and the times at which the sessions opened. Stored apart from the data that a
//! fan-out touches.

use crate::chunks::Chunks;

/// Sources (0 if unknown) and times in the caller's unit, by index of the session. A closed session has source 0.
#[derive(Default)]
pub(crate) struct Sources {
    sources: Chunks<u64>,
    opened_at: Chunks<u32>,
}

impl Sources {
    /// Size per session in bytes.
    pub(crate) const BYTES: usize = size_of::<u64>() + size_of::<u32>();

    /// Adds the session with the next index.
    pub(crate) fn push(&mut self) {
        self.sources.push(0);
        self.opened_at.push(0);
    }

    /// Sets the source of a session, and the time at which it opened. Both are 0 for a session that closes.
    pub(crate) fn set(&mut self, index: u32, source: u64, opened_at: u32) {
        self.sources[index as usize] = source;
        self.opened_at[index as usize] = opened_at;
    }

    /// Returns the source of a session, and the time at which it opened.
    pub(crate) fn of(&self, index: u32) -> (u64, u32) {
        (self.sources[index as usize], self.opened_at[index as usize])
    }

    /// Returns the source of more than half of the sessions and its share in percent, estimated from a
    /// sample.
    pub(crate) fn majority(&self, samples_max: usize) -> Option<(u64, u8)> {
        let step = self.sources.len().div_ceil(samples_max.max(1)).max(1);
        let sample = || {
            let slots = (0..self.sources.len()).step_by(step);
            slots.map(|at| self.sources[at]).filter(|source| *source != 0)
        };
        // Boyer and Moore's majority vote: if any source has more than half, it is the last candidate.
        let (mut candidate, mut lead) = (0, 0_usize);
        for source in sample() {
            if lead == 0 {
                candidate = source;
            }
            lead = if source == candidate { lead + 1 } else { lead - 1 };
        }
        let (of_it, all) = sample().fold((0_usize, 0_usize), |(of_it, all), source| {
            (of_it + usize::from(source == candidate), all + 1)
        });
        (of_it * 2 > all).then(|| (candidate, (of_it * 100 / all) as u8))
    }
}
