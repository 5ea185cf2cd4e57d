//! Subjects and streams.
//!
//! Names may hold anything, subjects may not: a name becomes one token, in which all but some characters are escaped as `%XX`.
//! One that gets too long is replaced by its digest.

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
    /// `prefix` is that of the configuration; a colon or dot at its end is left out, for a dot follows it.
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

    /// Where the messages of a channel arrive: those that were published, and those that a stream has stored.
    pub(super) fn channel(&self, channel: &Channel) -> String {
        match channel {
            // Presence shares the channel of its room: it has no messages of its own.
            Channel::Topic(Topic::Room(room) | Topic::Presence(room)) => {
                format!("{}.live.{}", self.prefix, room_tokens(room))
            }
            Channel::Topic(Topic::Feed(key)) => format!("{}.live.{}", self.prefix, feed_tokens(key)),
            Channel::Node(node) => format!("{}.node.{node}", self.prefix),
            Channel::Nodes => format!("{}.nodes", self.prefix),
        }
    }

    /// Where the stream of rooms stores the messages of one.
    pub(super) fn room(&self, room: &Room) -> String {
        format!("{}.{}", self.prefix, room_tokens(room))
    }

    /// Where the stream of feeds stores the log of one.
    pub(super) fn feed(&self, key: &Key) -> String {
        format!("{}.{}", self.prefix, feed_tokens(key))
    }

    /// Where the stream of feeds stores the documents that logs begin with.
    pub(super) fn base(&self, key: &Key) -> String {
        format!("{}.base.{}", self.prefix, token(key.as_str()))
    }

    pub(super) fn claim(&self, name: &str) -> String {
        format!("{}.claim.{}", self.prefix, token(name))
    }

    /// Where nodes report that they are alive.
    pub(super) fn records(&self) -> String {
        format!("{}.records", self.prefix)
    }

    pub(super) fn probe(&self, node: NodeId) -> String {
        format!("{}.probe.{node}", self.prefix)
    }

    /// Where the server answers requests.
    pub(super) fn inbox(&self, node: NodeId) -> String {
        format!("{}.inbox.{node}", self.prefix)
    }

    /// A subject, or several with `>`.
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

/// A name as one token. No two names have the same: `~` is no literal, and a digest begins with it.
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
        // Keys of other bytes have other subjects.
        assert_ne!(subjects("e\u{301}"), subjects("\u{e9}"));
        assert_eq!(subjects("%").0, "p.feed.%25");
    }

    #[test]
    fn a_prefix_is_a_subject() {
        let names = Names::new("stentor:").unwrap();
        assert_eq!(names.channel(&Channel::Nodes), "stentor.nodes");
        assert_eq!(names.stream("rooms"), "stentor_rooms");
        assert_eq!(Names::new("a.b").unwrap().stream("rooms"), "a_b_rooms");
        for bad in ["", ":", "a b", "a..b", "*", "a.>", "é"] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}
