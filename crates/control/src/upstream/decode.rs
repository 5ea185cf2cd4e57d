//! Compressed bodies: gzip (RFC 1952) and Brotli (RFC 7932), never beyond a document's bound.
//!
//! Both libraries are made for their field (flate2 on zlib-rs, brotli-decompressor). What is ours is the bound: a body of
//! a few kB may stand for gigabytes, so no more is taken out than one byte beyond what a document may have. A Brotli
//! stream also says how much the decoder must remember: 16 MiB at the most by the standard, 1 GiB in the extension called
//! *large window*, which is refused, as browsers do.

use super::answer::Coding;
use super::failure::Failure;
use flate2::bufread::MultiGzDecoder;
use std::io::Read;

/// Bytes of compressed input that the Brotli decoder looks at at once.
const BROTLI_INPUT_BYTES: usize = 4 << 10;
/// How a large window shows in a stream's first byte, but for its highest bit: a window's size that RFC 7932 (9.1) has
/// not.
const LARGE_WINDOW: u8 = 0x11;

/// Takes `body` out of its coding.
///
/// # Errors
/// It has more than `bytes_max` bytes then, or it isn't what it says. Whoever sent it erred.
pub(super) fn decode(coding: Coding, body: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    match coding {
        Coding::Identity => Ok(body),
        Coding::Gzip => read(MultiGzDecoder::new(&body[..]), bytes_max),
        Coding::Brotli if body.first().is_some_and(|first| first & 0x7f == LARGE_WINDOW) => {
            Err(Failure::Compressed(std::io::Error::other("Brotli with a large window")))
        }
        Coding::Brotli => {
            read(brotli_decompressor::Decompressor::new(&body[..], BROTLI_INPUT_BYTES), bytes_max)
        }
    }
}

fn read(decoder: impl Read, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(limit).read_to_end(&mut body).map_err(Failure::Compressed)?;
    if body.len() > bytes_max {
        return Err(Failure::TooLarge(bytes_max));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    const BYTES_MAX: usize = 1000;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn brotli(body: &[u8]) -> Vec<u8> {
        brotli_of(body, false)
    }

    fn brotli_of(body: &[u8], large_window: bool) -> Vec<u8> {
        let mut params = brotli::enc::BrotliEncoderParams { quality: 5, lgwin: 22, ..Default::default() };
        if large_window {
            params.large_window = true;
            params.lgwin = 28;
        }
        let mut out = Vec::new();
        brotli::BrotliCompress(&mut &body[..], &mut out, &params).unwrap();
        out
    }

    #[track_caller]
    fn check(coding: Coding, body: Vec<u8>, expect: Result<usize, &str>) {
        let found = decode(coding, body, BYTES_MAX);
        assert_eq!(
            found.as_ref().map(Vec::len).map_err(|failure| failure.class().outcome()),
            expect,
            "{coding:?}"
        );
    }

    #[test]
    fn gzip_and_brotli_are_inflated_within_the_limit() {
        for (coding, encode) in [(Coding::Gzip, gzip as fn(&[u8]) -> Vec<u8>), (Coding::Brotli, brotli)] {
            let text: Vec<u8> = (0..BYTES_MAX).map(|i| b'a' + (i * i % 23) as u8).collect();
            assert_eq!(decode(coding, encode(&text), BYTES_MAX).unwrap(), text);
            check(coding, encode(b""), Ok(0));
            check(coding, encode(&[b'x'; BYTES_MAX + 1]), Err("failed_too_large"));
            // 50 MB in a few kB.
            let bomb = encode(&vec![b' '; 50 << 20]);
            assert!(bomb.len() < 100_000, "{}", bomb.len());
            check(coding, bomb, Err("failed_too_large"));
            // Not all of it came.
            let whole = encode(&text[..100]);
            for end in 0..whole.len() {
                check(coding, whole[..end].to_vec(), Err("failed_encoding"));
            }
            check(coding, b"{\"not\":\"compressed\"}".to_vec(), Err("failed_encoding"));
        }
        check(Coding::Identity, b"{}".to_vec(), Ok(2));
    }

    #[test]
    fn gzip_may_have_several_members_but_no_trailing_data() {
        check(Coding::Gzip, [gzip(b"[1,"), gzip(b"2]")].concat(), Ok(5));
        check(Coding::Gzip, [gzip(b"1"), b"trailing garbage".to_vec()].concat(), Err("failed_encoding"));
    }

    #[test]
    fn a_large_window_is_refused() {
        let body = brotli_of(b"{\"a\":1}", true);
        assert_eq!(body[0] & 0x7f, LARGE_WINDOW);
        check(Coding::Brotli, body, Err("failed_encoding"));
    }
}
