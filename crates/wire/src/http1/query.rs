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

/// Decodes percent-encoding exactly once, strictly: for paths and what is taken from them.
///
/// # Errors
/// [`Error::BadPercentEncoding`] if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
pub fn percent_decode(text: &str) -> Result<Cow<'_, str>, Error> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            decoded.push(escaped(&bytes[at..]).ok_or(Error::BadPercentEncoding)?);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| Error::BadPercentEncoding)
}

/// Decodes one name or value as `URLSearchParams` does: `+` is a space, a broken escape stands for itself, broken
/// UTF-8 becomes U+FFFD.
fn form_decode(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'%' || byte == b'+') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], escaped(&bytes[at..])) {
            (b'+', _) => decoded.push(b' '),
            (_, Some(byte)) => {
                decoded.push(byte);
                at += 2;
            }
            (byte, None) => decoded.push(byte),
        }
        at += 1;
    }
    Cow::Owned(match String::from_utf8(decoded) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// The pairs of a query (without `?`), decoded once, in order, as `URLSearchParams` reads them.
pub fn query_pairs(query: &str) -> QueryPairs<'_> {
    QueryPairs { rest: query }
}

/// Iterator of [`query_pairs`].
#[derive(Debug, Clone)]
pub struct QueryPairs<'b> {
    rest: &'b str,
}

impl<'b> Iterator for QueryPairs<'b> {
    type Item = (Cow<'b, str>, Cow<'b, str>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (pair, rest) = self.rest.split_once('&').unwrap_or((self.rest, ""));
            self.rest = rest;
            if !pair.is_empty() {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                return Some((form_decode(name), form_decode(value)));
            }
        }
        None
    }
}
