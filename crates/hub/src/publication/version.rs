//! The shorter forms of a document's version: patches, for sessions that have an earlier version.
//!
//! A snapshot's publication carries the patches, so that all cores make each form once: the patch from the
//! previous version, and joined patches for sessions that are further behind. A form that would be as long as
//! the document isn't made.
//!
//! **Bounds.** Stored patches are bounded by [`PatchLimits`](crate::PatchLimits). Joined patches live as long
//! as their version is the newest or in flight. There are at most [`JOINS_MAX`], together no longer than the
//! document. For other lags, sessions receive the document, which all of them share.

use super::Publication;
use crate::budget::{Charge, LiveBytes};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum number of joined patches of one version.
const JOINS_MAX: usize = 32;

/// A patch that leads to a document from the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The bytes of the document to which it applies.
    pub base: Bytes,
    /// A JSON Patch like [`Delta::Patch`](stentor_delta::Delta::Patch): an array without surrounding white
    /// space, with the operations replace, move, add and remove. Shorter than the new document.
    pub operations: Bytes,
}

/// One stored patch.
pub(crate) struct StoredPatch {
    /// Smaller than `Bytes`, which also allocates a counter: a feed may have a hundred patches.
    operations: Box<[u8]>,
    _charge: Charge,
}

impl StoredPatch {
    pub(crate) fn new(operations: &[u8], live: &LiveBytes) -> Arc<Self> {
        let charge = live.charge(size_of::<Self>() + operations.len());
        Arc::new(Self { operations: operations.into(), _charge: charge })
    }
}

/// A stored patch as the owner of the bytes of a delta.
struct Operations(Arc<StoredPatch>);

impl AsRef<[u8]> for Operations {
    fn as_ref(&self) -> &[u8] {
        &self.0.operations
    }
}

/// Consecutive patches, oldest first.
#[derive(Clone, Default)]
pub(crate) struct PatchHistory {
    patches: Vec<Arc<StoredPatch>>,
    /// Size of all patches.
    bytes: usize,
}

impl PatchHistory {
    /// Adds a patch, and removes the oldest patches above these limits.
    pub(crate) fn push(&mut self, step: Arc<StoredPatch>, patches_max: usize, bytes_max: usize) {
        let len = self.patches.len();
        if len == self.patches.capacity() {
            // Spare memory is kept as long as the version.
            self.patches.reserve_exact(1 + len / 4);
        }
        self.bytes += step.operations.len();
        self.patches.push(step);
        let mut removed = 0;
        while let Some(oldest) = self.patches.get(removed)
            && (self.patches.len() - removed > patches_max || self.bytes > bytes_max)
        {
            self.bytes -= oldest.operations.len();
            removed += 1;
        }
        self.patches.drain(..removed);
    }

    /// Returns the last `count` patches, if the history has them.
    fn last(&self, count: usize) -> Option<Vec<Arc<StoredPatch>>> {
        let from = self.patches.len().checked_sub(count)?;
        Some(self.patches[from..].to_vec())
    }
}

/// Joins consecutive patches into one, if the result is shorter than `len`.
fn joined(patches: &[Arc<StoredPatch>], len: usize) -> Option<Vec<u8>> {
    let operations = patches.iter().map(|step| &step.operations[..]);
    stentor_delta::join(operations).filter(|joined| joined.len() < len)
}

/// The patches of a version, carried by its publication.
pub(crate) struct Version<F> {
    /// The patch from the previous version.
    step: Arc<StoredPatch>,
    rest: Mutex<Rest<F>>,
}

struct Rest<F> {
    /// The patches that lead to this version. The last one leads from the previous version.
    past: PatchHistory,
    /// The forms that were made. `None` after they were dropped, so that an idle version takes little memory.
    forms: Option<Box<Forms<F>>>,
    /// `true` if stored patches were joined since the last check.
    used: bool,
}

struct Forms<F> {
    /// The delta from the previous version.
    delta: Option<Arc<Publication<F>>>,
    /// Joined patches by their count; `None` if the joined patch would be too long.
    joins: Vec<(u16, Option<Arc<Publication<F>>>)>,
    joined_bytes: usize,
}

impl<F> Default for Forms<F> {
    fn default() -> Self {
        Self { delta: None, joins: Vec::new(), joined_bytes: 0 }
    }
}

impl<F> Rest<F> {
    fn forms(&mut self) -> &mut Forms<F> {
        self.forms.get_or_insert_default()
    }
}

impl<F> Forms<F> {
    /// Returns the joined form of this many patches. `None` if the form isn't made yet and another form may
    /// be made.
    fn made(&self, behind: u16) -> Option<Option<Arc<Publication<F>>>> {
        let found = self.joins.iter().find(|(of, _)| *of == behind).map(|(_, made)| made.clone());
        found.or_else(|| (self.joins.len() >= JOINS_MAX).then_some(None))
    }
}

impl<F> Version<F> {
    pub(crate) fn new(step: Arc<StoredPatch>, past: PatchHistory) -> Self {
        Self { step, rest: Mutex::new(Rest { past, forms: None, used: false }) }
    }

    /// Returns the delta for sessions that are `behind` versions behind this version, which `snapshot`
    /// publishes.
    pub(crate) fn delta_from(&self, behind: u16, snapshot: &Publication<F>) -> Option<Arc<Publication<F>>> {
        let len = snapshot.body().len();
        if behind == 1 {
            let mut rest = self.rest.lock();
            let forms = rest.forms();
            if forms.delta.is_none() {
                // The patch history has already counted the patch's bytes.
                let patch = Bytes::from_owner(Operations(self.step.clone()));
                forms.delta = snapshot.delta(behind, patch, 0);
            }
            return forms.delta.clone();
        }
        let patches = {
            let mut rest = self.rest.lock();
            rest.used = true;
            if let Some(made) = rest.forms().made(behind) {
                return made;
            }
            rest.past.last(usize::from(behind))
        };
        // The lock isn't held while patches are joined. If two cores join the same patches, the first result
        // is kept.
        let joined = patches.and_then(|patches| joined(&patches, len));
        let mut rest = self.rest.lock();
        let forms = rest.forms();
        if let Some(made) = forms.made(behind) {
            return made;
        }
        let joined = joined.filter(|joined| forms.joined_bytes + joined.len() <= len);
        let made = joined.and_then(|joined| {
            let bytes = joined.len();
            snapshot.delta(behind, joined.into(), bytes)
        });
        forms.joined_bytes += made.as_ref().map_or(0, |made| made.body().len());
        forms.joins.push((behind, made.clone()));
        made
    }

    /// Returns the patches for the next version. If `is_unused`, they are moved: no session takes this version any more.
    pub(crate) fn past_for_next(&self, is_unused: bool) -> PatchHistory {
        let past = &mut self.rest.lock().past;
        if is_unused { std::mem::take(past) } else { past.clone() }
    }

    /// Returns the number of stored patches, and their size in bytes.
    pub(crate) fn past_size(&self) -> (usize, usize) {
        let past = &self.rest.lock().past;
        (past.patches.len(), past.bytes)
    }

    /// Returns `true` if stored patches were joined since the last call.
    pub(crate) fn was_used(&self) -> bool {
        std::mem::take(&mut self.rest.lock().used)
    }

    /// Drops the forms that were made.
    pub(super) fn forget_forms(&self) {
        self.rest.lock().forms = None;
    }

    /// Drops the patches.
    pub(crate) fn forget_past(&self) {
        self.rest.lock().past = PatchHistory::default();
    }
}

#[cfg(test)]
mod tests;
