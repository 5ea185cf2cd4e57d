//! The documents that this core has encoded recently, or made a delta of. Their frames take as much memory as
//! the documents, so they are freed after a while: a feed that doesn't change keeps only its document and its
//! patches.
//!
//! A frame that is needed after that is made again. A document is therefore encoded at most once per format
//! in [`KEPT_TICKS`], however many sessions request it. Pending deliveries hold their frames themselves.

use crate::publication::Publication;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Number of ticks for which frames and deltas are kept.
const KEPT_TICKS: u32 = 10;
/// Maximum number of documents. Above it, the frames of the oldest one are freed early.
const DOCUMENTS_MAX: usize = 4096;

/// Documents with frames; see the module's documentation.
pub(crate) struct RecentEncodings<F> {
    ticks: u32,
    /// Documents with the tick of their encoding, oldest first.
    documents: VecDeque<(u32, Weak<Publication<F>>)>,
}

impl<F> Default for RecentEncodings<F> {
    fn default() -> Self {
        Self { ticks: 0, documents: VecDeque::new() }
    }
}

impl<F> RecentEncodings<F> {
    /// Adds a document that this core has encoded, or made a delta of.
    pub(crate) fn add(&mut self, document: &Arc<Publication<F>>) {
        let newest = self.documents.back();
        if newest.is_some_and(|(_, newest)| std::ptr::eq(newest.as_ptr(), Arc::as_ptr(document))) {
            return;
        }
        if self.documents.len() >= DOCUMENTS_MAX {
            self.forget_oldest();
        }
        self.documents.push_back((self.ticks, Arc::downgrade(document)));
    }

    /// Starts a tick: frees frames and deltas that are old enough.
    pub(crate) fn handle_tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        let ticks = self.ticks;
        while self.documents.front().is_some_and(|(made, _)| ticks.wrapping_sub(*made) > KEPT_TICKS) {
            self.forget_oldest();
        }
        if self.documents.is_empty() {
            self.documents = VecDeque::new();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(document) = self.documents.pop_front().and_then(|(_, document)| document.upgrade()) {
            document.forget_encodings();
        }
    }
}
