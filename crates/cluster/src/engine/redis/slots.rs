//! The slots of Redis Cluster, by which keys belong to primaries.
//!
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Key distribution model".

use super::values::text;
use crate::engine::PROBE_INTERVAL;
use crate::engine::common::{Endpoint, crc16};
use redis::Value;
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

/// All slots.
pub(super) const ALL: RangeInclusive<u16> = 0..=16_383;

/// Range of the intervals (ms) at which a node reads the slots without a reason. They are random, so that nodes don't read all at once.
const INTERVAL_MS: Range<u64> = 10_000..28_000;
/// Age at which slots are read again before a connection is checked, if nothing else has read them.
pub(super) const AGE_MAX: Duration = Duration::from_secs(30);

/// Time to wait before the slots are read again. `is_settled`: the last reading succeeded, and no connection is lost.
pub(crate) fn interval(is_settled: bool) -> Duration {
    if is_settled { Duration::from_millis(fastrand::u64(INTERVAL_MS)) } else { PROBE_INTERVAL }
}

/// Returns `true` if each slot has a primary.
pub(crate) fn are_covered(ranges: &[(RangeInclusive<u16>, Endpoint)]) -> bool {
    ranges.iter().map(|(slots, _)| slots.len()).sum::<usize>() == ALL.len()
}

/// Ranges of slots with their primaries.
pub(super) type Ranges = Vec<(RangeInclusive<u16>, Endpoint)>;

/// A value for each primary that has slots. Without a cluster, one value for all slots.
pub(crate) struct Owners<T> {
    by_endpoint: HashMap<Endpoint, Arc<T>>,
    /// Values in the order of their slots.
    ranges: Vec<(RangeInclusive<u16>, Arc<T>)>,
}

impl<T> Default for Owners<T> {
    fn default() -> Self {
        Self { by_endpoint: HashMap::new(), ranges: Vec::new() }
    }
}

impl<T> Owners<T> {
    /// Creates one value for all slots.
    pub(crate) fn only(owner: T) -> Self {
        Self { by_endpoint: HashMap::new(), ranges: vec![(ALL, Arc::new(owner))] }
    }

    /// Returns the value for the primary of a key or channel. `None` if no primary has the slot.
    pub(crate) fn of(&self, key: &str) -> Option<&Arc<T>> {
        if let [(range, owner)] = &self.ranges[..]
            && *range == ALL
        {
            return Some(owner);
        }
        let slot = slot_of(key);
        let index = self.ranges.partition_point(|(range, _)| *range.end() < slot);
        self.ranges.get(index).filter(|(range, _)| range.contains(&slot)).map(|(_, owner)| owner)
    }

    /// Returns the value for this primary, if it has slots.
    pub(super) fn at(&self, endpoint: &Endpoint) -> Option<&Arc<T>> {
        self.by_endpoint.get(endpoint)
    }

    /// Iterates over all values. A value with several ranges appears several times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.ranges.iter().map(|(_, owner)| owner)
    }

    /// Sets the primaries of the slots. Returns new values, and the primaries that no longer have slots.
    pub(crate) fn assign(
        &mut self,
        ranges: Ranges,
        begin: impl Fn(&Endpoint) -> T,
    ) -> (Vec<Arc<T>>, Vec<Endpoint>) {
        let mut begun = Vec::new();
        self.ranges.clear();
        for (slots, endpoint) in ranges {
            let owner = self.by_endpoint.entry(endpoint).or_insert_with_key(|endpoint| {
                let owner = Arc::new(begin(endpoint));
                begun.push(owner.clone());
                owner
            });
            self.ranges.push((slots, owner.clone()));
        }
        let has_slots = |owner: &Arc<T>| self.ranges.iter().any(|(_, other)| Arc::ptr_eq(owner, other));
        let ended = self.by_endpoint.extract_if(|_, owner| !has_slots(owner)).map(|(end, _)| end).collect();
        (begun, ended)
    }
}

/// The slot of a key or channel: the slot of the text in its first braces, if there is any.
pub(super) fn slot_of(key: &str) -> u16 {
    let key = key.as_bytes();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|start| {
        let rest = &key[start + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|end| *end > 0).map(|end| &rest[..end])
    });
    crc16(tag.unwrap_or(key)) & ALL.end()
}

/// Ranges of slots with their nodes, the primary before its replicas.
pub(super) type Nodes = Vec<(RangeInclusive<u16>, Vec<Endpoint>)>;

/// Reads an answer to `CLUSTER SLOTS`. `host` replaces the address of a node that doesn't know its own.
pub(super) fn nodes(reply: Value, host: &str) -> Option<Nodes> {
    let Value::Array(ranges) = reply else { return None };
    let mut ranges = ranges.into_iter().map(|range| nodes_of(range, host)).collect::<Option<Nodes>>()?;
    ranges.sort_unstable_by_key(|(slots, _)| *slots.start());
    Some(ranges)
}

/// `[first, last, [host, port, …], …]`, the primary before its replicas.
fn nodes_of(range: Value, host: &str) -> Option<(RangeInclusive<u16>, Vec<Endpoint>)> {
    let number = |value| match value {
        Value::Int(number) => u16::try_from(number).ok(),
        _ => None,
    };
    let Value::Array(parts) = range else { return None };
    let mut parts = parts.into_iter();
    let slots = number(parts.next()?)?..=number(parts.next()?)?;
    let endpoint = |node| {
        let Value::Array(node) = node else { return None };
        let mut node = node.into_iter();
        let named = text(node.next()?).filter(|named| !named.is_empty());
        Some(Endpoint { host: named.unwrap_or_else(|| host.into()), port: number(node.next()?)? })
    };
    let nodes = parts.map(endpoint).collect::<Option<Vec<_>>>()?;
    (!nodes.is_empty()).then_some((slots, nodes))
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
        // `CLUSTER KEYSLOT` returns this.
        assert_eq!(slot_of("somekey"), 11_058);
    }

    #[test]
    fn invalid_answers_are_refused() {
        let text = |text: &str| Value::BulkString(text.into());
        let range = |first, last, host: &str| {
            let node = |host| Value::Array(vec![text(host), Value::Int(7_000), text("id")]);
            Value::Array(vec![Value::Int(first), Value::Int(last), node(host), node("c")])
        };
        let at = |host: &str| Endpoint { host: host.into(), port: 7_000 };
        let reply = Value::Array(vec![range(100, 16_383, "b"), range(0, 99, "")]);
        let expected = vec![(0..=99, vec![at("a"), at("c")]), (100..=16_383, vec![at("b"), at("c")])];
        let mut ranges: Ranges =
            expected.iter().map(|(slots, nodes)| (slots.clone(), nodes[0].clone())).collect();
        assert_eq!(nodes(reply, "a"), Some(expected));
        assert!(are_covered(&ranges));
        ranges[1].0 = 101..=16_383;
        assert!(!are_covered(&ranges));
        let no_node = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]);
        assert_eq!(nodes(no_node, "a"), None);
        for wrong in [Value::Nil, Value::Array(vec![Value::Nil]), Value::Array(vec![range(-1, 3, "a")])] {
            assert_eq!(nodes(wrong, "a"), None);
        }
    }
}
