//! Subjects and streams.
//!
//! Names may contain any characters, but subjects may not. A name becomes one token, in which most characters are
//! escaped as `%XX`. A token that gets too long is replaced by its digest.

use crate::NodeId;
use crate::engine::Channel;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use stentor_hub::{Key, Room, Topic};

/// Maximum length of a token. The server accepts lines of 4,096 bytes.
const TOKEN_BYTES_MAX: usize = 256;

/// Makes subjects that begin with a prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Box<str>,
}

impl Names {
    /// `prefix` is the configured one. A colon or dot at its end is left out, because a dot follows it.
    ///
    /// # Errors
    /// The prefix isn't a subject.
    pub(super) fn new(prefix: &str) -> Result<Self, String> {
        let prefix = prefix.trim_end_matches([':', '.']);
        let is_token = |token: &str| !token.is_empty() && token.bytes().all(is_literal);
        if prefix.len() <= TOKEN_BYTES_MAX && prefix.split('.').all(is_token) {
            Ok(Self { prefix: prefix.into() })
        } else {
            Err("the prefix must be a NATS subject: letters, digits, `_`, `-` and `:`, with dots between"
                .into())
        }
    }

    /// The subject on which a channel's messages arrive: published ones, and stored ones.
    pub(super) fn channel(&self, channel: &Channel) -> String {
        match channel {
            // Presence shares the channel of its room: it has no messages of its own.
            Channel::Topic(Topic::Room(room) | Topic::Presence(room)) => {
                format!("{}.live.{}", self.prefix, room_tokens(room))
            }
            Channel::Topic(Topic::Feed(key)) => format!("{}.live.{}", self.prefix, feed_tokens(key)),
            Channel::Node(node) => format!("{}.node.{node}", self.prefix),
            Channel::Nodes => format!("{}.nodes", self.prefix),
            Channel::Application(app) => format!("{}.app.{}", self.prefix, token(app)),
        }
    }

    /// The subject of a room's messages in the stream of rooms.
    pub(super) fn room(&self, room: &Room) -> String {
        format!("{}.{}", self.prefix, room_tokens(room))
    }

    /// The subject of a feed's log in the stream of feeds.
    pub(super) fn feed(&self, key: &Key) -> String {
        format!("{}.{}", self.prefix, feed_tokens(key))
    }

    /// The subject of the documents with which a feed's logs begin.
    pub(super) fn base(&self, key: &Key) -> String {
        format!("{}.base.{}", self.prefix, token(key.as_str()))
    }

    pub(super) fn claim(&self, name: &str) -> String {
        format!("{}.claim.{}", self.prefix, token(name))
    }

    /// The subject of nodes' reports that they are alive.
    pub(super) fn records(&self) -> String {
        format!("{}.records", self.prefix)
    }

    pub(super) fn probe(&self, node: NodeId) -> String {
        format!("{}.probe.{node}", self.prefix)
    }

    /// The prefix of the subjects of the server's answers.
    pub(super) fn inbox(&self, node: NodeId) -> String {
        format!("{}.inbox.{node}", self.prefix)
    }

    /// A subject, or a pattern that ends with `>`.
    pub(super) fn subject(&self, rest: &str) -> String {
        format!("{}.{rest}", self.prefix)
    }

    /// The name of a stream.
    pub(super) fn stream(&self, kind: &str) -> String {
        format!("{}_{kind}", self.prefix.replace('.', "_"))
    }
}

fn room_tokens(room: &Room) -> String {
    format!("room.{}.{}", token(room.namespace()), token(room.name()))
}

fn feed_tokens(key: &Key) -> String {
    format!("feed.{}", token(key.as_str()))
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-:/=@".contains(&byte)
}

/// A name as one token. No two names have the same token: the tokens of digests begin with `~`, which is escaped in
/// names. The empty name is `~` alone.
fn token(name: &str) -> String {
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_literal(byte) {
            token.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(token, "%{byte:02X}");
        }
    }
    match token.len() {
        0 => "~".into(),
        1..=TOKEN_BYTES_MAX => token,
        _ => format!("~{}", BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::KeyCharset;

    #[test]
    fn a_name_is_one_token() {
        for (name, expected) in [
            ("", "~"),
            ("chat/1", "chat/1"),
            ("a.b *>", "a%2Eb%20%2A%3E"),
            ("~", "%7E"),
            ("é\r\n", "%C3%A9%0D%0A"),
        ] {
            assert_eq!(token(name), expected);
        }
        let long = [token(&"a".repeat(257)), token(&"é".repeat(128))];
        assert!(long.iter().all(|token| token.len() == 44 && token.starts_with('~')), "{long:?}");
        assert_eq!(token(&"a".repeat(256)).len(), 256);
    }

    #[test]
    fn keys_with_any_characters_are_one_token_each() {
        let names = Names::new("p").unwrap();
        let key = |text: &str| Key::parse_as(text, KeyCharset::Utf8).unwrap();
        let longest = "\u{e9}".repeat(128);
        let subjects =
            |text: &str| (names.feed(&key(text)), names.base(&key(text)), names.channel(&key(text).into()));
        for text in ["*", ">", "a.*.>", "S\u{e3}o Paulo", "50%", "$JS.API", "a\u{a0}b", &longest] {
            let (feed, base, live) = subjects(text);
            for (subject, tokens) in [(feed, 3), (base, 3), (live, 4)] {
                let parts: Vec<_> = subject.split('.').collect();
                assert_eq!(parts.len(), tokens, "{subject}");
                assert!(subject.bytes().all(|b| b.is_ascii_graphic() && !b"*>$".contains(&b)), "{subject}");
            }
        }
        // Keys of different bytes have different subjects.
        assert_ne!(subjects("e\u{301}"), subjects("\u{e9}"));
        assert_eq!(subjects("%").0, "p.feed.%25");
    }

    #[test]
    fn a_prefix_is_a_subject() {
        let names = Names::new("stentor:").unwrap();
        assert_eq!(names.channel(&Channel::Nodes), "stentor.nodes");
        assert_eq!(names.channel(&Channel::Application("a.b".into())), "stentor.app.a%2Eb");
        assert_eq!(names.stream("rooms"), "stentor_rooms");
        assert_eq!(Names::new("a.b").unwrap().stream("rooms"), "a_b_rooms");
        for bad in ["", ":", "a b", "a..b", "*", "a.>", "é"] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}
