//! Messages that exceed the server's maximum (`max_payload`) are sent in parts, on one subject and in order.
//!
//! A whole message is `:CONTENT`. A part is `+ID CONTENT`, the last one `.ID TOTAL CONTENT`: `ID` is drawn at random for each
//! message, in eight bytes, and `TOTAL` is the size of the whole content, in four.

use crate::engine::PAYLOAD_BYTES_MAX;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{Charge, Class, Ledger};
use tokio::time::Instant;

/// Maximum size of a part, even if the server accepts more.
pub(super) const PART_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a message in parts: a document with a change, and their lengths.
const CONTENT_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX + 64;
/// Maximum number of messages whose parts are arriving.
const PENDING_MAX: usize = 64;
/// Maximum size of these parts.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Time without a further part after which a message is dropped, because its publisher is dead.
const PENDING_TTL: Duration = Duration::from_secs(30);

/// The start of a message that isn't split.
pub(super) const WHOLE: &[u8] = b":";

/// The start of a part of a message of `total` bytes.
pub(super) fn start(id: u64, total: usize, is_last: bool) -> Bytes {
    let mut start = BytesMut::with_capacity(13);
    start.put_u8(if is_last { b'.' } else { b'+' });
    start.put_u64(id);
    if is_last {
        start.put_u32(u32::try_from(total).unwrap_or(u32::MAX));
    }
    start.freeze()
}

/// A part, or a whole message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole(Bytes),
    More(u64, Bytes),
    Last { id: u64, total: usize, content: Bytes },
}

/// Parses a payload. `None` if no node sent it.
pub(super) fn parse(mut payload: Bytes) -> Option<Part> {
    Some(match payload.try_get_u8().ok()? {
        b':' => Part::Whole(payload),
        b'+' => Part::More(payload.try_get_u64().ok()?, payload),
        b'.' => {
            let (id, total) = (payload.try_get_u64().ok()?, payload.try_get_u32().ok()?);
            Part::Last { id, total: usize::try_from(total).ok()?, content: payload }
        }
        _ => return None,
    })
}

struct Pending {
    content: BytesMut,
    at: Instant,
}

/// Messages of which parts have arrived.
pub(super) struct Assembly {
    pending: HashMap<u64, Pending>,
    /// Charge for the parts that have arrived.
    charge: Charge,
}

/// The result of adding a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// A whole message.
    Content(Bytes),
    /// More parts have to follow.
    Nothing,
    /// The bytes aren't a part, so no node sent them.
    Foreign,
    /// The first parts of the message didn't arrive.
    Incomplete,
    /// Parts of too many messages wait: all of them are dropped.
    Overflow,
}

impl Assembly {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { pending: HashMap::new(), charge: Charge::new(ledger, Class::Cluster) }
    }

    /// Drops all parts, because none continues on a new connection.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.charge.set(0);
    }

    pub(super) fn add(&mut self, now: Instant, payload: Bytes) -> Assembled {
        let (id, content) = match parse(payload) {
            None => return Assembled::Foreign,
            Some(Part::Whole(content)) => return Assembled::Content(content),
            Some(Part::Last { id, total, content }) => {
                let Some(mut pending) = self.pending.remove(&id) else { return Assembled::Incomplete };
                self.charge.subtract(pending.content.len());
                pending.content.extend_from_slice(&content);
                return match pending.content.len() == total {
                    true => Assembled::Content(pending.content.freeze()),
                    false => Assembled::Incomplete,
                };
            }
            Some(Part::More(id, content)) => (id, content),
        };
        if !self.pending.contains_key(&id) {
            self.pending.retain(|_, pending| {
                let is_alive = now.saturating_duration_since(pending.at) < PENDING_TTL;
                self.charge.subtract(if is_alive { 0 } else { pending.content.len() });
                is_alive
            });
        }
        let pending = self.pending.entry(id).or_insert_with(|| Pending { content: BytesMut::new(), at: now });
        let is_full = pending.content.len() + content.len() > CONTENT_BYTES_MAX
            || self.charge.bytes() + content.len() > PENDING_BYTES_MAX;
        pending.content.extend_from_slice(&content);
        pending.at = now;
        self.charge.add(content.len());
        if is_full || self.pending.len() > PENDING_MAX {
            self.clear();
            return Assembled::Overflow;
        }
        Assembled::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembly() -> Assembly {
        Assembly::new(Arc::new(Ledger::new(usize::MAX)))
    }

    fn part(id: u64, content: &[u8]) -> Bytes {
        [&start(id, 0, false), content].concat().into()
    }

    fn last(id: u64, total: usize, content: &[u8]) -> Bytes {
        [&start(id, total, true), content].concat().into()
    }

    #[test]
    fn parts_of_several_messages_become_these_messages() {
        let (mut assembly, now) = (assembly(), Instant::now());
        for (payload, expected) in [
            (Bytes::from_static(b":whole"), Assembled::Content("whole".into())),
            (part(1, b"ab"), Assembled::Nothing),
            (part(2, b"x"), Assembled::Nothing),
            (last(1, 3, b"c"), Assembled::Content("abc".into())),
            (last(2, 1, b""), Assembled::Content("x".into())),
            // The first part is missing, or one in the middle.
            (last(3, 3, b"c"), Assembled::Incomplete),
            (part(4, b"a"), Assembled::Nothing),
            (last(4, 3, b"c"), Assembled::Incomplete),
            (Bytes::from_static(b"foreign"), Assembled::Foreign),
            (Bytes::from_static(b"+short"), Assembled::Foreign),
            (Bytes::new(), Assembled::Foreign),
        ] {
            assert_eq!(assembly.add(now, payload), expected);
        }
        assert_eq!((assembly.pending.len(), assembly.charge.bytes()), (0, 0));
    }

    #[test]
    fn waiting_messages_are_bounded() {
        let (mut assembly, now) = (assembly(), Instant::now());
        for id in 0..PENDING_MAX as u64 {
            assert_eq!(assembly.add(now, part(id, b"a")), Assembled::Nothing);
        }
        assert_eq!(assembly.add(now, part(1_000, b"a")), Assembled::Overflow);
        assert_eq!(assembly.add(now, part(1, b"a")), Assembled::Nothing);
        // Parts of dead publishers are dropped.
        assert_eq!(assembly.add(now + PENDING_TTL, part(2, b"a")), Assembled::Nothing);
        assert_eq!((assembly.pending.len(), assembly.charge.bytes()), (1, 1));
        let large = vec![0; PART_BYTES_MAX];
        let mut added = (0..).map(|_| assembly.add(now, part(2, &large)));
        assert_eq!(
            added.position(|added| added == Assembled::Overflow),
            Some(CONTENT_BYTES_MAX / large.len())
        );
    }
}
