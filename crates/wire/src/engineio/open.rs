//! The handshake: the content of a session's open packet.

use std::borrow::Cow;
use std::time::Duration;

use super::{Error, Transport, Version};
use stentor_json as json;

/// The content of an open packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open<'a> {
    /// The session's id.
    pub sid: Cow<'a, str>,
    /// `true` if the client may upgrade to a WebSocket, `false` if it already uses one.
    pub websocket_upgrade: bool,
    /// Time between two pings. Travels in milliseconds.
    pub ping_interval: Duration,
    /// Time within which a ping must be answered. Travels in milliseconds.
    pub ping_timeout: Duration,
    /// Maximum size of a body or a message that the server accepts. Protocol 4 only.
    pub payload_bytes_max: Option<u64>,
}

impl<'a> Open<'a> {
    /// Appends the text of the open packet. Protocol 4 requires exactly five members, so `payload_bytes_max`
    /// should be set. Protocol 3 leaves it out.
    pub fn write(&self, version: Version, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let mut number = |out: &mut Vec<u8>, name: &[u8], value: u64| {
            out.extend_from_slice(name);
            out.extend_from_slice(digits.format(value).as_bytes());
        };
        out.extend_from_slice(b"{\"sid\":");
        json::write_string(out, &self.sid);
        out.extend_from_slice(b",\"upgrades\":[");
        if self.websocket_upgrade {
            json::write_string(out, Transport::WebSocket.name());
        }
        number(out, b"],\"pingInterval\":", self.ping_interval.as_millis() as u64);
        number(out, b",\"pingTimeout\":", self.ping_timeout.as_millis() as u64);
        if let (Version::V4, Some(bytes)) = (version, self.payload_bytes_max) {
            number(out, b",\"maxPayload\":", bytes);
        }
        out.push(b'}');
    }

    /// Reads the text of an open packet, as a client does. Unknown members and unknown upgrades are ignored.
    ///
    /// # Errors
    /// [`Error::BadOpen`] if the text isn't a JSON object, or a member is missing or has the wrong type.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        json::check(text).map_err(|_| Error::BadOpen)?;
        let number = |name| json::member(text, name)?.parse::<u64>().ok();
        let open = || {
            // In protocol 3's document the member is missing if the client already uses a WebSocket.
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
