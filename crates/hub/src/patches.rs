//! The accounts of the patches that a home core keeps for its feeds.
//!
//! The patches themselves belong to the newest version of each feed (see [`crate::publication`]), shared by all
//! cores. A feed keeps at most as many bytes of patches as its document has, because longer ones are never sent.
//! All feeds of a core together keep at most [`PatchLimits::bytes_max`]. Above that, all patches of one feed are
//! evicted: the feed whose last new version is the oldest, unless its patches were sent since the last check.

use std::collections::{BTreeMap, BTreeSet};

/// Patches kept for sessions that are more than one version behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Maximum number of patches per feed.
    pub patches_max: usize,
    /// Maximum size for all feeds of a home core, in bytes.
    pub bytes_max: usize,
}

impl Default for PatchLimits {
    /// Returns 100 patches and 16 MiB.
    fn default() -> Self {
        Self { patches_max: 100, bytes_max: 16 << 20 }
    }
}

/// The patches that a core keeps, and the forms in which its sessions took documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Number of patches kept for the feeds of this home core.
    pub patches: usize,
    /// Size of these patches in bytes.
    pub patch_bytes: usize,
    /// Number of patches evicted for [`PatchLimits::bytes_max`], or because the process was out of memory.
    pub patches_evicted: u64,
    /// Number of complete documents in deliveries.
    pub snapshots: u64,
    /// Number of patches from the previous version in deliveries.
    pub deltas: u64,
    /// Number of patches from an older version in deliveries.
    pub joined: u64,
}

#[derive(Clone, Copy, Default)]
struct Account {
    last_use: u64,
    patches: usize,
    bytes: usize,
}

/// The patch accounts of one core.
pub(crate) struct Patches {
    pub(crate) limits: PatchLimits,
    /// Accounts by topic, only of topics with patches.
    accounts: BTreeMap<u32, Account>,
    by_use: BTreeSet<(u64, u32)>,
    uses: u64,
    patches: usize,
    bytes: usize,
    evicted: u64,
}

impl Patches {
    pub(crate) fn new(limits: PatchLimits) -> Self {
        let (accounts, by_use) = (BTreeMap::new(), BTreeSet::new());
        Self { limits, accounts, by_use, uses: 0, patches: 0, bytes: 0, evicted: 0 }
    }

    /// Sets the number of a topic's patches, and marks it as used.
    pub(crate) fn set(&mut self, topic: u32, patches: usize, bytes: usize) {
        if let Some(old) = self.accounts.remove(&topic) {
            self.by_use.remove(&(old.last_use, topic));
            self.patches -= old.patches;
            self.bytes -= old.bytes;
        }
        if patches > 0 {
            self.uses += 1;
            self.accounts.insert(topic, Account { last_use: self.uses, patches, bytes });
            self.by_use.insert((self.uses, topic));
            self.patches += patches;
            self.bytes += bytes;
        }
    }

    /// Marks a topic as used.
    pub(crate) fn touch(&mut self, topic: u32) {
        if let Some(account) = self.accounts.get(&topic).copied() {
            self.set(topic, account.patches, account.bytes);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes > self.limits.bytes_max
    }

    /// Returns the least recently used topic.
    pub(crate) fn stalest(&self) -> Option<u32> {
        self.by_use.first().map(|(_, topic)| *topic)
    }

    /// Removes the account of a topic. Returns its bytes.
    pub(crate) fn evict(&mut self, topic: u32) -> usize {
        let (patches, bytes) = (self.patches, self.bytes);
        self.set(topic, 0, 0);
        self.evicted += (patches - self.patches) as u64;
        bytes - self.bytes
    }

    /// Returns `taken` with the numbers of the kept and evicted patches.
    pub(crate) fn figures(&self, taken: FeedStats) -> FeedStats {
        let (patches, patch_bytes, patches_evicted) = (self.patches, self.bytes, self.evicted);
        FeedStats { patches, patch_bytes, patches_evicted, ..taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accounts_add_up() {
        let mut patches = Patches::new(PatchLimits { patches_max: 9, bytes_max: 100 });
        patches.set(1, 2, 50);
        patches.set(2, 1, 50);
        assert!(!patches.is_over());
        patches.set(1, 3, 60);
        assert_eq!((patches.is_over(), patches.stalest()), (true, Some(2)));
        patches.touch(2);
        assert_eq!(patches.stalest(), Some(1));
        patches.touch(7);
        assert_eq!(patches.evict(1), 60);
        assert_eq!((patches.is_over(), patches.stalest()), (false, Some(2)));
        let figures = FeedStats { patches: 1, patch_bytes: 50, patches_evicted: 3, ..FeedStats::default() };
        assert_eq!(patches.figures(FeedStats::default()), figures);
        patches.set(2, 0, 0);
        assert_eq!((patches.stalest(), patches.evict(2), patches.bytes), (None, 0, 0));
    }
}
