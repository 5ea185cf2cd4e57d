//! MessagePack as JSON text with placeholders: the text that `JSON.stringify` writes for what `notepack.io` decodes.
//!
//! * Numbers without a fraction have none in the text, however they were encoded. NaN and infinities are `null`.
//! * Undefined (fixext 1 of type 0, before notepack 3) is `null`; members that are undefined are left out.
//! * Dates are strings: timestamps (type −1) and, before notepack 3, fixext 8 of type 0.
//! * Binary data and ext 8, 16 and 32 of type 0 are attachments.
//! * Other extensions are refused. Bytes that aren't UTF-8 are replaced in texts.

use super::{ATTACHMENTS_MAX, WireError};
use crate::engine::PAYLOAD_BYTES_MAX;
use bytes::{Buf, Bytes};
use rmp::Marker;
use serde::Serialize;
use std::str::Utf8Chunk;
use stentor_json::{self as json, DEPTH_MAX};
use stentor_wire::socketio::write_placeholder;

/// JSON text and its attachments. The text is no longer than a payload of JSON may be.
pub(super) fn to_json(payload: &[u8]) -> Result<(Vec<u8>, Vec<Bytes>), WireError> {
    let json = Vec::with_capacity((2 * payload.len()).min(PAYLOAD_BYTES_MAX));
    let mut walk = Walk { rest: payload, json, attachments: Vec::new() };
    walk.value(0)?;
    if walk.rest.is_empty() { Ok((walk.json, walk.attachments)) } else { Err(WireError::Malformed) }
}

struct Walk<'a> {
    rest: &'a [u8],
    json: Vec<u8>,
    attachments: Vec<Bytes>,
}

/// Reads a number, most significant byte first.
macro_rules! read {
    ($walk:expr, $read:ident) => {
        $walk.rest.$read().map_err(|_| WireError::Malformed)?
    };
}

impl<'a> Walk<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(WireError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, number: impl Serialize) -> Result<(), WireError> {
        serde_json::to_writer(&mut self.json, &number).map_err(|_| WireError::Malformed)
    }

    fn float(&mut self, number: f64) -> Result<(), WireError> {
        // Up to this number, a float64 represents each integer.
        const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && number.abs() <= INTEGER_MAX {
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
            return self.number(number as i64);
        }
        self.number(number)
    }

    fn word(&mut self, word: &str) {
        self.json.extend_from_slice(word.as_bytes());
    }

    fn value(&mut self, depth: usize) -> Result<(), WireError> {
        match Marker::from_u8(read!(self, try_get_u8)) {
            Marker::Null => self.word("null"),
            Marker::False => self.word("false"),
            Marker::True => self.word("true"),
            Marker::FixPos(number) => self.number(number)?,
            Marker::FixNeg(number) => self.number(number)?,
            Marker::U8 => {
                let number = read!(self, try_get_u8);
                self.number(number)?;
            }
            Marker::U16 => {
                let number = read!(self, try_get_u16);
                self.number(number)?;
            }
            Marker::U32 => {
                let number = read!(self, try_get_u32);
                self.number(number)?;
            }
            Marker::U64 => {
                let number = read!(self, try_get_u64);
                self.number(number)?;
            }
            Marker::I8 => {
                let number = read!(self, try_get_i8);
                self.number(number)?;
            }
            Marker::I16 => {
                let number = read!(self, try_get_i16);
                self.number(number)?;
            }
            Marker::I32 => {
                let number = read!(self, try_get_i32);
                self.number(number)?;
            }
            Marker::I64 => {
                let number = read!(self, try_get_i64);
                self.number(number)?;
            }
            Marker::F32 => {
                let number = read!(self, try_get_f32);
                self.float(f64::from(number))?;
            }
            Marker::F64 => {
                let number = read!(self, try_get_f64);
                self.float(number)?;
            }
            marker @ (Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => {
                let len = self.len(marker)?;
                self.text(len)?;
            }
            marker @ (Marker::Bin8 | Marker::Bin16 | Marker::Bin32) => {
                let len = self.len(marker)?;
                let bytes = self.take(len)?;
                self.attachment(bytes)?;
            }
            marker @ (Marker::FixArray(_) | Marker::Array16 | Marker::Array32) => {
                let len = self.len(marker)?;
                self.array(len, depth)?;
            }
            marker @ (Marker::FixMap(_) | Marker::Map16 | Marker::Map32) => {
                let len = self.len(marker)?;
                self.map(len, depth)?;
            }
            Marker::Reserved => return Err(WireError::Malformed),
            marker => self.extension(marker)?,
        }
        self.check_room(0)
    }

    /// Checks that the text has room for this number of bytes.
    fn check_room(&self, bytes: usize) -> Result<(), WireError> {
        if self.json.len() + bytes <= PAYLOAD_BYTES_MAX { Ok(()) } else { Err(WireError::TooLarge) }
    }

    fn len(&mut self, marker: Marker) -> Result<usize, WireError> {
        Ok(match marker {
            Marker::FixStr(len) | Marker::FixArray(len) | Marker::FixMap(len) => usize::from(len),
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => usize::from(read!(self, try_get_u8)),
            Marker::Str16 | Marker::Bin16 | Marker::Ext16 | Marker::Array16 | Marker::Map16 => {
                usize::from(read!(self, try_get_u16))
            }
            Marker::Str32 | Marker::Bin32 | Marker::Ext32 | Marker::Array32 | Marker::Map32 => {
                read!(self, try_get_u32) as usize
            }
            Marker::FixExt1 => 1,
            Marker::FixExt2 => 2,
            Marker::FixExt4 => 4,
            Marker::FixExt8 => 8,
            Marker::FixExt16 => 16,
            _ => return Err(WireError::Malformed),
        })
    }

    fn text(&mut self, len: usize) -> Result<(), WireError> {
        let bytes = self.take(len)?;
        self.check_room(escaped_len(bytes))?;
        json::write_string(&mut self.json, &String::from_utf8_lossy(bytes));
        Ok(())
    }

    fn attachment(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if self.attachments.len() == ATTACHMENTS_MAX {
            return Err(WireError::TooMany);
        }
        write_placeholder(&mut self.json, self.attachments.len());
        // A copy, so that a short attachment doesn't keep a long payload.
        self.attachments.push(Bytes::copy_from_slice(bytes));
        Ok(())
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<(), WireError> {
        self.check_depth(depth)?;
        self.json.push(b'[');
        for index in 0..len {
            if index > 0 {
                self.json.push(b',');
            }
            self.value(depth + 1)?;
        }
        self.json.push(b']');
        Ok(())
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<(), WireError> {
        self.check_depth(depth)?;
        self.json.push(b'{');
        let mut is_first = true;
        for _ in 0..len {
            let start = self.json.len();
            if !is_first {
                self.json.push(b',');
            }
            self.name()?;
            self.json.push(b':');
            if let [0xd4, 0, _, rest @ ..] = self.rest {
                self.rest = rest;
                self.json.truncate(start);
                continue;
            }
            self.value(depth + 1)?;
            is_first = false;
        }
        self.json.push(b'}');
        Ok(())
    }

    /// The name of a member: text, or an integer, as PHP writes it.
    fn name(&mut self) -> Result<(), WireError> {
        let start = self.json.len();
        match self.rest.first().map(|byte| Marker::from_u8(*byte)) {
            Some(Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => self.value(0),
            Some(
                Marker::FixPos(_)
                | Marker::FixNeg(_)
                | Marker::U8
                | Marker::U16
                | Marker::U32
                | Marker::U64
                | Marker::I8
                | Marker::I16
                | Marker::I32
                | Marker::I64,
            ) => {
                self.json.push(b'"');
                self.value(0)?;
                self.json.push(b'"');
                Ok(())
            }
            _ => {
                self.json.truncate(start);
                Err(WireError::Malformed)
            }
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), WireError> {
        if depth < DEPTH_MAX { Ok(()) } else { Err(WireError::TooDeep) }
    }

    fn extension(&mut self, marker: Marker) -> Result<(), WireError> {
        let len = self.len(marker)?;
        let kind = read!(self, try_get_i8);
        let mut data = self.take(len)?;
        match (kind, marker) {
            (0, Marker::FixExt1) => self.word("null"),
            (0, Marker::FixExt8) => self.date(Some(data.get_i64())),
            (0, Marker::Ext8 | Marker::Ext16 | Marker::Ext32) => self.attachment(data)?,
            (-1, Marker::FixExt4) => self.date(Some(i64::from(data.get_u32()) * 1000)),
            (-1, Marker::FixExt8) => {
                let both = data.get_u64();
                let (seconds, nanoseconds) = (both & 0x3_ffff_ffff, both >> 34);
                self.date(i64::try_from(seconds * 1000 + nanoseconds / 1_000_000).ok());
            }
            (-1, Marker::Ext8) if len == 12 => {
                let (nanoseconds, seconds) = (data.get_u32(), data.get_i64());
                let ms = seconds.checked_mul(1000);
                self.date(ms.and_then(|ms| ms.checked_add(i64::from(nanoseconds / 1_000_000))));
            }
            _ => return Err(WireError::Malformed),
        }
        Ok(())
    }

    /// A date in milliseconds since 1970, as `Date.prototype.toJSON` writes it.
    fn date(&mut self, ms: Option<i64>) {
        // ECMAScript, "Time Values and Time Range".
        const MS_MAX: u64 = 8_640_000_000_000_000;
        const DAY_MS: i64 = 86_400_000;
        let Some(ms) = ms.filter(|ms| ms.unsigned_abs() <= MS_MAX) else { return self.word("null") };
        let (year, month, day) = civil(ms.div_euclid(DAY_MS));
        let time = ms.rem_euclid(DAY_MS);
        let year = match year {
            0..=9999 => format!("{year:04}"),
            _ => format!("{year:+07}"),
        };
        let (hours, minutes) = (time / 3_600_000, time / 60_000 % 60);
        let (seconds, ms) = (time / 1000 % 60, time % 1000);
        let text = format!("\"{year}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z\"");
        self.word(&text);
    }
}

/// The length of text in a JSON string.
fn escaped_len(text: &[u8]) -> usize {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | 0x08 | b'\t' | b'\n' | 0x0c | b'\r' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    let chunk = |chunk: Utf8Chunk<'_>| {
        let replaced = if chunk.invalid().is_empty() { 0 } else { char::REPLACEMENT_CHARACTER.len_utf8() };
        chunk.valid().bytes().map(byte).sum::<usize>() + replaced
    };
    text.utf8_chunks().map(chunk).sum()
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months counted from March.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize, byte: u8) -> Vec<u8> {
        let mut payload = vec![0xdb];
        payload.extend_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
        payload.resize(payload.len() + len, byte);
        payload
    }

    #[test]
    fn the_text_has_a_bound() {
        let nulls = PAYLOAD_BYTES_MAX / 5;
        for (count, is_refused) in [(nulls - 1, false), (nulls + 1, true)] {
            let mut payload = vec![0xdd];
            payload.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
            payload.resize(payload.len() + count, 0xc0);
            assert_eq!(to_json(&payload).err(), is_refused.then_some(WireError::TooLarge), "{count}");
        }
        for (byte, escaped_len) in [(b'x', 1), (b'\n', 2), (1, 6), (0xff, 3)] {
            let len = (PAYLOAD_BYTES_MAX - 2) / escaped_len;
            let (json, _) = to_json(&text(len, byte)).unwrap();
            assert_eq!(json.len(), 2 + len * escaped_len);
            let longer = to_json(&text(len + 1, byte));
            assert_eq!(longer.err(), Some(WireError::TooLarge), "{byte}");
        }
    }
}
