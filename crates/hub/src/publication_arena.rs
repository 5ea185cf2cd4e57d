//! The pending publications of one shard: each is stored once, however many sessions wait for it.
//!
//! Sessions refer to them by number. A delivery therefore counts references in this shard's own memory: cores
//! that fan out the same publication at the same time don't compete for its cache line, and a pending
//! delivery takes 12 bytes in an outbox. Each frame is looked up or made once per shard.
//!
//! **Invariant.** `references` is the number of references to the publication: entries of outboxes, newest
//! documents and states of subscriptions, a running fan-out, and the document of which it is another form. At
//! 0 it is removed.

use crate::encoder::Encoder;
use crate::publication::{Body, Encoded, FormatId, Publication, SnapshotReason};
use crate::recent_encodings::RecentEncodings;
use crate::version_lag::{FAR, UNKNOWN};
use slab::Slab;
use smallvec::SmallVec;
use std::sync::Arc;

/// An empty arena frees its memory if it once held more publications than this.
const IDLE_MAX: usize = 1024;

/// Refers to a publication in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicationRef(u32);

impl PublicationRef {
    /// A reference to no publication.
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
    references: u32,
    is_state: bool,
    is_document: bool,
    is_recoverable: bool,
    /// `true` if the latency of its deliveries is measured.
    is_sampled: bool,
    /// Other forms of this document.
    forms: SmallVec<[(Form, PublicationRef); 1]>,
    frames: SmallVec<[(FormatId, Option<EncodedFrame<F>>); 2]>,
}

/// The form of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The patch from this many versions ago.
    Delta(u16),
    /// The document with the reason why it isn't a delta.
    SnapshotWithReason(SnapshotReason),
}

struct EncodedFrame<F> {
    frame: F,
    bytes: u32,
}

/// Another core is making the frame.
#[derive(Debug)]
pub(crate) struct EncodingInProgress;

/// Clamps a size to the range that outboxes count.
fn counted(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).max(1)
}

pub(crate) struct PublicationArena<E: Encoder> {
    encoder: E,
    items: Slab<Item<E::Frame>>,
    pub(crate) recent: RecentEncodings<E::Frame>,
}

impl<E: Encoder> PublicationArena<E> {
    pub(crate) fn new(encoder: E) -> Self {
        Self { encoder, items: Slab::new(), recent: RecentEncodings::default() }
    }

    /// Returns the size of the arena without the publications and frames, in bytes.
    pub(crate) fn bytes_held(&self) -> usize {
        self.items.capacity() * size_of::<Item<E::Frame>>()
    }

    /// Inserts a publication, with one reference.
    pub(crate) fn insert(&mut self, publication: &Arc<Publication<E::Frame>>) -> PublicationRef {
        let is_state = matches!(publication.body(), Body::State { .. });
        let is_document = matches!(publication.body(), Body::Snapshot { .. });
        let is_recoverable = publication.is_recoverable();
        let publication = publication.clone();
        let (forms, frames) = (SmallVec::new(), SmallVec::new());
        let is_sampled = false;
        let item = Item {
            publication,
            references: 1,
            is_state,
            is_document,
            is_recoverable,
            is_sampled,
            forms,
            frames,
        };
        PublicationRef(self.items.insert(item) as u32)
    }

    /// Makes the latency of its deliveries measured.
    pub(crate) fn sample(&mut self, publication_ref: PublicationRef) {
        self.items[publication_ref.0 as usize].is_sampled = true;
    }

    pub(crate) fn retain(&mut self, publication_ref: PublicationRef) {
        self.items[publication_ref.0 as usize].references += 1;
    }

    pub(crate) fn release(&mut self, publication_ref: PublicationRef) {
        let item = &mut self.items[publication_ref.0 as usize];
        item.references -= 1;
        if item.references == 0 {
            let item = self.items.remove(publication_ref.0 as usize);
            for (_, form) in item.forms {
                self.release(form);
            }
            if self.items.is_empty() && self.items.capacity() > IDLE_MAX {
                self.items = Slab::new();
            }
        }
    }

    /// Returns `true` for a change of state, which a newer document makes obsolete.
    pub(crate) fn is_state(&self, publication_ref: PublicationRef) -> bool {
        self.items[publication_ref.0 as usize].is_state
    }

    /// Returns `true` for a complete document.
    pub(crate) fn is_document(&self, publication_ref: PublicationRef) -> bool {
        self.items[publication_ref.0 as usize].is_document
    }

    /// Returns the form of a document for a session that is `behind` versions behind: the document itself or
    /// a delta. If the session `resumes` and there is no delta, returns the document with the reason why.
    /// Makes the form's frame if the format supports it.
    pub(crate) fn form(
        &mut self,
        document: PublicationRef,
        behind: u16,
        resumes: bool,
        format: FormatId,
    ) -> PublicationRef {
        let mut form = None;
        if (1..FAR).contains(&behind) {
            form = self.form_of(document, Form::Delta(behind));
        }
        if form.is_none() && resumes {
            let reason = if behind == UNKNOWN { SnapshotReason::Epoch } else { SnapshotReason::History };
            form = self.form_of(document, Form::SnapshotWithReason(reason));
        }
        match form {
            Some(form) if self.bytes(form, format).is_some() => form,
            _ => {
                self.bytes(document, format);
                document
            }
        }
    }

    /// Returns a document in another form, if that form exists.
    fn form_of(&mut self, document: PublicationRef, form: Form) -> Option<PublicationRef> {
        let item = &self.items[document.0 as usize];
        if let Some((_, publication_ref)) = item.forms.iter().find(|(of, _)| *of == form) {
            return Some(*publication_ref);
        }
        let publication = match form {
            Form::Delta(behind) => {
                let delta = item.publication.delta_from(behind)?;
                self.recent.add(&item.publication);
                delta
            }
            Form::SnapshotWithReason(reason) => item.publication.with_reason(reason)?,
        };
        let is_sampled = item.is_sampled;
        let publication_ref = self.insert(&publication);
        self.items[publication_ref.0 as usize].is_sampled = is_sampled;
        self.items[document.0 as usize].forms.push((form, publication_ref));
        Some(publication_ref)
    }

    /// Returns `true` if resumed sessions may receive it.
    pub(crate) fn is_recoverable(&self, publication_ref: PublicationRef) -> bool {
        self.items[publication_ref.0 as usize].is_recoverable
    }

    /// Returns the size of a publication's frame in `format`, `None` if the format doesn't support the
    /// publication. Clamped to the range from 1 to 4 GiB, so that a byte limit also bounds the number of
    /// frames. While another core is making the frame, returns the size of the body.
    pub(crate) fn bytes(&mut self, publication_ref: PublicationRef, format: FormatId) -> Option<u32> {
        let item = &self.items[publication_ref.0 as usize];
        if let Some((_, made)) = item.frames.iter().find(|(f, _)| *f == format) {
            return made.as_ref().map(|made| made.bytes);
        }
        let body_bytes = counted(item.publication.body().len());
        self.encode(publication_ref, format).unwrap_or(Some(body_bytes))
    }

    /// Like [`Self::bytes`], but if another core is making the frame, this core makes one for itself.
    pub(crate) fn bytes_now(&mut self, publication_ref: PublicationRef, format: FormatId) -> Option<u32> {
        self.encode(publication_ref, format).unwrap_or_else(|EncodingInProgress| {
            let frame = self.encoder.encode(format, &self.items[publication_ref.0 as usize].publication);
            self.keep(publication_ref, format, frame)
        })
    }

    /// Makes the frame unless it exists. Returns its size, or an error if another core is making it.
    pub(crate) fn encode(
        &mut self,
        publication_ref: PublicationRef,
        format: FormatId,
    ) -> Result<Option<u32>, EncodingInProgress> {
        let item = &self.items[publication_ref.0 as usize];
        if let Some((_, made)) = item.frames.iter().find(|(f, _)| *f == format) {
            return Ok(made.as_ref().map(|made| made.bytes));
        }
        let encode = |publication: &Publication<E::Frame>| self.encoder.encode(format, publication);
        let frame = match item.publication.encoded(format, encode) {
            Encoded::Shared(frame, is_new) => {
                if is_new && item.is_document {
                    self.recent.add(&item.publication);
                }
                frame.as_ref().map(E::per_core)
            }
            Encoded::Own(frame) => frame,
            Encoded::InProgress => return Err(EncodingInProgress),
        };
        Ok(self.keep(publication_ref, format, frame))
    }

    fn keep(
        &mut self,
        publication_ref: PublicationRef,
        format: FormatId,
        frame: Option<E::Frame>,
    ) -> Option<u32> {
        let made = frame.map(|frame| EncodedFrame { bytes: counted(E::len(&frame)), frame });
        let bytes = made.as_ref().map(|made| made.bytes);
        self.items[publication_ref.0 as usize].frames.push((format, made));
        bytes
    }

    /// Returns the publication.
    pub(crate) fn publication(&self, publication_ref: PublicationRef) -> &Arc<Publication<E::Frame>> {
        &self.items[publication_ref.0 as usize].publication
    }

    /// Returns the publication, its frame in a format for which [`PublicationArena::bytes`] returned a size,
    /// the frame's length, and whether the publication is sampled. `None` while another core is making the
    /// frame.
    #[expect(clippy::type_complexity, reason = "three references, named where they are taken")]
    pub(crate) fn frame(
        &self,
        publication_ref: PublicationRef,
        format: FormatId,
    ) -> Option<(&Arc<Publication<E::Frame>>, &E::Frame, u32, bool)> {
        let item = &self.items[publication_ref.0 as usize];
        let (_, made) = item.frames.iter().find(|(f, _)| *f == format)?;
        made.as_ref().map(|made| (&item.publication, &made.frame, made.bytes, item.is_sampled))
    }
}
