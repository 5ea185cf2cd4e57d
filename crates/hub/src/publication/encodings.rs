//! The frames of one publication: one per format, made by the first core that needs it and shared by all
//! cores. And the variants of a snapshot that say why it isn't a delta.
//!
//! No core waits while another one encodes, because the lock is held only to read or store an entry. Only
//! formats in use take memory.

use super::{FormatId, Publication, SnapshotReason};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;

/// A format's frame.
enum Slot<F> {
    /// A core is making it.
    Begun,
    /// `None`: the format can't represent the publication.
    Made(Option<F>),
}

/// The result of a lookup.
pub(super) enum Lookup<F> {
    /// The shared frame.
    Made(Option<F>),
    /// The caller must make the frame and pass it to [`Encodings::set`].
    Yours,
    /// Another core is making it.
    InProgress,
}

/// Frames by format; see the module's documentation.
pub(super) struct Encodings<F>(Mutex<State<F>>);

struct State<F> {
    slots: Slots<F>,
    /// The snapshot with each [`SnapshotReason`]. Few clients need one.
    with_reason: Option<Box<Variants<F>>>,
}

/// A snapshot with each reason, by the reason's number.
type Variants<F> = [Option<Arc<Publication<F>>>; 2];

/// Most publications are encoded in one format.
type Slots<F> = SmallVec<[(FormatId, Slot<F>); 1]>;

impl<F: Clone> Encodings<F> {
    /// Looks up the frame of a format. If it is neither made nor begun, the caller must make it.
    pub(super) fn begin(&self, format: FormatId) -> Lookup<F> {
        let slots = &mut self.0.lock().slots;
        match slots.iter().find(|(of, _)| *of == format) {
            Some((_, Slot::Made(frame))) => Lookup::Made(frame.clone()),
            Some((_, Slot::Begun)) => Lookup::InProgress,
            None => {
                slots.push((format, Slot::Begun));
                Lookup::Yours
            }
        }
    }

    /// Stores the frame that [`Self::begin`] asked the caller to make.
    pub(super) fn set(&self, format: FormatId, frame: Option<F>) {
        if let Some((_, slot)) = self.0.lock().slots.iter_mut().find(|(of, _)| *of == format) {
            *slot = Slot::Made(frame);
        }
    }
}

impl<F> Encodings<F> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { slots: SmallVec::new(), with_reason: None }))
    }

    /// Returns the snapshot with this reason. `make` makes it when it is first needed.
    pub(super) fn with_reason(
        &self,
        reason: SnapshotReason,
        make: impl FnOnce() -> Arc<Publication<F>>,
    ) -> Arc<Publication<F>> {
        let mut state = self.0.lock();
        let variants = state.with_reason.get_or_insert_default();
        variants[reason as usize].get_or_insert_with(make).clone()
    }

    /// Returns `true` if a core is making the frame.
    pub(super) fn is_begun(&self, format: FormatId) -> bool {
        self.0.lock().slots.iter().any(|(of, slot)| *of == format && matches!(slot, Slot::Begun))
    }

    /// Drops the frames, except those that a core is making.
    pub(super) fn forget(&self) {
        let mut state = self.0.lock();
        let all = std::mem::take(&mut state.slots);
        let (begun, made): (Slots<F>, Slots<F>) =
            all.into_iter().partition(|(_, slot)| matches!(slot, Slot::Begun));
        state.slots = begun;
        // Frames are freed after the lock is released: the kernel takes time to free large ones.
        drop(state);
        drop(made);
    }
}
