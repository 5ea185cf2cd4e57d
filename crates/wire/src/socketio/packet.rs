//! Decoded packets: they borrow from their messages.

use std::borrow::Cow;

use crate::engineio;
use stentor_json as json;

/// The protocol revision.
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

/// Event names that no packet may have, because they have a special meaning in Socket.IO or Node.js.
pub const RESERVED_EVENTS: [&str; 6] =
    ["connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener"];

/// A packet of either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The namespace. Begins with `/`; in protocol 4 without its query.
    pub namespace: &'a str,
    /// The packet's content.
    pub body: Body<'a>,
}

/// The content of a packet, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// A client requests a namespace, or a server confirms it.
    Connect {
        /// A JSON object: authentication data from a client, `sid` and optionally `pid` from a server of
        /// protocol 5. Read it with [`json::string_member`].
        payload: Option<&'a str>,
        /// The namespace's query as sent, without `?`: protocol 4's authentication data.
        query: Option<&'a str>,
    },
    /// A server refuses a namespace.
    ConnectError {
        /// JSON. Protocol 5: an object with `message` and optionally `data`. Protocol 4: any value, usually a
        /// string.
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
    /// The name as JSON: a non-reserved string, or a number.
    pub raw_name: &'a str,
    /// `true` if the name is a string with escapes.
    pub(super) is_name_escaped: bool,
    /// The values after the name.
    pub arguments: Arguments<'a>,
    /// Name and arguments as sent, without brackets: for [`write_event_list`](super::write_event_list).
    pub raw: &'a str,
    /// Id of the ack that the sender requests.
    pub id: Option<u64>,
    /// The attachments to which its placeholders refer.
    pub attachments: Attachments<'a>,
}

impl<'a> Event<'a> {
    /// Returns the name. If it is a number, returns its digits as sent.
    #[inline]
    pub fn name(&self) -> Cow<'a, str> {
        let [b'"', raw @ .., b'"'] = self.raw_name.as_bytes() else { return Cow::Borrowed(self.raw_name) };
        let raw = self.raw_name.get(1..1 + raw.len()).unwrap_or_default();
        if self.is_name_escaped { json::unescape(raw) } else { Cow::Borrowed(raw) }
    }
}

/// The answer to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Id of the acknowledged event.
    pub id: u64,
    /// The arguments of the ack.
    pub arguments: Arguments<'a>,
    /// The attachments to which its placeholders refer.
    pub attachments: Attachments<'a>,
}

/// A checked list of JSON values, as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// The text, without white space at its ends.
    pub(super) raw: &'a str,
}

impl<'a> Arguments<'a> {
    /// Returns all values with the commas between them: `1,"two"`. Empty if the list has no value.
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Returns `true` if the list has no value.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Iterates over the values, each as JSON.
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
    /// All attachments but the last, concatenated. `ends` has the end of each.
    pub(super) gathered: &'a [u8],
    pub(super) ends: &'a [usize],
    /// The last attachment; `None` if the packet has no attachments.
    pub(super) last: Option<&'a [u8]>,
}

impl<'a> Attachments<'a> {
    /// Returns the number of attachments.
    pub fn len(&self) -> usize {
        self.ends.len() + usize::from(self.last.is_some())
    }

    /// Returns `true` if the packet has no attachments.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the attachment to which a placeholder with this number refers.
    pub fn get(&self, number: usize) -> Option<&'a [u8]> {
        let Some(end) = self.ends.get(number) else {
            return self.last.filter(|_| number == self.ends.len());
        };
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.gathered.get(start..*end)
    }

    /// Iterates over the attachments.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).filter_map(move |number| self.get(number))
    }
}
