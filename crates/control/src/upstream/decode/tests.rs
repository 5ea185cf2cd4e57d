//! Tests of compressed bodies (valid, broken and oversized), and of charsets.

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
        // A small body that inflates to 8 MiB.
        let bomb = encode(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        check(coding, bomb, Err("failed_too_large"));
        // The body is truncated at each position.
        let whole = encode(&text[..100]);
        for end in 0..whole.len() {
            check(coding, whole[..end].to_vec(), Err("failed_encoding"));
        }
        check(coding, b"{\"not\":\"compressed\"}".to_vec(), Err("failed_encoding"));
    }
    check(Coding::Identity, b"{}".to_vec(), Ok(2));
}

#[test]
fn gzip_may_have_several_members_and_padding_but_no_trailing_data() {
    check(Coding::Gzip, [gzip(b"[1,"), gzip(b"2]")].concat(), Ok(5));
    check(Coding::Gzip, [gzip(b"1"), b"trailing garbage".to_vec()].concat(), Err("failed_encoding"));
    check(Coding::Gzip, [gzip(b"1"), gzip(&[b'x'; BYTES_MAX])].concat(), Err("failed_too_large"));
    // Zeros after the end (padding, as tapes and block devices add it) are ignored.
    for zeros in [1, 512] {
        let padding = vec![0; zeros];
        check(Coding::Gzip, [gzip(b"[1]"), padding.clone()].concat(), Ok(3));
        check(Coding::Gzip, [gzip(b"[1,"), padding.clone(), gzip(b"2]"), padding.clone()].concat(), Ok(5));
        check(Coding::Gzip, [gzip(b"1"), padding, b"garbage".to_vec()].concat(), Err("failed_encoding"));
    }
}

#[test]
fn a_large_window_is_refused() {
    let body = brotli_of(b"{\"a\":1}", true);
    assert_eq!(body[0] & 0x7f, LARGE_WINDOW);
    check(Coding::Brotli, body, Err("failed_encoding"));
}

#[test]
fn texts_become_utf8() {
    let check = |content_type: &str, body: &[u8], expect: &[u8], named: &str| {
        let (text, found) = to_utf8(body.to_vec(), Some(content_type.to_owned()), 100).unwrap();
        assert_eq!((&*text, found.as_deref()), (expect, Some(named)), "{content_type}");
    };
    let utf8 = "M\u{fc}ller".as_bytes();
    check("text/plain; charset=iso-8859-1", b"M\xfcller", utf8, "text/plain; charset=utf-8");
    check(
        "text/csv;header=present;Charset=\"Latin1\"",
        b"M\xfcller",
        utf8,
        "text/csv;header=present;Charset=utf-8",
    );
    check("text/plain;charset=utf-16le", b"M\0\xfc\0l\0l\0e\0r\0", utf8, "text/plain;charset=utf-8");
    // Only the parameter `charset` sets the charset.
    check(
        "text/latin1; charset=latin1; x=latin1",
        b"\xfc",
        b"\xc3\xbc",
        "text/latin1; charset=utf-8; x=latin1",
    );
    // These texts have no other known charset.
    check("text/plain; charset=utf-8", utf8, utf8, "text/plain; charset=utf-8");
    for content_type in ["text/plain", "text/plain; charset=unheard-of", "image/png"] {
        check(content_type, b"M\xfcller", b"M\xfcller", content_type);
    }
    // These bytes are invalid in their charset.
    check("text/plain; charset=shift_jis", b"\x81", b"\x81", "text/plain; charset=shift_jis");
    assert_eq!(to_utf8(b"\xff".to_vec(), None, 100).unwrap(), (b"\xff".to_vec(), None));
    let long = to_utf8(vec![0xfc; 51], Some("text/plain; charset=latin1".to_owned()), 100);
    assert!(matches!(long, Err(Failure::TooLarge(100))));
}
