//! The frames of one publication: one per format, made by the first core that needs it and shared by all
//! cores.
//!
//! No core waits while another one encodes, because the lock is held only to read or store an entry. Only
//! formats in use take memory.

use super::FormatId;
use parking_lot::Mutex;
use smallvec::SmallVec;

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
pub(super) struct Encodings<F>(Mutex<Slots<F>>);

/// Most publications are encoded in one format.
type Slots<F> = SmallVec<[(FormatId, Slot<F>); 1]>;

impl<F: Clone> Encodings<F> {
    /// Looks up the frame of a format. If it is neither made nor begun, the caller must make it.
    pub(super) fn begin(&self, format: FormatId) -> Lookup<F> {
        let mut slots = self.0.lock();
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
        if let Some((_, slot)) = self.0.lock().iter_mut().find(|(of, _)| *of == format) {
            *slot = Slot::Made(frame);
        }
    }
}

impl<F> Encodings<F> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(SmallVec::new()))
    }

    /// Returns `true` if a core is making the frame.
    pub(super) fn is_begun(&self, format: FormatId) -> bool {
        self.0.lock().iter().any(|(of, slot)| *of == format && matches!(slot, Slot::Begun))
    }

    /// Drops the frames, except those that a core is making.
    pub(super) fn forget(&self) {
        let mut slots = self.0.lock();
        let all = std::mem::take(&mut *slots);
        let (begun, made): (Slots<F>, Slots<F>) =
            all.into_iter().partition(|(_, slot)| matches!(slot, Slot::Begun));
        *slots = begun;
        // Frames are freed after the lock is released: the kernel takes time to free large ones.
        drop(slots);
        drop(made);
    }
}
