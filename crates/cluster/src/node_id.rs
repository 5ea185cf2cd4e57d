//! The id of a node.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use stentor_ports::NodeTag;

/// Names one run of a node: drawn at random at its start, so that a node that starts again is another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The id of a node that starts now. It comes from the operating system's randomness: generators that are seeded by the clock may
    /// give two nodes the same id.
    pub fn draw() -> Self {
        Self(RandomState::new().hash_one(()).max(1))
    }

    /// The node's tag in the ids of its clients.
    pub fn tag(self) -> NodeTag {
        NodeTag(self.0 as u32)
    }

    /// Parses the displayed form of a [`NodeId`]: 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex =
            text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_parsed_as_it_is_displayed() {
        for id in [NodeId(1), NodeId(u64::MAX), NodeId::draw()] {
            assert_eq!(NodeId::parse(&id.to_string()), Some(id));
        }
        for bad in ["", "1", "00000000000000001", "000000000000000G", "000000000000000A", "+00000000000000f"]
        {
            assert_eq!(NodeId::parse(bad), None, "{bad}");
        }
    }
}
