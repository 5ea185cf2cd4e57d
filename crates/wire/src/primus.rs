//! Primus 8 (npm `primus`), with its JSON parser over its `websockets` transformer, for both roles.
//!
//! Primus has no specification; this follows `spark.js`, `primus.js`, `parsers/json.js` and `middleware/` of 8.0.9, and
//! the chapter "Protocol" of its README. Every WebSocket text message is one JSON value. Strings that begin with
//! `primus::` are the protocol's own, everything else is the application's:
//!
//! | text | direction | meaning |
//! |---|---|---|
//! | `"primus::ping::T"` | server → client (7, 8) | heartbeat; T is the server's clock in milliseconds |
//! | `"primus::pong::T"` | client → server (7, 8) | answers a ping, with the same T |
//! | `"primus::id::"` | client → server | asks for the session's id |
//! | `"primus::id::ID"` | server → client | the session's id |
//! | `"primus::server::close"` | server → client | intentional close: the client must not reconnect |
//!
//! **Direction of pings.** In versions up to 6 the client pings (every 25 s, and gives up after 10 s without
//! a pong); the server only answers and times out. From 7 on (primus/primus pull request 534) the server
//! pings (every 30 s, and ends a session that has not answered before the next ping); the client only answers
//! (and gives up after 45 s without a ping). The query does not contain the client's version, so both kinds
//! of messages are decoded here. A server serves all versions if it sends pings, answers pings, and stops
//! pinging a session that has sent a ping. Clients of version 7 and 8 never send one. Clients up to version 6
//! read a server's ping as a message of the application.
//!
//! **The handshake** is a WebSocket handshake at `/primus` or `/primus/`. Its query has `_primuscb` (since 2:
//! a time that defeats caches, otherwise unused) and the parameters that the page put in its URL, such as our
//! `feed` and `resourceId`. A client requests no other path by itself. Pages load [`Route::Library`]; tools
//! may read [`Route::Spec`].
//!
//! Decisions:
//! * Messages are not parsed, only classified by their first characters. An unknown `primus::` string is
//!   dropped, as the README demands (the code of 8 delivers it).
//! * An application's message that a client would read as a protocol message is refused ([`is_reserved`]).
//!   Otherwise a publisher could disconnect all members of a room with `primus::server::close`.
//!
//! Deliberately absent: other parsers and transformers, plugins, the client library itself.

use std::time::Duration;
use stentor_json::{Escaping, RawString, trim_start, write_escaped};

/// The Primus version whose protocol is implemented, for [`write_spec`].
pub const VERSION: &str = "8.0.9";

/// Status and `text/plain` body of the response to a request without an upgrade at the handshake's URL.
pub const NOT_WEBSOCKET: (u16, &str) = (426, "Upgrade Required");

/// Prefix of the protocol's own strings.
pub const PREFIX: &str = "primus::";

/// The resource that a path under the prefix names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The handshake.
    Connect,
    /// `/primus.js`: the client library, `text/javascript; charset=utf-8`.
    Library,
    /// `/spec`: the output of [`write_spec`], `application/json`.
    Spec,
}

/// Reads the part of a path after the prefix. Primus treats every other path as the handshake; this function returns
/// `None`, which means not found.
pub fn parse_path(rest: &str) -> Option<Route> {
    match rest {
        "" | "/" => Some(Route::Connect),
        "/primus.js" => Some(Route::Library),
        "/spec" => Some(Route::Spec),
        _ => None,
    }
}

/// A decoded message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromClient<'b> {
    /// An answer to a ping, whose text it repeats.
    Pong(&'b str),
    /// A ping of a client up to version 6, which expects a pong with this text.
    Ping(&'b str),
    /// The client requests its session id.
    AskId,
    /// A message of the application: one JSON string, checked.
    Text(RawString<'b>),
    /// Any other message of the application: JSON, not checked.
    Message(&'b str),
    /// An unknown protocol message, to be ignored.
    Unknown,
}

/// A decoded message of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromServer<'b> {
    /// A ping; the server expects a pong with this text.
    Ping(&'b str),
    /// The answer of a server up to version 6 to a ping.
    Pong(&'b str),
    /// The session's id.
    Id(&'b str),
    /// The server closes the session for good.
    Close,
    /// A message of the application: JSON, not checked.
    Message(&'b str),
    /// An unknown protocol message, to be ignored.
    Unknown,
}

/// Classifies a client's text message.
pub fn from_client(text: &str) -> FromClient<'_> {
    match RawString::read(trim_start(text)) {
        Ok((value, rest)) if value.starts_with(PREFIX) => match split(value, rest) {
            ("pong", value) => FromClient::Pong(value),
            ("ping", value) => FromClient::Ping(value),
            ("id", _) => FromClient::AskId,
            _ => FromClient::Unknown,
        },
        Ok((value, rest)) if trim_start(rest).is_empty() => FromClient::Text(value),
        _ => FromClient::Message(text),
    }
}

/// Classifies a server's text message.
pub fn from_server(text: &str) -> FromServer<'_> {
    match RawString::read(trim_start(text)) {
        Ok((value, rest)) if value.starts_with(PREFIX) => match split(value, rest) {
            ("ping", value) => FromServer::Ping(value),
            ("pong", value) => FromServer::Pong(value),
            ("id", value) => FromServer::Id(value),
            ("server", "close") => FromServer::Close,
            _ => FromServer::Unknown,
        },
        _ => FromServer::Message(text),
    }
}

/// Splits a protocol string, which `rest` follows, into the part between `primus::` and the next colons, and the part
/// after them. Both are empty if the string has another form. Primus never writes values with escapes, so such a value is
/// of an unknown kind.
fn split<'a>(value: RawString<'a>, rest: &str) -> (&'a str, &'a str) {
    let plain = value.as_plain().filter(|_| trim_start(rest).is_empty());
    plain.and_then(|value| value.strip_prefix(PREFIX)?.split_once("::")).unwrap_or_default()
}

/// Returns `true` if a client or server would read a JSON value as a protocol message: a string that begins
/// with `primus::`, however it is escaped. Such a value must not be sent as a message.
pub fn is_reserved(json: &str) -> bool {
    RawString::read(trim_start(json)).is_ok_and(|(value, _)| value.starts_with(PREFIX))
}

/// Like [`is_reserved`], for a text that is sent as a string.
#[inline]
pub fn is_reserved_text(text: &str) -> bool {
    text.as_bytes().first_chunk() == PREFIX.as_bytes().first_chunk::<8>()
}

/// Appends a JSON value as a message. `json` must be valid. U+2028 and U+2029, which end a line in JavaScript
/// before 2019, are escaped, as Primus does.
pub fn write_message(out: &mut Vec<u8>, json: &str) {
    out.reserve(json.len());
    let mut rest = json.as_bytes();
    while let Some(at) = memchr::memchr(0xe2, rest) {
        out.extend_from_slice(&rest[..at]);
        // `at` is the first byte of a three-byte character.
        let (character, after) = rest[at..].split_at(3.min(rest.len() - at));
        match character {
            b"\xe2\x80\xa8" => out.extend_from_slice(b"\\u2028"),
            b"\xe2\x80\xa9" => out.extend_from_slice(b"\\u2029"),
            _ => out.extend_from_slice(character),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Appends a text as a message: a JSON string. The caller must check [`is_reserved_text`] before.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    write_escaped(out, text, Escaping::Transit);
}

/// Appends a server's ping. `now` is the time since 1970.
pub fn write_ping(out: &mut Vec<u8>, now: Duration) {
    write_text(out, &format!("primus::ping::{}", now.as_millis()));
}

/// Appends the pong to a ping with this text.
pub fn write_pong(out: &mut Vec<u8>, ping: &str) {
    write_text(out, &format!("primus::pong::{ping}"));
}

/// Appends a session's id.
pub fn write_id(out: &mut Vec<u8>, id: &str) {
    write_text(out, &format!("primus::id::{id}"));
}

/// Appends the message that keeps a client from reconnecting. Send it right before closing the connection.
pub fn write_close(out: &mut Vec<u8>) {
    write_text(out, "primus::server::close");
}

/// Appends the response to `/primus/spec`. `ping_interval` is `None` for a server that does not ping.
pub fn write_spec(out: &mut Vec<u8>, pathname: &str, ping_interval: Option<Duration>) {
    let interval = ping_interval.map_or("false".to_owned(), |interval| interval.as_millis().to_string());
    out.extend_from_slice(format!("{{\"pingInterval\":{interval},\"pathname\":").as_bytes());
    write_text(out, pathname);
    out.extend_from_slice(
        format!(",\"version\":\"{VERSION}\",\"parser\":\"json\",\"transformer\":\"websockets\"}}").as_bytes(),
    );
}

#[cfg(test)]
mod tests;
