//! The channels of the classic adapter.
//!
//! | channel | content |
//! |---|---|
//! | `socket.io#/chat#` | broadcasts to no room or several |
//! | `socket.io#/chat#ROOM#` | broadcasts to one room |
//! | `socket.io-request#/chat#` | requests |
//! | `socket.io-response#/chat#`, `socket.io-response#/chat#UID#` | answers |

pub use stentor_cluster_settings::REDIS_ADAPTER_PREFIX as PREFIX;

/// The channels of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channels {
    broadcasts: String,
    request: String,
    response: String,
}

/// The purpose of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel<'a> {
    /// Broadcasts.
    Broadcast {
        /// The room, if the broadcast is to exactly one. A node without members of this room doesn't need the payload.
        room: Option<&'a str>,
    },
    /// Requests.
    Request,
    /// Answers.
    Response,
}

impl Channels {
    /// The channels of `namespace`, which begins with a slash.
    pub fn new(prefix: &str, namespace: &str) -> Self {
        Self {
            broadcasts: format!("{prefix}#{namespace}#"),
            request: format!("{prefix}-request#{namespace}#"),
            response: format!("{prefix}-response#{namespace}#"),
        }
    }

    /// The pattern of all broadcasts. Namespaces are matched as they are; Socket.IO's adapter doesn't escape them.
    ///
    /// A namespace `/a#b` has the channel that room `b` of namespace `/a` has: compare [`namespace`] as well.
    ///
    /// [`namespace`]: super::Broadcast::namespace
    pub fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.broadcasts.len() + 1);
        for character in self.broadcasts.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        pattern
    }

    /// The channel for a broadcast to these rooms.
    pub fn broadcast<R: AsRef<str>>(&self, rooms: &[R]) -> String {
        match rooms {
            [room] => format!("{}{}#", self.broadcasts, room.as_ref()),
            _ => self.broadcasts.clone(),
        }
    }

    /// The channel for requests. Redis's `PUBSUB NUMSUB` of this channel is the number of servers that answer.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// The channel for answers.
    pub fn response(&self) -> &str {
        &self.response
    }

    /// The channel for answers to the requests of one server, if the answering server is configured so.
    pub fn response_to(&self, uid: &str) -> String {
        format!("{}{uid}#", self.response)
    }

    /// Decodes the name of a channel. `None` if the channel isn't one of this namespace.
    pub fn decode<'a>(&self, channel: &'a [u8]) -> Option<Channel<'a>> {
        let channel = str::from_utf8(channel).ok()?;
        if let Some(room) = channel.strip_prefix(&self.broadcasts) {
            let room = if room.is_empty() { None } else { Some(room.strip_suffix('#')?) };
            return Some(Channel::Broadcast { room });
        }
        if channel == self.request {
            return Some(Channel::Request);
        }
        channel.starts_with(&self.response).then_some(Channel::Response)
    }
}
