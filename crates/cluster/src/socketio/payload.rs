//! Payloads as JSON text, and the parts of that text.

use super::msgpack_to_json::to_json;
use super::{ATTACHMENTS_MAX, NAME_BYTES_MAX, ROOMS_MAX, WireError};
use crate::engine::PAYLOAD_BYTES_MAX;
use bytes::Bytes;
use std::sync::Arc;
use stentor_hub::Data;
use stentor_json as json;
use stentor_wire::socketio::check_placeholders;

/// Maximum number of bytes of JSON for one byte of MessagePack: those of an escaped control character.
const TEXT_BYTES_PER_BYTE_MAX: usize = 6;
/// Maximum size of an attachment's placeholder.
const PLACEHOLDER_BYTES_MAX: usize = 40;

/// A payload: JSON text, and the attachments of its placeholders.
pub(super) struct Payload {
    text: Bytes,
    attachments: Vec<Bytes>,
}

/// Returns `true` if a payload is JSON. MessagePack with this first byte would be a number.
fn is_json(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(b'{' | b'['))
}

/// Maximum memory for decoding, besides the payload's: text and attachments, and a copy of an event's arguments.
pub(crate) fn decoded_bytes_max(payload: &[u8]) -> usize {
    let len = payload.len();
    if is_json(payload) {
        return 2 * len;
    }
    let text =
        (TEXT_BYTES_PER_BYTE_MAX * len + PLACEHOLDER_BYTES_MAX * ATTACHMENTS_MAX).min(PAYLOAD_BYTES_MAX);
    2 * text + len
}

impl Payload {
    /// Decodes JSON or MessagePack.
    pub(super) fn decode(payload: &Bytes) -> Result<Self, WireError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(WireError::TooLarge);
        }
        if is_json(payload) {
            json::check(str::from_utf8(payload).map_err(|_| WireError::Malformed)?)?;
            return Ok(Self { text: payload.clone(), attachments: Vec::new() });
        }
        let (text, attachments) = to_json(payload)?;
        Ok(Self { text: text.into(), attachments })
    }

    pub(super) fn text(&self) -> Result<&str, WireError> {
        str::from_utf8(&self.text).map_err(|_| WireError::Malformed)
    }

    /// Returns a part of the text without copying it.
    pub(super) fn slice(&self, part: &str) -> Bytes {
        self.text.slice_ref(part.as_bytes())
    }

    /// Values, joined by commas, as the arguments of an event.
    pub(super) fn arguments(&self, list: &str) -> Result<Data, WireError> {
        // A copy, so that a short event that is kept doesn't keep a long payload.
        arguments(Bytes::copy_from_slice(list.as_bytes()), self.attachments.clone())
    }
}

/// Values, joined by commas, with attachments.
pub(super) fn arguments(list: Bytes, attachments: Vec<Bytes>) -> Result<Data, WireError> {
    let text = str::from_utf8(&list).map_err(|_| WireError::Malformed)?;
    // Without attachments, no object is a placeholder.
    if !attachments.is_empty() {
        check_placeholders(text, attachments.len()).map_err(|_| WireError::BadPlaceholder)?;
    }
    Ok(Data::Arguments { json: list, attachments: attachments.into() })
}

/// Returns the texts of an object's members with these names, in this order. A missing value, null and `[]`, which PHP writes for an empty
/// object, have no members. A member that is null counts as missing. Of members with the same name, the last one counts, as in JavaScript.
pub(super) fn members<'a, const N: usize>(
    value: Option<&'a str>,
    names: [&str; N],
) -> Result<[Option<&'a str>; N], WireError> {
    let mut found = [None; N];
    let object = match value {
        None | Some("null" | "[]") => return Ok(found),
        Some(object) if object.starts_with('{') => object,
        Some(_) => return Err(WireError::Malformed),
    };
    for (name, value) in json::members(object) {
        if let Some(index) = names.iter().position(|wanted| json::string_is(name, wanted)) {
            found[index] = Some(value).filter(|value| *value != "null");
        }
    }
    Ok(found)
}

/// The values of an array, as text joined by commas.
pub(super) fn list(array: &str) -> Result<&str, WireError> {
    let list = array.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    list.map(str::trim_ascii).ok_or(WireError::Malformed)
}

/// A name: a string, or a number, which JavaScript accepts as well.
pub(super) fn name(value: &str) -> Result<Arc<str>, WireError> {
    let name = json::string(value).or_else(|| json::number_text(value)).ok_or(WireError::Malformed)?;
    if name.len() > NAME_BYTES_MAX { Err(WireError::NameTooLong) } else { Ok(Arc::from(name)) }
}

/// A name that may be missing.
pub(super) fn optional_name(value: Option<&str>) -> Result<Option<Arc<str>>, WireError> {
    value.map(name).transpose()
}

/// A required name.
pub(super) fn required_name(value: Option<&str>) -> Result<Arc<str>, WireError> {
    name(value.ok_or(WireError::Malformed)?)
}

/// The namespace. Without one it is `/`.
pub(super) fn namespace(value: Option<&str>) -> Result<Arc<str>, WireError> {
    Ok(optional_name(value)?.unwrap_or_else(|| "/".into()))
}

/// Returns a list of names: from an array or from a single name. Null, an empty string and a missing value are an empty list.
pub(super) fn names(value: Option<&str>) -> Result<Vec<Arc<str>>, WireError> {
    names_up_to(value, ROOMS_MAX)
}

/// Does the same, with at most `names_max` names.
pub(super) fn names_up_to(value: Option<&str>, names_max: usize) -> Result<Vec<Arc<str>>, WireError> {
    match value {
        None | Some("null" | "\"\"") => Ok(Vec::new()),
        Some(array) if array.starts_with('[') => items(array, names_max, name),
        Some(other) => Ok(vec![name(other)?]),
    }
}

/// The items of an array.
pub(super) fn items<T>(
    array: &str,
    items_max: usize,
    mut item: impl FnMut(&str) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let mut items = Vec::new();
    for element in json::elements(list(array)?) {
        if items.len() == items_max {
            return Err(WireError::TooMany);
        }
        items.push(item(element)?);
    }
    Ok(items)
}

/// A number without sign and fraction.
pub(super) fn number(value: Option<&str>) -> Result<u64, WireError> {
    value.and_then(|digits| digits.parse().ok()).ok_or(WireError::Malformed)
}

/// Returns `true` if JavaScript considers the value true.
pub(super) fn is_truthy(value: Option<&str>) -> bool {
    !matches!(value, None | Some("false" | "null" | "0" | "\"\""))
}
