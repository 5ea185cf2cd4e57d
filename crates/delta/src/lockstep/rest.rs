//! The text after the last difference, which is equal in both versions. Reading it can only show that an array
//! or object, still open, was compared wrongly: by a later member of the same name, or because the array is
//! too short for its changes. If that is impossible, the comparison ends early.

use super::close::{COMPARED_NAMES_MAX, Members};
use super::{Lockstep, Unsure, name};
use crate::write::REPLACE_BYTES;
use memchr::{memchr, memmem};

/// Maximum number of attempts to skip the rest. Each one may search the rest for names.
const ATTEMPTS_MAX: usize = 4;

/// The attempts to skip the rest of a document. Another one makes sense when fewer arrays and objects are open.
pub(super) struct Attempts {
    left: usize,
    /// Number of open arrays and objects at the last attempt.
    depth: usize,
}

impl Attempts {
    /// `is_rest` is `true` if no further difference follows. Otherwise no attempt is due.
    pub(super) fn new(is_rest: bool) -> Self {
        Self { left: if is_rest { ATTEMPTS_MAX } else { 0 }, depth: usize::MAX }
    }

    fn is_due(&self, depth: usize) -> bool {
        self.left > 0 && depth < self.depth
    }
}

/// Returns the number of equal bytes at the start of both texts.
pub(super) fn common_prefix(old: &[u8], new: &[u8]) -> usize {
    let mut equal = 0;
    // Slices are compared by the C library, which takes less than an instruction per byte.
    for step in [1024, 128, 16, 1] {
        let chunks = old[equal..].chunks_exact(step).zip(new[equal..].chunks_exact(step));
        equal += step * chunks.take_while(|(old, new)| old == new).count();
    }
    equal
}

impl Lockstep<'_> {
    /// Ends the comparison if an attempt is due, and the rest of both texts (from `at` of the old one on) can't
    /// change the patch. Returns `true` if the comparison has ended.
    pub(super) fn skip_rest(&mut self, at: usize, attempts: &mut Attempts) -> Result<bool, Unsure> {
        if !attempts.is_due(self.frames.len()) {
            return Ok(false);
        }
        attempts.left -= 1;
        attempts.depth = self.frames.len();
        let mut names_max = COMPARED_NAMES_MAX;
        for depth in (0..self.frames.len()).rev() {
            if !self.is_decided(depth, at, &mut names_max)? {
                return Ok(false);
            }
        }
        self.frames.clear();
        (self.at, self.new_at) = (self.old.len(), self.new.len());
        self.after_value = true;
        Ok(true)
    }

    /// Returns `true` if the text after `at` can't change what was found in the array or object at this depth.
    /// The text is searched for at most `names_max` names, which are subtracted.
    #[cold]
    fn is_decided(&self, depth: usize, at: usize, names_max: &mut usize) -> Result<bool, Unsure> {
        let mut frame = self.frames[depth];
        let patch_bytes = self.writer.len() - frame.written;
        if patch_bytes == 0 {
            return Ok(true);
        }
        // A longer patch may be replaced by the complete value, depending on the length of that value.
        if patch_bytes > REPLACE_BYTES + self.in_new(at) - frame.new_start {
            return Ok(false);
        }
        let inner = self.frames.get(depth + 1);
        let is_part_changed = inner.is_some_and(|inner| self.writer.len() > inner.written);
        let others = &self.commas[frame.commas..inner.map_or(self.commas.len(), |inner| inner.commas)];
        if !frame.is_object {
            if is_part_changed {
                frame.mark_changed(others.len(), false);
            }
            return Ok(frame.is_in_place(at, others.len() + 1));
        }
        let members = frame.members..inner.map_or(self.members.len(), |inner| inner.members);
        let mut changed = self.members[members].to_vec();
        if is_part_changed {
            changed.push(others.last().copied().unwrap_or(frame.start as u32));
        }
        let Some(left) = names_max.checked_sub(changed.len()) else { return Ok(false) };
        *names_max = left;
        let (old, rest) = (self.old, &self.old[at..]);
        // A name with escapes may be equal to one without.
        if memchr(b'\\', rest).is_some() {
            return Ok(false);
        }
        for place in &changed {
            let (name, colon) = name(old, *place as usize)?;
            let with_quotes_and_colon = old.get(colon - name.len() - 2..=colon).ok_or(Unsure::Other)?;
            if memmem::find(rest, with_quotes_and_colon).is_some() {
                return Ok(false);
            }
        }
        self.has_unique_names(Members { first: frame.start, others, changed: &changed })
    }
}
