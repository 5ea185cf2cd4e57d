//! JSONP polling with script elements and forms, for pages that can't send cross-origin requests.
//!
//! A response calls the page's callback function number `j`. A POST is a form with one field `d`. Both carry
//! a payload in a text format.

use std::borrow::Cow;

use super::Error;
use super::request::push_percent_encoded;
use crate::http1;
use stentor_json::{Escaping, write_escaped};

/// Appends the response to a poll: a script that passes `payload` to the callback. Its Content-Type is
/// `text/javascript; charset=UTF-8`.
pub fn write_answer(out: &mut Vec<u8>, index: u32, payload: &str) {
    out.extend_from_slice(b"___eio[");
    out.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
    out.extend_from_slice(b"](");
    write_escaped(out, payload, Escaping::Script);
    out.extend_from_slice(b");");
}

/// Reads the payload in the body of a POST.
///
/// Browsers change line ends in forms, so the client writes a line feed as `\n`, and an original `\n` as
/// `\\n`. Longer runs of backslashes before `n` are ambiguous: one backslash is removed, as in the reference.
///
/// # Errors
/// [`Error::BadUtf8`]; [`Error::BadForm`] unless there is exactly one field `d`.
pub fn decode_form(body: &[u8]) -> Result<Cow<'_, str>, Error> {
    let body = simdutf8::basic::from_utf8(body).map_err(|_| Error::BadUtf8)?;
    let mut fields = http1::query_pairs(body).filter(|(name, _)| name == "d").map(|(_, value)| value);
    let (Some(text), None) = (fields.next(), fields.next()) else { return Err(Error::BadForm) };
    Ok(if text.contains("\\n") { Cow::Owned(unescape(&text)) } else { text })
}

fn unescape(text: &str) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\n") {
        let before = &rest[..at];
        match before.strip_suffix('\\') {
            Some(before) => unescaped.extend([before, "\\n"]),
            None => unescaped.extend([before, "\n"]),
        }
        rest = &rest[at + 2..];
    }
    unescaped.push_str(rest);
    unescaped
}

/// Appends a payload as the body of a POST, as the client does. Its Content-Type is `application/x-www-form-urlencoded`.
pub fn encode_form(out: &mut Vec<u8>, payload: &str) {
    out.extend_from_slice(b"d=");
    let mut previous = 0;
    for byte in payload.bytes() {
        match byte {
            b'\n' => out.extend_from_slice(b"%5Cn"),
            b'n' if previous == b'\\' => out.extend_from_slice(b"%5Cn"),
            _ => push_percent_encoded(out, byte),
        }
        previous = byte;
    }
}
