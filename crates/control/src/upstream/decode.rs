//! Compressed bodies: gzip (RFC 1952) and Brotli (RFC 7932), never beyond a document's bound.
//!
//! Both libraries are made for their field (flate2 on zlib-rs, brotli-decompressor). What is ours is the bound: a body of
//! a few kB may stand for gigabytes, so no more is taken out than one byte beyond what a document may have. A Brotli
//! stream also says how much the decoder must remember: 16 MiB at the most by the standard, 1 GiB in the extension called
//! *large window*, which is refused, as browsers do.

use super::answer::Coding;
use super::failure::Failure;
use flate2::bufread::GzDecoder;
use std::io::Read;

/// Bytes of compressed input that the Brotli decoder looks at at once.
const BROTLI_INPUT_BYTES: usize = 4 << 10;
/// How a large window shows in a stream's first byte, but for its highest bit: a window's size that RFC 7932 (9.1) has
/// not.
const LARGE_WINDOW: u8 = 0x11;

/// Takes `body` out of its coding.
///
/// # Errors
/// The sender erred: the body is longer than `bytes_max` when inflated, or its coding is broken.
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

/// Reads all members (RFC 1952, 2.2). Zero bytes after one are padding, as for gzip(1).
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

/// Appends what a decoder yields to `body`, which has at most `bytes_max` bytes then.
fn read(decoder: impl Read, bytes_max: usize, body: &mut Vec<u8>) -> Result<(), Failure> {
    let left = u64::try_from(bytes_max - body.len()).unwrap_or(u64::MAX);
    decoder.take(left.saturating_add(1)).read_to_end(body).map_err(Failure::Compressed)?;
    if body.len() > bytes_max { Err(Failure::TooLarge(bytes_max)) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
