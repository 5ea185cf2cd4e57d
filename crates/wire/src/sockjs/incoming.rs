//! Payloads of clients: a JSON array of strings, in the body of a POST or in a WebSocket message.
//!
//! The complete payload is checked before the first message is returned, so a malformed payload delivers no
//! message. Messages borrow from the payload; only messages with escapes are copied.

use super::Error;
use crate::http1;
use std::borrow::Cow;
use stentor_json::{RawString, strip_byte, trim_start};

/// Limits for a payload. The caller limits the payload's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of messages in one payload. Default 10,000.
    pub messages_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { messages_max: 10_000 }
    }
}

/// The messages of one payload, unescaped one by one.
#[derive(Debug, Clone)]
pub struct Messages<'b> {
    /// The next message, if it has been read already.
    first: Option<RawString<'b>>,
    /// Checked rest of the payload. Begins before the opening quote of the message after `first`.
    rest: &'b str,
    left: usize,
}

impl<'b> Messages<'b> {
    /// Continues with the rest that [`Messages::rest`] returned, which has `left` messages.
    pub fn resume(rest: &'b str, left: usize) -> Self {
        Messages { first: None, rest, left }
    }

    /// Returns the end of the payload with the remaining messages; `None` before the first message was taken.
    pub fn rest(&self) -> Option<&'b str> {
        self.first.is_none().then_some(self.rest)
    }

    /// Returns the number of remaining messages.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Returns `true` if no message is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Returns the next message. A message with escapes is unescaped into `scratch`, which saves an
    /// allocation per message.
    pub fn next_in<'s>(&mut self, scratch: &'s mut String) -> Option<&'s str>
    where
        'b: 's,
    {
        self.next_raw().map(|raw| raw.unescape_in(scratch))
    }

    fn next_raw(&mut self) -> Option<RawString<'b>> {
        self.left = self.left.checked_sub(1)?;
        if let Some(raw) = self.first.take() {
            return Some(raw);
        }
        // Only commas and white space stand between strings.
        let (raw, rest) = RawString::read(&self.rest[self.rest.find('"')?..]).ok()?;
        self.rest = rest;
        Some(raw)
    }
}

impl<'b> Iterator for Messages<'b> {
    type Item = Cow<'b, str>;

    fn next(&mut self) -> Option<Cow<'b, str>> {
        self.next_raw().map(RawString::unescape)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Messages<'_> {}

/// Reads the body of an `xhr_send`, whatever its content type.
///
/// # Errors
/// [`Error::NoPayload`], [`Error::NotArray`], [`Error::NotText`], [`Error::BadJson`], [`Error::TooManyMessages`].
pub fn parse_body<'b>(body: &'b [u8], limits: &Limits) -> Result<Messages<'b>, Error> {
    if body.is_empty() {
        return Err(Error::NoPayload);
    }
    let text = simdutf8::basic::from_utf8(body).map_err(|_| Error::BadJson)?;
    parse_array(text, limits)
}

/// Returns the payload in the body of a `jsonp_send`, for [`parse_body`]: field `d` of a form, or a complete
/// `text/plain` body.
///
/// # Errors
/// [`Error::NoPayload`] if the payload is missing or the content type is another one; [`Error::BadJson`] if a
/// form is not UTF-8.
pub fn jsonp_payload<'b>(content_type: Option<&str>, body: &'b [u8]) -> Result<Cow<'b, [u8]>, Error> {
    let media_type = content_type.unwrap_or("").split(';').next().unwrap_or("").trim();
    let payload = if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let form = simdutf8::basic::from_utf8(body).map_err(|_| Error::BadJson)?;
        match http1::query_pairs(form).find(|(name, _)| name == "d").ok_or(Error::NoPayload)?.1 {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    } else if media_type.is_empty() || media_type.eq_ignore_ascii_case("text/plain") {
        Cow::Borrowed(body)
    } else {
        return Err(Error::NoPayload);
    };
    if payload.is_empty() { Err(Error::NoPayload) } else { Ok(payload) }
}

/// Reads a WebSocket message: an array or, as in sockjs-node, a single string. An empty message has no
/// messages.
///
/// # Errors
/// [`Error::NotArray`], [`Error::NotText`], [`Error::BadJson`], [`Error::TooManyMessages`].
pub fn parse_websocket<'b>(text: &'b str, limits: &Limits) -> Result<Messages<'b>, Error> {
    if text.is_empty() {
        return Ok(Messages { first: None, rest: "", left: 0 });
    }
    if strip_byte(trim_start(text), b'"').is_some() { parse_single(text) } else { parse_array(text, limits) }
}

/// Parses one string that fills the text.
pub(super) fn parse_single(text: &str) -> Result<Messages<'_>, Error> {
    match RawString::read(trim_start(text)) {
        Ok((raw, rest)) if trim_start(rest).is_empty() => Ok(Messages { first: Some(raw), rest, left: 1 }),
        _ => Err(Error::BadJson),
    }
}

/// Parses an array of strings that fills the text.
pub(super) fn parse_array<'b>(text: &'b str, limits: &Limits) -> Result<Messages<'b>, Error> {
    let elements = strip_byte(trim_start(text), b'[').ok_or_else(|| not_that(text, Error::NotArray))?;
    let mut messages = Messages { first: None, rest: "", left: 0 };
    let mut rest = trim_start(elements);
    if let Some(after) = strip_byte(rest, b']') {
        rest = after;
    } else {
        loop {
            if strip_byte(rest, b'"').is_none() {
                return Err(not_that(rest, Error::NotText));
            }
            if messages.left == limits.messages_max {
                return Err(Error::TooManyMessages);
            }
            let (raw, after) = RawString::read(rest).map_err(|_| Error::BadJson)?;
            if messages.left == 0 {
                (messages.first, messages.rest) = (Some(raw), after);
            }
            messages.left += 1;
            let after = trim_start(after);
            if let Some(after) = strip_byte(after, b',') {
                rest = trim_start(after);
            } else {
                rest = strip_byte(after, b']').ok_or(Error::BadJson)?;
                break;
            }
        }
    }
    if trim_start(rest).is_empty() { Ok(messages) } else { Err(Error::BadJson) }
}

/// Returns `error` if a JSON value could begin here, otherwise [`Error::BadJson`]. The value is not read to
/// its end, because the payload is refused in any case.
fn not_that(text: &str, error: Error) -> Error {
    match trim_start(text).as_bytes() {
        [b'{' | b'[' | b'"' | b'-' | b'0'..=b'9', ..] => error,
        value if [&b"true"[..], b"false", b"null"].iter().any(|word| value.starts_with(word)) => error,
        _ => Error::BadJson,
    }
}
