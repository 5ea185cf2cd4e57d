//! The publications that sessions of one shard are owed: each is here once, however many wait for it.
//!
//! Sessions name them by a number. So a delivery counts references in this shard's own memory: cores that
//! fan the same publication out at the same time don't fight for its cache line, and what waits takes
//! 12 bytes in an outbox. Each frame that is needed is looked up (or made) once per shard.
//!
//! **Invariant.** `holders` is the number of places that name the publication: entries of outboxes, newest
//! documents and states of subscriptions, the fan-out at work, and a document for its other forms. At 0 it goes.

use crate::publication::{Body, Encoded, FormatId, Publication, SnapshotReason};
use crate::session::Encoder;
use crate::subscription::{FAR, UNKNOWN};
use slab::Slab;
use smallvec::SmallVec;
use std::sync::Arc;

/// An empty shelf gives its memory back if it once held more than so many publications.
const IDLE_MAX: usize = 1024;

/// Names a publication on the shelf, for as long as somebody holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shelved(u32);

impl Shelved {
    /// Names nothing.
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    #[cfg(test)]
    pub(crate) fn for_test(n: u32) -> Self {
        Self(n)
    }
}

struct Item<F> {
    publication: Arc<Publication<F>>,
    holders: u32,
    is_state: bool,
    is_document: bool,
    is_recoverable: bool,
    /// Other ways to say the same as this document.
    forms: SmallVec<[(Form, Shelved); 1]>,
    frames: SmallVec<[(FormatId, Option<Made<F>>); 2]>,
}

/// How a document is said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// By what changed since so many versions ago.
    Delta(u16),
    /// Whole, and why.
    Explained(SnapshotReason),
}

struct Made<F> {
    frame: F,
    bytes: u32,
}

/// Another core is making a frame.
#[derive(Debug)]
pub(crate) struct Elsewhere;

/// Bytes as outboxes count them.
fn counted(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).max(1)
}

pub(crate) struct Shelf<E: Encoder> {
    encoder: E,
    items: Slab<Item<E::Frame>>,
}

impl<E: Encoder> Shelf<E> {
    pub(crate) fn new(encoder: E) -> Self {
        Self { encoder, items: Slab::new() }
    }

    /// The size of the shelf without the publications and frames.
    pub(crate) fn bytes_held(&self) -> usize {
        self.items.capacity() * size_of::<Item<E::Frame>>()
    }

    /// Puts a publication here, held once.
    pub(crate) fn put(&mut self, publication: &Arc<Publication<E::Frame>>) -> Shelved {
        let is_state = matches!(publication.body(), Body::State { .. });
        let is_document = matches!(publication.body(), Body::Snapshot { .. });
        let is_recoverable = publication.is_recoverable();
        let publication = publication.clone();
        let (forms, frames) = (SmallVec::new(), SmallVec::new());
        let item = Item { publication, holders: 1, is_state, is_document, is_recoverable, forms, frames };
        Shelved(self.items.insert(item) as u32)
    }

    pub(crate) fn hold(&mut self, shelved: Shelved) {
        self.items[shelved.0 as usize].holders += 1;
    }

    pub(crate) fn release(&mut self, shelved: Shelved) {
        let item = &mut self.items[shelved.0 as usize];
        item.holders -= 1;
        if item.holders == 0 {
            let item = self.items.remove(shelved.0 as usize);
            for (_, form) in item.forms {
                self.release(form);
            }
            if self.items.is_empty() && self.items.capacity() > IDLE_MAX {
                self.items = Slab::new();
            }
        }
    }

    /// Whether it is a change of state, which a newer document makes meaningless.
    pub(crate) fn is_state(&self, shelved: Shelved) -> bool {
        self.items[shelved.0 as usize].is_state
    }

    /// Whether it is a whole document.
    pub(crate) fn is_document(&self, shelved: Shelved) -> bool {
        self.items[shelved.0 as usize].is_document
    }

    /// What says the same as a document to a session that has what was the newest `behind` versions before: the
    /// document itself, or the delta that it holds; where `resumes`, and it isn't a delta, with the reason. Its
    /// frame is made, if the format can say it.
    pub(crate) fn form(
        &mut self,
        document: Shelved,
        behind: u16,
        resumes: bool,
        format: FormatId,
    ) -> Shelved {
        let mut form = None;
        if (1..FAR).contains(&behind) {
            form = self.form_of(document, Form::Delta(behind));
        }
        if form.is_none() && resumes {
            let why = if behind == UNKNOWN { SnapshotReason::Epoch } else { SnapshotReason::History };
            form = self.form_of(document, Form::Explained(why));
        }
        match form {
            Some(form) if self.bytes(form, format).is_some() => form,
            _ => {
                self.bytes(document, format);
                document
            }
        }
    }

    /// A document in another form, if there is one.
    fn form_of(&mut self, document: Shelved, form: Form) -> Option<Shelved> {
        let item = &self.items[document.0 as usize];
        if let Some((_, shelved)) = item.forms.iter().find(|(of, _)| *of == form) {
            return Some(*shelved);
        }
        let publication = match form {
            Form::Delta(behind) => item.publication.patched(behind)?,
            Form::Explained(why) => item.publication.explained(why)?.clone(),
        };
        let shelved = self.put(&publication);
        self.items[document.0 as usize].forms.push((form, shelved));
        Some(shelved)
    }

    /// Whether sessions that come back may get it.
    pub(crate) fn is_recoverable(&self, shelved: Shelved) -> bool {
        self.items[shelved.0 as usize].is_recoverable
    }

    /// Bytes of its frame in `format`, `None` where the format has no way to say it. Nothing counts as less than 1,
    /// so that a limit of bytes bounds the number of frames too, or as more than 4 GiB. For a frame that another core
    /// is making, the size of its body.
    pub(crate) fn bytes(&mut self, shelved: Shelved, format: FormatId) -> Option<u32> {
        let item = &self.items[shelved.0 as usize];
        if let Some((_, made)) = item.frames.iter().find(|(f, _)| *f == format) {
            return made.as_ref().map(|made| made.bytes);
        }
        let body_bytes = counted(item.publication.body().len());
        self.make(shelved, format).unwrap_or(Some(body_bytes))
    }

    /// The same, also if another core is making the frame: then this core makes one for itself.
    pub(crate) fn bytes_now(&mut self, shelved: Shelved, format: FormatId) -> Option<u32> {
        self.make(shelved, format).unwrap_or_else(|Elsewhere| {
            let frame = self.encoder.encode(format, &self.items[shelved.0 as usize].publication);
            self.keep(shelved, format, frame)
        })
    }

    /// Makes the frame unless it exists. Returns its size, or that another core is making it.
    pub(crate) fn make(&mut self, shelved: Shelved, format: FormatId) -> Result<Option<u32>, Elsewhere> {
        let item = &self.items[shelved.0 as usize];
        if let Some((_, made)) = item.frames.iter().find(|(f, _)| *f == format) {
            return Ok(made.as_ref().map(|made| made.bytes));
        }
        let encode = |publication: &Publication<E::Frame>| self.encoder.encode(format, publication);
        let frame = match item.publication.encoded(format, encode) {
            Encoded::Shared(frame) => frame.map(E::per_core),
            Encoded::Own(frame) => frame,
            Encoded::InProgress => return Err(Elsewhere),
        };
        Ok(self.keep(shelved, format, frame))
    }

    fn keep(&mut self, shelved: Shelved, format: FormatId, frame: Option<E::Frame>) -> Option<u32> {
        let made = frame.map(|frame| Made { bytes: counted(E::len(&frame)), frame });
        let bytes = made.as_ref().map(|made| made.bytes);
        self.items[shelved.0 as usize].frames.push((format, made));
        bytes
    }

    /// The publication itself.
    pub(crate) fn publication(&self, shelved: Shelved) -> &Arc<Publication<E::Frame>> {
        &self.items[shelved.0 as usize].publication
    }

    /// The publication, its frame in a format for which [`Shelf::bytes`] returned a size, and its length. `None`
    /// while another core is making the frame.
    #[expect(clippy::type_complexity, reason = "three references, named where they are taken")]
    pub(crate) fn frame(
        &self,
        shelved: Shelved,
        format: FormatId,
    ) -> Option<(&Arc<Publication<E::Frame>>, &E::Frame, u32)> {
        let item = &self.items[shelved.0 as usize];
        let (_, made) = item.frames.iter().find(|(f, _)| *f == format)?;
        made.as_ref().map(|made| (&item.publication, &made.frame, made.bytes))
    }
}
