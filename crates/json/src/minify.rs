//! Removes whitespace, and measures the depth of nesting.

use super::blocks::{BLOCK_BYTES, Strings, mask};
use super::scan::{Check, end_of_text, is_space, scan, skip_space, string_end};
use super::{DEPTH_MAX, Error};
use std::ops::Range;

/// Size of a piece that [`without_space`] copies at once, in bytes.
const PIECE_BYTES: usize = 16;
/// Size of a block with the longest piece that begins in it, in bytes.
const WINDOW_BYTES: usize = BLOCK_BYTES + PIECE_BYTES;

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
    // The last kept byte. Anything may follow a comma, and so begin the text.
    let mut last = b',';
    let mut is_after_space = false;
    let mut padded;
    // The kept bytes of a block, and the remains of earlier ones.
    let mut packed = [0; WINDOW_BYTES];
    for start in (0..text.len()).step_by(BLOCK_BYTES) {
        let rest = &text[start..];
        let window: &[u8; WINDOW_BYTES] = match rest.first_chunk() {
            Some(window) => window,
            None => {
                padded = [b' '; WINDOW_BYTES];
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }
        };
        let Some(block) = window.first_chunk() else { break };
        let spaces = mask(block, [b' ', b'\t', b'\n', b'\r']) & !strings.inside(block);
        let kept = !spaces & u64::MAX >> (BLOCK_BYTES - rest.len().min(BLOCK_BYTES));
        let (mut starts, mut ends) = (kept & !(kept << 1), !kept & kept << 1);
        let mut len = 0;
        while starts != 0 {
            let (at, end) = (starts.trailing_zeros() as usize, ends.trailing_zeros() as usize);
            starts &= starts - 1;
            ends &= ends.wrapping_sub(1);
            let follows_space = at > 0 || is_after_space;
            if follows_space && !is_structural(last) && !is_structural(window[at]) {
                return None;
            }
            last = window[end - 1];
            let mut piece = at;
            while piece < end {
                // Copies a piece of fixed size, which is faster. The next run overwrites the bytes after this one.
                let to = len + piece - at;
                packed[to..to + PIECE_BYTES].copy_from_slice(&window[piece..piece + PIECE_BYTES]);
                piece += PIECE_BYTES;
            }
            len += end - at;
        }
        out.extend_from_slice(&packed[..len]);
        is_after_space = spaces >> (BLOCK_BYTES - 1) == 1;
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
