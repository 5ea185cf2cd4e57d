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
    operations: Bytes,
    _charge: Charge,
}

impl StoredPatch {
    pub(crate) fn new(operations: Bytes, live: &LiveBytes) -> Arc<Self> {
        let charge = live.charge(size_of::<Self>() + operations.len());
        Arc::new(Self { operations, _charge: charge })
    }
}

/// Consecutive patches, oldest first.
#[derive(Clone)]
pub(crate) struct PatchHistory(Arc<[Arc<StoredPatch>]>);

impl Default for PatchHistory {
    fn default() -> Self {
        Self([].into())
    }
}

impl PatchHistory {
    /// Returns the history with one more patch, within these limits.
    pub(crate) fn and(&self, step: Arc<StoredPatch>, patches_max: usize, bytes_max: usize) -> Self {
        let mut left = bytes_max;
        let fits = |step: &&Arc<StoredPatch>| {
            let rest = left.checked_sub(step.operations.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let newest_first = std::iter::once(&step).chain(self.0.iter().rev());
        let mut kept: Vec<_> = newest_first.take(patches_max).take_while(fits).cloned().collect();
        kept.reverse();
        Self(kept.into())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|step| step.operations.len()).sum()
    }

    /// Joins the last `count` patches into one, if the history has them and the result is shorter than `len`.
    fn joined(&self, count: usize, len: usize) -> Option<Vec<u8>> {
        let from = self.0.len().checked_sub(count)?;
        let patches = self.0[from..].iter().map(|step| &step.operations[..]);
        stentor_delta::join(patches).filter(|joined| joined.len() < len)
    }
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
                forms.delta = snapshot.delta(behind, self.step.operations.clone(), 0);
            }
            return forms.delta.clone();
        }
        let past = {
            let mut rest = self.rest.lock();
            rest.used = true;
            if let Some(made) = rest.forms().made(behind) {
                return made;
            }
            rest.past.clone()
        };
        // The lock isn't held while patches are joined. If two cores join the same patches, the first result
        // is kept.
        let joined = past.joined(usize::from(behind), len);
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

    pub(crate) fn past(&self) -> PatchHistory {
        self.rest.lock().past.clone()
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
