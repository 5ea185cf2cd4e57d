//! JSON text with placeholders as MessagePack, as `notepack.io` encodes it: each value in its shortest form, attachments
//! as binary data.

use super::WireError;
use crate::engine::PAYLOAD_BYTES_MAX;
use bytes::Bytes;
use rmp::encode::{
    write_array_len, write_bin_len, write_bool, write_f64, write_map_len, write_nil, write_sint, write_str,
    write_uint,
};
use std::iter::Peekable;
use stentor_json::{self as json, DEPTH_MAX, Scalar, Visitor};
use stentor_wire::socketio::{Placeholder, placeholders};

/// Returns the MessagePack of `json`, the text of one value.
pub(super) fn to_msgpack(json: &[u8], attachments: &[Bytes]) -> Result<Bytes, WireError> {
    let text = str::from_utf8(json).map_err(|_| WireError::Malformed)?;
    let mut counter = Counter::default();
    json::scan(text.as_bytes(), 0, DEPTH_MAX, &mut counter)?;
    let mut writer = Writer {
        text,
        out: Vec::with_capacity(text.len()),
        lens: counter.lens.into_iter(),
        attachments,
        // Without attachments, an object that looks like a placeholder is a plain object.
        placeholders: placeholders(if attachments.is_empty() { "" } else { text }).peekable(),
        replaced: None,
        error: None,
    };
    json::scan(text.as_bytes(), 0, DEPTH_MAX, &mut writer)?;
    match writer.error {
        None if writer.out.len() <= PAYLOAD_BYTES_MAX => Ok(writer.out.into()),
        None => Err(WireError::TooLarge),
        Some(error) => Err(error),
    }
}

/// Counts the parts of arrays and objects, because MessagePack has their number first.
#[derive(Default)]
struct Counter {
    /// Number of parts of each array and object, in the order in which they begin.
    lens: Vec<u32>,
    open: Vec<usize>,
}

impl Visitor for Counter {
    type Error = WireError;

    fn value(&mut self, _: usize) -> Result<(), WireError> {
        if let Some(len) = self.open.last().and_then(|index| self.lens.get_mut(*index)) {
            *len += 1;
        }
        Ok(())
    }

    fn open(&mut self, _: bool) {
        self.open.push(self.lens.len());
        self.lens.push(0);
    }

    fn close(&mut self, _: usize) {
        self.open.pop();
    }
}

struct Writer<'a> {
    text: &'a str,
    out: Vec<u8>,
    lens: std::vec::IntoIter<u32>,
    attachments: &'a [Bytes],
    placeholders: Peekable<std::vec::IntoIter<Placeholder>>,
    /// End of the placeholder that an attachment replaces: its members aren't written.
    replaced: Option<usize>,
    error: Option<WireError>,
}

// Writing to a `Vec` doesn't fail, and no length is beyond a `u32`.
impl Writer<'_> {
    fn len(len: usize) -> u32 {
        u32::try_from(len).unwrap_or(u32::MAX)
    }

    fn string(&mut self, start: usize, end: usize) {
        let raw = self.text.get(start + 1..end - 1).unwrap_or_default();
        let _ = write_str(&mut self.out, &json::unescape(raw));
    }

    fn number(&mut self, start: usize, end: usize) {
        // Up to this number, a float64 represents each integer.
        const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
        let text = self.text.get(start..end).unwrap_or_default();
        if let Ok(number) = text.parse() {
            let _ = write_uint(&mut self.out, number);
        } else if let Ok(number) = text.parse() {
            let _ = write_sint(&mut self.out, number);
        } else {
            let number: f64 = text.parse().unwrap_or(f64::NAN);
            if number.fract() == 0.0 && number.abs() <= INTEGER_MAX {
                #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
                let _ = write_sint(&mut self.out, number as i64);
            } else {
                let _ = write_f64(&mut self.out, number);
            }
        }
    }

    /// Writes the attachment with this number.
    fn attachment(&mut self, number: usize) {
        let Some(attachment) = self.attachments.get(number) else {
            self.error = Some(WireError::BadPlaceholder);
            return;
        };
        if self.out.len() + attachment.len() > PAYLOAD_BYTES_MAX {
            self.error = Some(WireError::TooLarge);
            return;
        }
        let _ = write_bin_len(&mut self.out, Self::len(attachment.len()));
        self.out.extend_from_slice(attachment);
    }
}

impl Visitor for Writer<'_> {
    type Error = WireError;

    fn value(&mut self, at: usize) -> Result<(), WireError> {
        if self.replaced.is_none()
            && let Some(Placeholder { number, object, .. }) =
                self.placeholders.next_if(|next| next.object.start == at)
        {
            self.attachment(number);
            self.replaced = Some(object.end);
        }
        self.error.map_or(Ok(()), Err)
    }

    fn scalar(&mut self, scalar: Scalar, start: usize, end: usize) {
        if self.replaced.is_some() {
            return;
        }
        match scalar {
            Scalar::Null => {
                let _ = write_nil(&mut self.out);
            }
            Scalar::False | Scalar::True => {
                let _ = write_bool(&mut self.out, scalar == Scalar::True);
            }
            Scalar::String { .. } => self.string(start, end),
            Scalar::Number => self.number(start, end),
        }
    }

    fn open(&mut self, is_object: bool) {
        let len = self.lens.next().unwrap_or_default();
        if self.replaced.is_some() {
            return;
        }
        if is_object {
            let _ = write_map_len(&mut self.out, len);
        } else {
            let _ = write_array_len(&mut self.out, len);
        }
    }

    fn close(&mut self, end: usize) {
        self.replaced.take_if(|replaced| *replaced == end);
    }

    fn name(&mut self, start: usize, end: usize, _: bool) {
        if self.replaced.is_none() {
            self.string(start, end);
        }
    }
}
