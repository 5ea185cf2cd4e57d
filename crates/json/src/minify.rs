//! Removes whitespace, and measures the depth of nesting.

use super::blocks::{BLOCK_BYTES, Strings, mask};
use super::scan::{Check, end_of_text, is_space, scan, skip_space, string_end};
use super::{DEPTH_MAX, Error};
use std::ops::Range;

/// The byte order mark that JavaScript's `Response.json` skips at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns the text after a byte order mark, if it has one.
pub fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Checks that `text` is one JSON value in UTF-8, optionally after a byte order mark, and removes whitespace
/// in place. Numbers and strings keep their spelling.
///
/// # Errors
/// `text` isn't one JSON value, or is nested deeper than [`DEPTH_MAX`].
pub fn minify(mut text: Vec<u8>) -> Result<Vec<u8>, Error> {
    if let Err(error) = std::str::from_utf8(&text) {
        return Err(Error::Utf8(error.valid_up_to()));
    }
    let mut read = text.len() - without_byte_order_mark(&text).len();
    let end = scan(&text, read, DEPTH_MAX, &mut Check)?;
    end_of_text(&text, end)?;
    // Invariant: `write <= read <= text.len()`; `text[..write]` is the minified text so far.
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

/// Appends `text`, which must be checked JSON, without whitespace.
pub fn minify_to(out: &mut Vec<u8>, text: &[u8]) {
    let mut at = 0;
    while let Some(run) = next_run(text, at) {
        at = run.end;
        out.extend_from_slice(&text[run]);
    }
}

/// Returns the next run of bytes from `at` on without whitespace between tokens; `None` at the end.
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

/// Returns `text` without whitespace outside strings. Makes no other checks: the result is JSON, and the
/// minified text, exactly if `text` is JSON. `None` if whitespace separates two tokens that need a comma or
/// colon, as in `1 2`.
pub fn without_space(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut strings = Strings::default();
    // Start of the current run of kept bytes, if the last byte was kept.
    let mut kept_from = None;
    let mut padded;
    for (number, part) in text.chunks(BLOCK_BYTES).enumerate() {
        let start = number * BLOCK_BYTES;
        let block = match part.first_chunk() {
            Some(block) => block,
            None => {
                padded = [b' '; BLOCK_BYTES];
                padded[..part.len()].copy_from_slice(part);
                &padded
            }
        };
        let spaces = mask(block, is_space) & !strings.inside(block);
        // The starts and ends of runs of kept bytes.
        let mut edges = spaces ^ (spaces << 1 | u64::from(kept_from.is_none()));
        while edges != 0 {
            let at = start + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            match kept_from.take() {
                None => {
                    let may_follow = |last: u8, next: u8| is_structural(last) || is_structural(next);
                    if out.last().is_some_and(|last| !may_follow(*last, text[at])) {
                        return None;
                    }
                    kept_from = Some(at);
                }
                Some(from) => out.extend_from_slice(&text[from..at]),
            }
        }
    }
    if let Some(from) = kept_from {
        out.extend_from_slice(&text[from..]);
    }
    Some(out)
}

fn is_structural(byte: u8) -> bool {
    matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':')
}

/// Returns the depth of nesting in `text`, which must be checked JSON: 0 for a scalar, 1 for `[]`.
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
