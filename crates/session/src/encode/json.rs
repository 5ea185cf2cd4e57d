//! JSON strings and values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use stentor_hub::Data;

/// A text as a JSON string.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    stentor_json::write_string(&mut out, text);
    out
}

/// Appends a piece of JSON, and a text as a string after it.
pub(super) fn push_string(out: &mut Vec<u8>, before: &str, text: &str) {
    out.extend_from_slice(before.as_bytes());
    stentor_json::write_string(out, text);
}

/// Maximum size of an error text as sent: escaped, without its quotes.
pub(crate) const ERROR_BYTES_MAX: usize = 256;

/// An error text as a JSON string. It may repeat client input, so it is cut to [`ERROR_BYTES_MAX`] after escaping.
pub fn json_error_text(text: &str) -> String {
    let mut end = text.floor_char_boundary(ERROR_BYTES_MAX);
    loop {
        let escaped = json_string(&text[..end]);
        if escaped.len() <= ERROR_BYTES_MAX + 2 {
            return String::from_utf8(escaped).unwrap_or_default();
        }
        end = text.floor_char_boundary(end * 3 / 4);
    }
}

/// Data as a JSON value: JSON as it is, text as a string (bad UTF-8 replaced), bytes as base64, arguments as
/// an array (without their attachments).
pub(super) fn json_value(data: &Data) -> Cow<'_, [u8]> {
    match data {
        Data::Json(bytes) => Cow::Borrowed(bytes),
        Data::Text(bytes) => Cow::Owned(json_string(&String::from_utf8_lossy(bytes))),
        Data::Arguments { json, .. } => Cow::Owned([b"[", &json[..], b"]"].concat()),
        Data::Binary(bytes) => Cow::Owned(json_string(&STANDARD.encode(bytes))),
    }
}
