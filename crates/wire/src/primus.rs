//! Primus 8 (npm `primus`), with its JSON parser over its `websockets` transformer, for both roles.
//!
//! Primus has no specification; this follows `spark.js`, `primus.js`, `parsers/json.js` and `middleware/` of 8.0.9, and
//! the chapter "Protocol" of its README. Every WebSocket text message is one JSON value. Strings that begin with
//! `primus::` are the protocol's own, everything else is the application's:
//!
//! | text | direction | meaning |
//! |---|---|---|
//! | `"primus::ping::T"` | server → client (7, 8) | the server lives; T is its clock in milliseconds |
//! | `"primus::pong::T"` | client → server (7, 8) | answers a ping, with the same T |
//! | `"primus::id::"` | client → server | asks for the session's id |
//! | `"primus::id::ID"` | server → client | answers it |
//! | `"primus::server::close"` | server → client | the end is meant: don't reconnect |
//!
//! **Who pings.** Up to 6 the client pings (every 25 s, and gives up after 10 s without a pong) and the server only
//! answers and times out; from 7 on (primus/primus pull request 534) the server pings (every 30 s, and ends a session
//! that has not answered before the next one) and the client only answers (and gives up after 45 s without a ping).
//! The query does not tell which a client is. Both are read here: a server that pings, answers pings, and no longer
//! pings a session that has pinged serves all versions. A client of version 7 or 8 never pings; one up to 6 takes a
//! server's ping for a message of the application.
//!
//! **The handshake** is a WebSocket's at `/primus` or `/primus/`. Its query has `_primuscb` (since 2: a time, to
//! keep caches away, no meaning) and whatever the page put in the URL it connects to, such as our `feed` and
//! `resourceId`. A client asks for nothing else by itself; pages load [`Route::Library`], tools may read
//! [`Route::Spec`].
//!
//! Decisions:
//! * Messages are not parsed, only told apart by how they begin. An unknown `primus::` string is dropped, as the README
//!   demands (the code of 8 passes it on).
//! * An application's message that a client would take for the protocol's is refused ([`is_reserved`]): else whoever
//!   publishes to a room could send its members away with `primus::server::close`.
//!
//! Deliberately absent: other parsers and transformers, plugins, the client library itself.

use std::time::Duration;
use stentor_json::{Escaping, RawString, trim_start, write_escaped};

/// The version whose protocol this is, for [`write_spec`].
pub const VERSION: &str = "8.0.9";

/// The status and text that a plain request to the handshake's URL is answered with, as `text/plain`.
pub const NOT_WEBSOCKET: (u16, &str) = (426, "Upgrade Required");

/// What the protocol's own strings begin with.
pub const PREFIX: &str = "primus::";

/// What a path under the prefix asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The handshake.
    Connect,
    /// `/primus.js`: the client library, `text/javascript; charset=utf-8`.
    Library,
    /// `/spec`: what [`write_spec`] writes, `application/json`.
    Spec,
}

/// Reads what follows the prefix in a path. Primus answers any other path under it as the handshake's; we don't find
/// it.
pub fn parse_path(rest: &str) -> Option<Route> {
    match rest {
        "" | "/" => Some(Route::Connect),
        "/primus.js" => Some(Route::Library),
        "/spec" => Some(Route::Spec),
        _ => None,
    }
}

/// What a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromClient<'b> {
    /// An answer to a ping, whose text it repeats.
    Pong(&'b str),
    /// A client up to version 6 wants a pong with this text.
    Ping(&'b str),
    /// It wants to know its id.
    AskId,
    /// The application's: a JSON value, not checked.
    Message(&'b str),
    /// Meant for the protocol, but unknown; to be ignored.
    Unknown,
}

/// What a server has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromServer<'b> {
    /// It wants a pong with this text.
    Ping(&'b str),
    /// A server up to version 6 answers a ping.
    Pong(&'b str),
    /// The session's id.
    Id(&'b str),
    /// It closes for good.
    Close,
    /// The application's: a JSON value, not checked.
    Message(&'b str),
    /// Meant for the protocol, but unknown; to be ignored.
    Unknown,
}

/// Tells apart what clients send, by text message.
pub fn from_client(text: &str) -> FromClient<'_> {
    match split(text) {
        None => FromClient::Message(text),
        Some(("pong", value)) => FromClient::Pong(value),
        Some(("ping", value)) => FromClient::Ping(value),
        Some(("id", _)) => FromClient::AskId,
        Some(_) => FromClient::Unknown,
    }
}

/// Tells apart what servers send, by text message.
pub fn from_server(text: &str) -> FromServer<'_> {
    match split(text) {
        None => FromServer::Message(text),
        Some(("ping", value)) => FromServer::Ping(value),
        Some(("pong", value)) => FromServer::Pong(value),
        Some(("id", value)) => FromServer::Id(value),
        Some(("server", "close")) => FromServer::Close,
        Some(_) => FromServer::Unknown,
    }
}

/// What is between `primus::` and the next colons, and what is after those. `None` if it is no string of that kind.
/// Values with escapes are none that any Primus writes, hence of a kind nobody knows.
fn split(text: &str) -> Option<(&str, &str)> {
    if !is_reserved(text) {
        return None;
    }
    let (value, rest) = RawString::read(trim_start(text)).ok()?;
    let plain = value.as_plain().filter(|_| trim_start(rest).is_empty());
    Some(plain.and_then(|value| value.strip_prefix(PREFIX)?.split_once("::")).unwrap_or(("", "")))
}

/// Whether a client or server would take a JSON value for the protocol's: a string that begins with `primus::`, however
/// it is escaped. Such a value must not be sent as a message.
pub fn is_reserved(json: &str) -> bool {
    RawString::read(trim_start(json)).is_ok_and(|(value, _)| value.starts_with(PREFIX))
}

/// Appends a JSON value as a message, `json` having been found good. U+2028 and U+2029, which JavaScript before 2019
/// takes for the end of a line, are escaped, as Primus does.
pub fn write_message(out: &mut Vec<u8>, json: &str) {
    out.reserve(json.len());
    let mut rest = json.as_bytes();
    while let Some(at) = memchr::memchr(0xe2, rest) {
        out.extend_from_slice(&rest[..at]);
        // Begins a character of three bytes.
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

/// Appends a text as a message: a JSON string. The caller asks `text.starts_with("primus::")` instead of
/// [`is_reserved`] before.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    write_escaped(out, text, Escaping::SockJs);
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

/// Appends a client's question for its id.
pub fn write_ask_id(out: &mut Vec<u8>) {
    write_id(out, "");
}

/// Appends what keeps a client from reconnecting, to be sent right before the connection is closed.
pub fn write_close(out: &mut Vec<u8>) {
    write_text(out, "primus::server::close");
}

/// Appends the answer to `/primus/spec`. `ping_interval` is `None` for a server that does not ping.
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
