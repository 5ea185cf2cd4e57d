//! Decodes bodies, never beyond the limit of a document: decompresses gzip (RFC 1952) and Brotli (RFC 7932), and converts texts in
//! charsets other than UTF-8.
//!
//! The decoders are libraries (flate2 on zlib-rs, brotli-decompressor). This module adds the limit: a body of
//! a few kB may expand to gigabytes, so at most one byte more than the maximum size of a document is
//! decompressed. A Brotli stream also sets the size of the decoder's window: at most 16 MiB in the standard,
//! and 1 GiB in the extension *large window*, which this module refuses, as browsers do.

use super::answer::Coding;
use super::failure::Failure;
use encoding_rs::{Encoding, UTF_8};
use flate2::bufread::GzDecoder;
use std::io::Read;

/// Number of compressed bytes that the Brotli decoder reads at once.
const BROTLI_INPUT_BYTES: usize = 4 << 10;
/// Value of a stream's first byte, without its highest bit, that marks a large window. RFC 7932 (9.1) defines
/// no window size for it.
const LARGE_WINDOW: u8 = 0x11;

/// Decompresses `body`.
///
/// # Errors
/// The decompressed body is longer than `bytes_max`, or the compressed body is corrupt.
pub(super) fn decode(coding: Coding, body: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    match coding {
        Coding::Identity => Ok(body),
        Coding::Gzip => gunzip(&body, bytes_max),
        Coding::Brotli if body.first().is_some_and(|first| first & 0x7f == LARGE_WINDOW) => {
            Err(Failure::Compressed(std::io::Error::other("Brotli with a large window")))
        }
        Coding::Brotli => {
            let decoder = brotli_decompressor::Decompressor::new(&body[..], BROTLI_INPUT_BYTES);
            let mut inflated = Vec::new();
            read(decoder, bytes_max, &mut inflated)?;
            Ok(inflated)
        }
    }
}

/// Reads all members (RFC 1952, 2.2). Zero bytes after a member are padding, as for gzip(1).
fn gunzip(mut rest: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    loop {
        let mut member = GzDecoder::new(rest);
        read(&mut member, bytes_max, &mut body)?;
        rest = member.into_inner();
        let padding = rest.iter().take_while(|byte| **byte == 0).count();
        rest = &rest[padding..];
        if rest.is_empty() {
            return Ok(body);
        }
    }
}

/// Appends a decoder's output to `body`, up to `bytes_max` bytes.
fn read(decoder: impl Read, bytes_max: usize, body: &mut Vec<u8>) -> Result<(), Failure> {
    let left = u64::try_from(bytes_max - body.len()).unwrap_or(u64::MAX);
    decoder.take(left.saturating_add(1)).read_to_end(body).map_err(Failure::Compressed)?;
    if body.len() > bytes_max { Err(Failure::TooLarge(bytes_max)) } else { Ok(()) }
}

/// Returns the name and the label of a charset, if this part of a media type (RFC 9110, 8.3.2) is one.
fn charset(part: &str) -> Option<(&str, &str)> {
    part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
}

/// Returns the charset of a media type, if it is known and isn't UTF-8.
fn other_charset(content_type: &str) -> Option<&'static Encoding> {
    let (_, label) = content_type.split(';').filter_map(charset).next_back()?;
    Encoding::for_label(label.trim().trim_matches('"').as_bytes()).filter(|encoding| *encoding != UTF_8)
}

/// Returns a media type with UTF-8 as its charset.
fn with_utf8(content_type: &str) -> String {
    let parts = content_type.split(';').map(|part| match charset(part) {
        Some((name, _)) => format!("{name}=utf-8"),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(";")
}

/// Returns `true` if [`to_utf8`] returns texts of this media type unchanged.
pub(super) fn is_utf8(content_type: Option<&str>) -> bool {
    content_type.and_then(other_charset).is_none()
}

/// Converts a text to UTF-8 and adapts its media type, if `content_type` has another charset that browsers
/// know (Encoding Standard). Returns all other texts unchanged, also texts with bytes that are invalid in
/// their charset.
///
/// # Errors
/// The text has more than `bytes_max` bytes in UTF-8.
pub(super) fn to_utf8(
    body: Vec<u8>,
    content_type: Option<String>,
    bytes_max: usize,
) -> Result<(Vec<u8>, Option<String>), Failure> {
    let Some(encoding) = content_type.as_deref().and_then(other_charset) else {
        return Ok((body, content_type));
    };
    let (text, had_errors) = encoding.decode_with_bom_removal(&body);
    if had_errors {
        return Ok((body, content_type));
    }
    if text.len() > bytes_max {
        return Err(Failure::TooLarge(bytes_max));
    }
    Ok((text.into_owned().into_bytes(), content_type.as_deref().map(with_utf8)))
}

#[cfg(test)]
mod tests;
