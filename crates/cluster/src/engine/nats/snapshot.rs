//! A feed's log as one document: its term, the base with its position, and the changes with their positions.

use crate::engine::FeedLog;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use stentor_hub::{Epoch, Position};

pub(super) fn encode(log: &FeedLog) -> Bytes {
    let mut document = BytesMut::with_capacity(64 + log.base.len());
    document.put_u64(log.term);
    let base = std::iter::once((log.base_position, &log.base));
    for (position, content) in base.chain(log.changes.iter().map(|(position, change)| (*position, change))) {
        document.put_u64(position.epoch.0);
        document.put_u64(position.offset);
        document.put_u32(u32::try_from(content.len()).unwrap_or(u32::MAX));
        document.put_slice(content);
    }
    document.freeze()
}

/// Returns `None` if the bytes aren't such a document.
pub(super) fn decode(mut document: Bytes) -> Option<FeedLog> {
    let term = document.try_get_u64().ok()?;
    let (base_position, base) = entry(&mut document)?;
    let mut changes = Vec::new();
    while !document.is_empty() {
        changes.push(entry(&mut document)?);
    }
    Some(FeedLog { term, base_position, base, changes, may_lack_newest: false })
}

fn entry(document: &mut Bytes) -> Option<(Position, Bytes)> {
    let epoch = Epoch(document.try_get_u64().ok()?);
    let offset = document.try_get_u64().ok()?;
    let length = usize::try_from(document.try_get_u32().ok()?).ok()?;
    (length <= document.len()).then(|| (Position { epoch, offset }, document.split_to(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_decoded_as_it_was_encoded() {
        let at = |epoch, offset| Position { epoch: Epoch(epoch), offset };
        let changes = vec![(at(1, 3), "change".into()), (at(2, 1), Bytes::new())];
        let log = FeedLog {
            term: 7,
            base_position: at(1, 2),
            base: "base".into(),
            changes,
            may_lack_newest: false,
        };
        let encoded = encode(&log);
        assert_eq!(decode(encoded.clone()), Some(log));
        for length in (0..encoded.len()).filter(|length| ![32, 58].contains(length)) {
            assert_eq!(decode(encoded.slice(..length)), None, "{length}");
        }
    }
}
