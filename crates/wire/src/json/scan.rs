//! Finding where a value ends, and whether it is one.

use super::{DEPTH_MAX, Error};

pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The place of the first byte from `at` on that is no white space.
#[inline]
pub(crate) fn skip_space(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(0..=b' ') => skip_spaces(bytes, at),
        // Programs write none.
        _ => at,
    }
}

#[cold]
fn skip_spaces(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| is_space(*byte)) {
        at += 1;
    }
    at
}

/// Checks that `text` is one value, with nothing but white space around it.
///
/// # Errors
/// [`Error::Syntax`] and [`Error::TooDeep`].
pub fn check(text: &str) -> Result<(), Error> {
    let end = value_end(text, 0)?;
    if skip_space(text.as_bytes(), end) == text.len() { Ok(()) } else { Err(Error::Syntax) }
}

/// Where the value ends that begins, perhaps after white space, at `start`: the place after its last byte. Whatever
/// follows isn't looked at, except that a number takes all the bytes it can.
///
/// # Errors
/// [`Error::Syntax`] and [`Error::TooDeep`].
pub fn value_end(text: &str, start: usize) -> Result<usize, Error> {
    let bytes = text.as_bytes();
    let mut at = start;
    let mut depth = 0;
    // The open containers, the innermost in the lowest bit: 1 for an object, 0 for an array.
    let mut objects: u128 = 0;
    const { assert!(DEPTH_MAX <= u128::BITS) };
    loop {
        at = skip_space(bytes, at);
        match bytes.get(at) {
            Some(b'"') => at = string_end(bytes, at + 1)?,
            Some(open @ (b'{' | b'[')) => {
                if depth == DEPTH_MAX {
                    return Err(Error::TooDeep);
                }
                let is_object = *open == b'{';
                at = skip_space(bytes, at + 1);
                if bytes.get(at) == Some(&if is_object { b'}' } else { b']' }) {
                    at += 1;
                } else {
                    depth += 1;
                    objects = objects << 1 | u128::from(is_object);
                    if is_object {
                        at = name_end(bytes, at)?;
                    }
                    continue;
                }
            }
            Some(b'-' | b'0'..=b'9') => at = number_end(bytes, at)?,
            Some(b't') => at = word_end(bytes, at, b"true")?,
            Some(b'f') => at = word_end(bytes, at, b"false")?,
            Some(b'n') => at = word_end(bytes, at, b"null")?,
            _ => return Err(Error::Syntax),
        }
        // A value has ended: so may the containers around it.
        loop {
            if depth == 0 {
                return Ok(at);
            }
            at = skip_space(bytes, at);
            match (bytes.get(at), objects & 1 == 1) {
                (Some(b','), false) => {
                    at += 1;
                    break;
                }
                (Some(b','), true) => {
                    at = name_end(bytes, skip_space(bytes, at + 1))?;
                    break;
                }
                (Some(b']'), false) | (Some(b'}'), true) => {
                    at += 1;
                    depth -= 1;
                    objects >>= 1;
                }
                _ => return Err(Error::Syntax),
            }
        }
    }
}

/// The place after a member's name and its colon.
#[inline]
fn name_end(bytes: &[u8], at: usize) -> Result<usize, Error> {
    if bytes.get(at) != Some(&b'"') {
        return Err(Error::Syntax);
    }
    let at = skip_space(bytes, string_end(bytes, at + 1)?);
    if bytes.get(at) == Some(&b':') { Ok(at + 1) } else { Err(Error::Syntax) }
}

fn word_end(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, Error> {
    let end = at + word.len();
    if bytes.get(at..end) == Some(word) { Ok(end) } else { Err(Error::Syntax) }
}

fn number_end(bytes: &[u8], mut at: usize) -> Result<usize, Error> {
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits_end(bytes, at)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits_end(bytes, at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits_end(bytes, at)?;
    }
    Ok(at)
}

/// The place after one digit or more.
fn digits_end(bytes: &[u8], start: usize) -> Result<usize, Error> {
    let mut at = start;
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at > start { Ok(at) } else { Err(Error::Syntax) }
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks, with its high bit, the lowest byte of eight that is a quote, a backslash or a control character; higher bits
/// mean nothing. (Subtracting borrows only from bytes above one that is marked rightly.)
#[inline]
fn special(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(LOW) & !word;
    let below_space = word.wrapping_sub(LOW * 0x20) & !word;
    (zero(word ^ (LOW * u64::from(b'"'))) | zero(word ^ (LOW * u64::from(b'\\'))) | below_space) & HIGH
}

/// The place after the closing quote; `at` is the one after the opening quote.
#[inline]
fn string_end(bytes: &[u8], mut at: usize) -> Result<usize, Error> {
    loop {
        while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let marks = special(u64::from_le_bytes(*eight));
            if marks != 0 {
                at += marks.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = escape_end(bytes, at + 1)?,
            Some(0..0x20) | None => return Err(Error::Syntax),
            Some(_) => at += 1,
        }
    }
}

/// The place after an escape; `at` is the one after its backslash.
fn escape_end(bytes: &[u8], at: usize) -> Result<usize, Error> {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 1),
        Some(b'u') => match bytes.get(at + 1..at + 5) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 5),
            _ => Err(Error::Syntax),
        },
        _ => Err(Error::Syntax),
    }
}
