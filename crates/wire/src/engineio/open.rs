//! The handshake: what the open packet of a session says.

use std::borrow::Cow;
use std::time::Duration;

use super::{Error, Transport, Version};
use stentor_json as json;

/// The handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open<'a> {
    /// The session's id.
    pub sid: Cow<'a, str>,
    /// Whether the client may move to a WebSocket. Not, if it has one already.
    pub websocket_upgrade: bool,
    /// Time between two pings. Travels in milliseconds.
    pub ping_interval: Duration,
    /// How long a ping may go unanswered. Travels in milliseconds.
    pub ping_timeout: Duration,
    /// The most that the server takes in a body or a message. Protocol 4 only.
    pub payload_bytes_max: Option<u64>,
}

impl<'a> Open<'a> {
    /// Appends the text of the open packet. In protocol 4 it has exactly five members, so `payload_bytes_max` should be
    /// there; in protocol 3 that one is left out.
    pub fn write(&self, version: Version, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let mut number = |out: &mut Vec<u8>, name: &[u8], value: u128| {
            out.extend_from_slice(name);
            out.extend_from_slice(digits.format(value).as_bytes());
        };
        out.extend_from_slice(b"{\"sid\":");
        json::write_string(out, &self.sid);
        out.extend_from_slice(b",\"upgrades\":[");
        if self.websocket_upgrade {
            json::write_string(out, Transport::WebSocket.name());
        }
        number(out, b"],\"pingInterval\":", self.ping_interval.as_millis());
        number(out, b",\"pingTimeout\":", self.ping_timeout.as_millis());
        if let (Version::V4, Some(bytes)) = (version, self.payload_bytes_max) {
            number(out, b",\"maxPayload\":", bytes.into());
        }
        out.push(b'}');
    }

    /// Reads the text of an open packet: the client's side. Members that aren't known, and upgrades, are passed over.
    ///
    /// # Errors
    /// [`Error::BadOpen`] if it isn't a JSON object, or a member is missing or of the wrong type.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        json::check(text).map_err(|_| Error::BadOpen)?;
        let number = |name| json::member(text, name)?.parse::<u64>().ok();
        let open = || {
            // Missing where the client has a WebSocket already, in the document of protocol 3.
            let upgrades =
                json::member(text, "upgrades").unwrap_or("[]").strip_prefix('[')?.strip_suffix(']')?;
            Some(Open {
                sid: json::string_member(text, "sid")?,
                websocket_upgrade: json::elements(upgrades)
                    .any(|value| json::string(value).as_deref() == Some(Transport::WebSocket.name())),
                ping_interval: Duration::from_millis(number("pingInterval")?),
                ping_timeout: Duration::from_millis(number("pingTimeout")?),
                payload_bytes_max: number("maxPayload"),
            })
        };
        open().ok_or(Error::BadOpen)
    }
}
