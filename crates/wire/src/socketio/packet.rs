//! Packets as they are yielded: pieces of the messages they came in.

use std::borrow::Cow;

use crate::engineio;
use stentor_json as json;

/// The protocol's revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Socket.IO 1 and 2, over Engine.IO 3.
    V4,
    /// Socket.IO 3 and 4, over Engine.IO 4.
    V5,
}

impl From<engineio::Version> for Version {
    fn from(version: engineio::Version) -> Version {
        match version {
            engineio::Version::V3 => Version::V4,
            engineio::Version::V4 => Version::V5,
        }
    }
}

/// Event names that no packet may have, because they mean something of their own in Socket.IO or Node.js.
pub const RESERVED_EVENTS: [&str; 6] =
    ["connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener"];

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Begins with `/`. In protocol 4 without a query.
    pub namespace: &'a str,
    /// What it says.
    pub body: Body<'a>,
}

/// What a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// A client asks for a namespace, or a server grants it.
    Connect {
        /// A JSON object: authentication from a client, `sid` and perhaps `pid` from a server of protocol 5. See
        /// [`json::string_member`].
        payload: Option<&'a str>,
        /// The query in the namespace, as it was sent, without `?`: protocol 4's authentication.
        query: Option<&'a str>,
    },
    /// A server refuses a namespace.
    ConnectError {
        /// JSON: an object with `message` and perhaps `data` in protocol 5; anything, mostly a string, in protocol 4.
        payload: Option<&'a str>,
    },
    /// One side leaves a namespace.
    Disconnect,
    /// An event.
    Event(Event<'a>),
    /// The answer to an event.
    Ack(Ack<'a>),
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The name as JSON: a string that isn't reserved, or a number.
    pub raw_name: &'a str,
    /// What follows the name.
    pub arguments: Arguments<'a>,
    /// Name and arguments as they were sent, without brackets: for [`write_event_list`](super::write_event_list).
    pub raw: &'a str,
    /// The sender wants an ack with this id.
    pub id: Option<u64>,
    /// What its placeholders name.
    pub attachments: Attachments<'a>,
}

impl<'a> Event<'a> {
    /// The name; of a number its digits as they were sent.
    #[inline]
    pub fn name(&self) -> Cow<'a, str> {
        json::string(self.raw_name).unwrap_or(Cow::Borrowed(self.raw_name))
    }
}

/// The answer to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The event's id.
    pub id: u64,
    /// What it says.
    pub arguments: Arguments<'a>,
    /// What its placeholders name.
    pub attachments: Attachments<'a>,
}

/// A list of JSON values, as text. It has been checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// Neither begins nor ends with white space.
    pub(super) raw: &'a str,
}

impl<'a> Arguments<'a> {
    /// All, with the commas between them: `1,"two"`. Empty if there are none.
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// One after the other, each as JSON.
    pub fn iter(&self) -> json::Elements<'a> {
        json::elements(self.raw)
    }
}

impl<'a> IntoIterator for Arguments<'a> {
    type Item = &'a str;
    type IntoIter = json::Elements<'a>;

    fn into_iter(self) -> json::Elements<'a> {
        self.iter()
    }
}

/// The attachments of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attachments<'a> {
    /// All but the last, one after the other, each of which ends where `ends` says.
    pub(super) gathered: &'a [u8],
    pub(super) ends: &'a [usize],
    /// `None` if there are no attachments at all.
    pub(super) last: Option<&'a [u8]>,
}

impl<'a> Attachments<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len() + usize::from(self.last.is_some())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The attachment that the placeholder with this number stands for.
    pub fn get(&self, number: usize) -> Option<&'a [u8]> {
        let Some(end) = self.ends.get(number) else {
            return self.last.filter(|_| number == self.ends.len());
        };
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.gathered.get(start..*end)
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).filter_map(move |number| self.get(number))
    }
}
