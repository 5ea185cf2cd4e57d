//! From messages to packets: one decoder per session and direction.

use super::packet::{Attachments, Packet, Version};
use super::parse::{self, Layout};
use super::{Error, Role};

/// Bounds on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Attachments of a packet. Default 10, as in the reference.
    pub attachments_max: usize,
    /// Bytes of a packet's text and attachments together. Default 4,000,000: four messages of the usual limit.
    pub packet_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { attachments_max: 10, packet_bytes_max: 4_000_000 }
    }
}

/// What a session has received of a packet whose attachments are still coming. 16 bytes while there is none.
///
/// Invariant: `pending` is there exactly while an attachment is due. After an error the session is to be closed; nothing
/// is held any longer.
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
    /// The attachments so far, one after the other, and where each ends.
    gathered: Vec<u8>,
    ends: Vec<usize>,
}

impl Decoder {
    /// The decoder of the side that has this role.
    pub fn new(version: Version, role: Role) -> Self {
        Decoder { pending: None, version, role }
    }

    /// Takes the text of an Engine.IO message. Yields its packet, or `None` if attachments must come first.
    ///
    /// # Errors
    /// All of [`Error`] but [`Error::UnexpectedAttachment`].
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
        // No memory by the number that the peer declares.
        let (gathered, ends) = (Vec::new(), Vec::new());
        self.pending = Some(Box::new(Pending { layout, text: text.into(), gathered, ends }));
        Ok(None)
    }

    /// Takes the data of a binary Engine.IO message. Yields the packet that it completes.
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

    /// Takes back a packet that can't be handled now: its last attachment is due again.
    pub fn put_back(&mut self, packet: Assembled<'_>) {
        self.pending = Some(packet.pending);
    }

    /// True while an attachment is due: the caller then limits its time.
    pub fn is_mid_packet(&self) -> bool {
        self.pending.is_some()
    }

    /// Bytes of memory held for a packet whose attachments are coming.
    pub fn held_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| {
            size_of::<Pending>()
                + pending.text.len()
                + pending.gathered.capacity()
                + pending.ends.capacity() * size_of::<usize>()
        })
    }
}

/// A packet with all its attachments.
#[derive(Debug)]
pub struct Assembled<'m> {
    pending: Box<Pending>,
    last: &'m [u8],
}

impl Assembled<'_> {
    /// The packet.
    pub fn packet(&self) -> Packet<'_> {
        let Pending { layout, text, gathered, ends } = &*self.pending;
        layout.packet(text, Attachments { gathered, ends, last: Some(self.last) })
    }
}
