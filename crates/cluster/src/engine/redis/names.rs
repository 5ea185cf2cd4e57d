//! Names of channels and keys.
//!
//! The part in braces is what Redis Cluster assigns a key by: all keys of one room or feed, and its channel, have the same. A room's
//! namespace is preceded by its length, so that no two rooms have one name, whatever is in it.

use crate::NodeId;
use crate::engine::Channel;
use stentor_hub::{Key, Room, Topic};

/// Makes names that begin with a prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Box<str>,
}

impl Names {
    /// `None`: braces in the prefix would decide where keys are.
    pub(super) fn new(prefix: &str) -> Option<Self> {
        (!prefix.contains(['{', '}'])).then(|| Self { prefix: prefix.into() })
    }

    pub(super) fn channel(&self, channel: &Channel) -> String {
        match channel {
            Channel::Topic(Topic::Room(room)) => self.room(room, ""),
            Channel::Topic(Topic::Feed(key)) => self.feed(key, ""),
            Channel::Node(node) => format!("{}{{node:{node}}}", self.prefix),
            Channel::Nodes => format!("{}{{nodes}}", self.prefix),
        }
    }

    pub(super) fn probe(&self, node: NodeId) -> String {
        format!("{}{{probe:{node}}}", self.prefix)
    }

    pub(super) fn room(&self, room: &Room, what: &str) -> String {
        let namespace = room.namespace();
        format!("{}{{room:{}:{namespace}{}}}{what}", self.prefix, namespace.len(), room.name())
    }

    pub(super) fn feed(&self, key: &Key, what: &str) -> String {
        format!("{}{{feed:{key}}}{what}", self.prefix)
    }

    pub(super) fn nodes(&self) -> String {
        format!("{}{{nodes}}:records", self.prefix)
    }

    pub(super) fn claim(&self, name: &str) -> String {
        format!("{}{{claim:{name}}}", self.prefix)
    }
}
