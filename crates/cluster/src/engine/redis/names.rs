//! Names of channels and keys.
//!
//! Redis Cluster assigns keys by the part in braces: all keys of one room or feed, and its channel, have the same. A
//! room's namespace follows its length, so no two rooms have the same name.

use crate::NodeId;
use crate::engine::Channel;
use crate::engine::common::ChannelName;
use stentor_hub::{Key, Room, Topic};

/// Makes names that begin with a prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Box<str>,
}

impl Names {
    /// Returns `None` if the prefix contains braces, which would decide where keys are.
    pub(super) fn new(prefix: &str) -> Option<Self> {
        (!prefix.contains(['{', '}'])).then(|| Self { prefix: prefix.into() })
    }

    pub(super) fn channel(&self, channel: &Channel) -> String {
        match channel {
            Channel::Topic(Topic::Room(room) | Topic::Presence(room)) => self.room(room, ""),
            Channel::Topic(Topic::Feed(key)) => self.feed(key, ""),
            Channel::Node(node) => format!("{}{{node:{node}}}", self.prefix),
            Channel::Nodes => format!("{}{{nodes}}", self.prefix),
            Channel::Application(app) => format!("{}{{app:{app}}}", self.prefix),
        }
    }

    /// Parses the name of a channel. The channel may have no subscribers.
    pub(super) fn parse<'a>(&self, name: &'a str) -> Option<ChannelName<'a>> {
        let name = name.strip_prefix(&*self.prefix)?.strip_prefix('{')?.strip_suffix('}')?;
        if let Some(room) = name.strip_prefix("room:") {
            let (length, rest) = room.split_once(':')?;
            let (namespace, name) = rest.split_at_checked(length.parse().ok()?)?;
            return Some(ChannelName::Room { namespace, name });
        }
        if let Some(key) = name.strip_prefix("feed:") {
            return Some(ChannelName::Feed(key));
        }
        if let Some(app) = name.strip_prefix("app:") {
            return Some(ChannelName::Application(app));
        }
        match name.strip_prefix("node:") {
            Some(node) => NodeId::parse(node).map(ChannelName::Node),
            None => (name == "nodes").then_some(ChannelName::Nodes),
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

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::KeyCharset;

    #[test]
    fn a_name_is_parsed_to_the_channel_that_it_is_of() {
        let names = Names::new("p:").unwrap();
        let rooms = [("/", "a"), ("/", "{}"), ("/a:1", "}"), ("1:/", ":"), ("/é", "é🦀"), ("/", "room:1:/x")];
        let rooms = rooms.map(|(namespace, name)| Room::new(namespace, name).unwrap().into());
        let more = [
            Room::all_members("/x").unwrap().into(),
            Key::parse("a/b").unwrap().into(),
            Key::parse_as("S\u{e3}o 50%/{x}:*", KeyCharset::Utf8).unwrap().into(),
            Key::parse_as("}", KeyCharset::Utf8).unwrap().into(),
            Channel::Node(NodeId(7)),
            Channel::Nodes,
            Channel::Application("shop}:é".into()),
        ];
        for channel in rooms.into_iter().chain(more) {
            let name = names.channel(&channel);
            assert_eq!(names.parse(&name), Some(ChannelName::from(&channel)), "{name}");
        }
        for wrong in
            ["", "p:", "p:{}", "{nodes}", "p:{room:9:/a}", "p:{room:2:/é}", "p:{node:x}", "p:{nodes}x"]
        {
            assert_eq!(names.parse(wrong), None, "{wrong}");
        }
    }
}
