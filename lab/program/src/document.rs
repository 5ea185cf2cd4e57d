//! A JSON document that changes a little from version to version. The upstream and the generator make the same
//! document: the upstream answers with it, and the generator compares it with the server's messages.
//!
//! ```json
//! {"head":"NNNNNNNNNNNNNNNNTTTTTTTTTTTTTTTTTTTTCCCCCCCC","rows":[{"id":0,"name":"row 0","price":527110,"low":…},…]}
//! ```
//!
//! `head` has the layout of `crate::payload`, so a version has a number and a time. Its checksum covers only these, since all the
//! rest follows from the number. All values have six digits, so all versions of a document have the same length. The text is
//! minified, so a server that passes documents on sends it unchanged.
//!
//! Invariant: every offset in `values` points at six digits of `text`.

use serde::{Deserialize, Serialize};

use crate::payload::{HEAD_BYTES, Head};

/// Offset of the head.
pub const HEAD_AT: usize = OPEN.len();
/// Offset of the part that depends only on the number of changes.
pub const BODY_AT: usize = HEAD_AT + HEAD_BYTES;

const OPEN: &[u8] = br#"{"head":""#;
const ROWS: &[u8] = br#"","rows":["#;
const CLOSE: &[u8] = b"]}";
const MEMBERS: [&str; 4] = ["price", "low", "high", "volume"];
const VALUE_DIGITS: usize = 6;
const LEAST_VALUE: u64 = 100_000;

/// Size and changes of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Approximate length. The actual one differs by less than a row.
    pub bytes: usize,
    /// Number of values that change from one version to the next.
    pub changes: usize,
}

/// A document in one of its versions.
#[derive(Clone, Debug)]
pub struct Document {
    shape: Shape,
    text: Vec<u8>,
    values: Vec<usize>,
    /// Number of changes so far.
    version: u64,
}

impl Document {
    /// The document before its first change, with a head of number 0 and time 0.
    pub fn new(shape: Shape) -> Self {
        let mut text = [OPEN, &[b'0'; HEAD_BYTES], ROWS].concat();
        let mut values = Vec::new();
        let mut row = 0;
        while row == 0 || text.len() < shape.bytes {
            if row > 0 {
                text.push(b',');
            }
            text.extend_from_slice(format!(r#"{{"id":{row},"name":"row {row}""#).as_bytes());
            for member in MEMBERS {
                text.extend_from_slice(format!(r#","{member}":"#).as_bytes());
                values.push(text.len());
                let value = LEAST_VALUE + mixed(values.len() as u64) % (9 * LEAST_VALUE);
                text.extend_from_slice(value.to_string().as_bytes());
            }
            text.push(b'}');
            row += 1;
        }
        text.extend_from_slice(CLOSE);
        let mut document = Self { shape, text, values, version: 0 };
        document.set_head(Head { sequence: 0, intended_ns: 0 });
        document
    }

    /// Number of changes so far.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes the document to its next version: as many values as the shape specifies, each of them once.
    pub fn advance(&mut self) {
        self.version += 1;
        let count = self.values.len();
        let changes = self.shape.changes.min(count);
        // Equal steps from a random start hit no value twice.
        let first = mixed(self.version) as usize % count;
        let step = (count / changes.max(1)).max(1);
        for nth in 0..changes {
            let at = self.values[(first + nth * step) % count];
            let digits = &mut self.text[at..at + VALUE_DIGITS];
            let old = digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
            let grown = 1 + mixed(self.version << 20 | nth as u64) % (9 * LEAST_VALUE - 1);
            let new = LEAST_VALUE + (old - LEAST_VALUE + grown) % (9 * LEAST_VALUE);
            digits.copy_from_slice(new.to_string().as_bytes());
        }
    }

    /// Writes the head.
    pub(crate) fn set_head(&mut self, head: Head) {
        head.write(&mut self.text[HEAD_AT..BODY_AT]);
    }

    /// The document as JSON.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

/// The first `bytes` bytes of a document, at least its header: a payload for servers that compress.
pub(crate) fn excerpt(bytes: usize) -> Vec<u8> {
    let mut payload = Document::new(Shape { bytes: bytes.max(HEAD_BYTES), changes: 0 }).text;
    payload.truncate(bytes.max(HEAD_BYTES));
    payload
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014).
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
