//! Percent-encoding of paths (RFC 3986) and of queries (application/x-www-form-urlencoded, WHATWG URL).

use std::borrow::Cow;

use super::Error;

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

fn escaped(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    }
}

/// Decodes `text`. Returns its bytes, and whether every `%` is followed by two hexadecimal digits. Other `%`
/// signs are copied.
fn decode(text: &str, plus: u8) -> (Vec<u8>, bool) {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let (mut at, mut is_sound) = (0, true);
    while at < bytes.len() {
        let byte = escaped(&bytes[at..]);
        decoded.push(match bytes[at] {
            b'+' => plus,
            other => byte.unwrap_or(other),
        });
        is_sound &= bytes[at] != b'%' || byte.is_some();
        at += if byte.is_some() { 3 } else { 1 };
    }
    (decoded, is_sound)
}

/// Decodes percent-encoding exactly once, strictly: for paths and their segments.
///
/// # Errors
/// [`Error::BadPercentEncoding`] if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
pub fn percent_decode(text: &str) -> Result<Cow<'_, str>, Error> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let (decoded, is_sound) = decode(text, b'+');
    let decoded = String::from_utf8(decoded).ok().filter(|_| is_sound);
    decoded.map(Cow::Owned).ok_or(Error::BadPercentEncoding)
}

/// Decodes one name or value as `URLSearchParams` does: `+` becomes a space, a malformed escape is copied,
/// malformed UTF-8 becomes U+FFFD.
fn form_decode(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Cow::Borrowed(text);
    }
    let (decoded, _) = decode(text, b' ');
    Cow::Owned(
        String::from_utf8(decoded)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

/// Iterates over the pairs of a query (without `?`), decoded once, in order, as `URLSearchParams` reads them.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decode(name), form_decode(value))
    })
}
