//! JSON strings and values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use stentor_hub::Data;

/// Returns a text as a JSON string.
pub(crate) fn json_string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    stentor_json::write_string(&mut out, text);
    out
}

/// Appends the JSON text `before`, and `text` as a string after it.
pub(super) fn push_string(out: &mut Vec<u8>, before: &str, text: &str) {
    out.extend_from_slice(before.as_bytes());
    stentor_json::write_string(out, text);
}

/// Maximum size of an error text as it is sent, in bytes: escaped, without its quotes.
pub(crate) const ERROR_BYTES_MAX: usize = 256;

/// Returns an error text as a JSON string. It may repeat client input, so it is cut to `ERROR_BYTES_MAX` after escaping.
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

/// Returns data as a JSON value: JSON unchanged, text as a string (invalid UTF-8 is replaced), bytes as base64, arguments as an
/// array (without their attachments).
pub(super) fn json_value(data: &Data) -> Cow<'_, [u8]> {
    match data {
        Data::Json(bytes) => Cow::Borrowed(bytes),
        Data::Text(bytes) => Cow::Owned(json_string(&String::from_utf8_lossy(bytes))),
        Data::Arguments { json, .. } => Cow::Owned([b"[", &json[..], b"]"].concat()),
        Data::Binary(bytes) => Cow::Owned(json_string(&STANDARD.encode(bytes))),
    }
}
