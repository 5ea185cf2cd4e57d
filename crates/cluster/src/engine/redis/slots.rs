//! The slots of Redis Cluster, by which keys belong to primaries.
//!
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Key distribution model".

use super::address::Endpoint;
use super::connection::text;
use redis::Value;
use std::ops::RangeInclusive;

/// All slots.
pub(super) const ALL: RangeInclusive<u16> = 0..=16_383;

/// Which primary has which slots.
pub(super) type Ranges = Vec<(RangeInclusive<u16>, Endpoint)>;

/// The slot of a key or channel: that of what is in its first braces, if anything is.
pub(super) fn slot_of(key: &str) -> u16 {
    let key = key.as_bytes();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|start| {
        let rest = &key[start + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|end| *end > 0).map(|end| &rest[..end])
    });
    crc16(tag.unwrap_or(key)) & ALL.end()
}

/// CRC16-XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

/// Reads an answer to `CLUSTER SLOTS`. `host` is where a node is that doesn't know its own address.
pub(super) fn ranges(reply: Value, host: &str) -> Option<Ranges> {
    let Value::Array(ranges) = reply else { return None };
    let mut ranges = ranges.into_iter().map(|range| range_of(range, host)).collect::<Option<Ranges>>()?;
    ranges.sort_unstable_by_key(|(slots, _)| *slots.start());
    Some(ranges)
}

/// `[first, last, [host, port, …], …]`, the primary before its replicas.
fn range_of(range: Value, host: &str) -> Option<(RangeInclusive<u16>, Endpoint)> {
    let number = |value| match value {
        Value::Int(number) => u16::try_from(number).ok(),
        _ => None,
    };
    let Value::Array(parts) = range else { return None };
    let mut parts = parts.into_iter();
    let slots = number(parts.next()?)?..=number(parts.next()?)?;
    let Some(Value::Array(primary)) = parts.next() else { return None };
    let mut primary = primary.into_iter();
    let named = text(primary.next()?).filter(|named| !named.is_empty());
    let endpoint = Endpoint { host: named.unwrap_or_else(|| host.into()), port: number(primary.next()?)? };
    Some((slots, endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, same) in
            [("{user1000}.following", "user1000"), ("foo{{bar}}zap", "{bar"), ("foo{bar}{zap}", "bar")]
        {
            assert_eq!(slot_of(key), crc16(same.as_bytes()) & 16_383);
        }
        for whole in ["foo", "foo{}{bar}", "a{b"] {
            assert_eq!(slot_of(whole), crc16(whole.as_bytes()) & 16_383);
        }
        // As `CLUSTER KEYSLOT` says.
        assert_eq!(slot_of("somekey"), 11_058);
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        let text = |text: &str| Value::BulkString(text.into());
        let range = |first, last, host: &str| {
            let primary = Value::Array(vec![text(host), Value::Int(7_000), text("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), primary])
        };
        let at = |host: &str| Endpoint { host: host.into(), port: 7_000 };
        let reply = Value::Array(vec![range(100, 16_383, "b"), range(0, 99, "")]);
        assert_eq!(ranges(reply, "a"), Some(vec![(0..=99, at("a")), (100..=16_383, at("b"))]));
        for wrong in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(vec![range(-1, 3, "a")])] {
            assert_eq!(ranges(wrong, "a"), None);
        }
    }
}
