//! Texts without whitespace, and how deep they are nested.

use super::scan::{Check, end_of_text, is_space, scan, skip_space, string_end};
use super::{DEPTH_MAX, Error};
use std::ops::Range;

/// What JavaScript's `Response.json` skips at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text after a byte order mark, if there is one.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Checks that `text` is one JSON value in UTF-8, perhaps after a byte order mark, and removes whitespace in place.
/// Numbers and strings keep their spelling.
///
/// # Errors
/// `text` is something else, or is nested deeper than [`DEPTH_MAX`].
pub fn minify(mut text: Vec<u8>) -> Result<Vec<u8>, Error> {
    if let Err(error) = std::str::from_utf8(&text) {
        return Err(Error::Utf8(error.valid_up_to()));
    }
    let mut read = text.len() - without_byte_order_mark(&text).len();
    let end = scan(&text, read, DEPTH_MAX, &mut Check)?;
    end_of_text(&text, end)?;
    // Invariant: `write <= read <= text.len()`; what lies before `write` is the minified text so far.
    let mut write = 0;
    while let Some(run) = next_run(&text, read) {
        read = run.end;
        if write != run.start {
            text.copy_within(run.clone(), write);
        }
        write += run.len();
    }
    text.truncate(write);
    Ok(text)
}

/// Appends `text`, which has been checked, without whitespace.
pub fn minify_to(out: &mut Vec<u8>, text: &[u8]) {
    let mut at = 0;
    while let Some(run) = next_run(text, at) {
        at = run.end;
        out.extend_from_slice(&text[run]);
    }
}

/// The next bytes from `at` on without whitespace between tokens; `None` at the end.
fn next_run(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = skip_space(text, at);
    let mut end = start;
    while let Some(&byte) = text.get(end) {
        match byte {
            b'"' => end = string_end(text, end).map_or(text.len(), |(end, _)| end),
            byte if is_space(byte) => break,
            _ => end += 1,
        }
    }
    (start < end).then_some(start..end)
}

/// How deep arrays and objects are nested in `text`, which has been checked: 0 for a scalar, 1 for `[]`.
pub fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(text, at - 1).map_or(text.len(), |(end, _)| end),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
