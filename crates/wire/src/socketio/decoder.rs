//! Assembles packets from messages: one decoder per session and direction.

use super::packet::{Attachments, Packet, Version};
use super::parse::{self, Layout};
use super::{Error, Role};

/// Limits for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of attachments of a packet. Default 10, as in the reference.
    pub attachments_max: usize,
    /// Maximum size of a packet's text and attachments together, in bytes. Default 4,000,000: four messages of
    /// the default maximum size.
    pub packet_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { attachments_max: 10, packet_bytes_max: 4_000_000 }
    }
}

/// Decoder of one session. Holds the received part of a packet whose attachments are incomplete; 16 bytes
/// otherwise.
///
/// Invariant: `pending` is `Some` exactly while an attachment is missing. After an error the decoder holds no
/// data, and the caller must close the session.
#[derive(Debug)]
pub struct Decoder {
    pending: Option<Box<Pending>>,
    version: Version,
    role: Role,
}

#[derive(Debug)]
struct Pending {
    layout: Layout,
    text: Box<str>,
    /// The attachments received so far, concatenated, and the end of each.
    gathered: Vec<u8>,
    ends: Vec<usize>,
}

impl Decoder {
    /// Makes the decoder of the side with this role.
    pub fn new(version: Version, role: Role) -> Self {
        Decoder { pending: None, version, role }
    }

    /// Processes the text of an Engine.IO message. Returns its packet, or `None` if attachments must follow
    /// first.
    ///
    /// # Errors
    /// All variants of [`Error`] except [`Error::UnexpectedAttachment`].
    #[inline]
    pub fn text<'m>(&mut self, text: &'m str, limits: &Limits) -> Result<Option<Packet<'m>>, Error> {
        if self.pending.is_some() {
            self.pending = None;
            return Err(Error::ExpectedAttachment);
        }
        if text.len() > limits.packet_bytes_max {
            return Err(Error::TooBig);
        }
        let layout = parse::parse(self.version, self.role, limits.attachments_max, text)?;
        if layout.attachments == 0 {
            return Ok(Some(layout.packet(text, Attachments::default())));
        }
        // The declared number of attachments doesn't determine an allocation.
        let (gathered, ends) = (Vec::new(), Vec::new());
        self.pending = Some(Box::new(Pending { layout, text: text.into(), gathered, ends }));
        Ok(None)
    }

    /// Processes the data of a binary Engine.IO message. Returns the packet that it completes.
    ///
    /// # Errors
    /// [`Error::UnexpectedAttachment`] and [`Error::TooBig`].
    pub fn binary<'m>(&mut self, data: &'m [u8], limits: &Limits) -> Result<Option<Assembled<'m>>, Error> {
        let mut pending = self.pending.take().ok_or(Error::UnexpectedAttachment)?;
        let held = pending.text.len() + pending.gathered.len();
        if data.len() > limits.packet_bytes_max.saturating_sub(held) {
            return Err(Error::TooBig);
        }
        if pending.ends.len() + 1 == pending.layout.attachments {
            return Ok(Some(Assembled { pending, last: data }));
        }
        pending.gathered.extend_from_slice(data);
        pending.ends.push(pending.gathered.len());
        self.pending = Some(pending);
        Ok(None)
    }

    /// Returns `true` while an attachment is missing. The caller limits that time.
    pub fn is_mid_packet(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns the memory held for an incomplete packet, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            size_of::<Pending>()
                + pending.text.len()
                + pending.gathered.capacity()
                + pending.ends.capacity() * size_of::<usize>()
        })
    }
}

/// A packet with all of its attachments.
#[derive(Debug)]
pub struct Assembled<'m> {
    pending: Box<Pending>,
    last: &'m [u8],
}

impl Assembled<'_> {
    /// Returns the packet.
    pub fn packet(&self) -> Packet<'_> {
        let Pending { layout, text, gathered, ends } = &*self.pending;
        layout.packet(text, Attachments { gathered, ends, last: Some(self.last) })
    }
}
