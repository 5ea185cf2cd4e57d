//! Converts texts in charsets other than UTF-8.

use super::failure::Failure;
use encoding_rs::{Encoding, UTF_8};

/// Returns the charset of a media type (RFC 9110, 8.3.2), and the media type with UTF-8 in its place.
fn charset(content_type: &str) -> Option<(&'static Encoding, String)> {
    let mut encoding = None;
    let parts = content_type.split(';').map(|part| match part.split_once('=') {
        Some((name, label)) if name.trim().eq_ignore_ascii_case("charset") => {
            encoding = Encoding::for_label(label.trim().trim_matches('"').as_bytes());
            format!("{name}=utf-8")
        }
        _ => part.to_owned(),
    });
    let named: Vec<String> = parts.collect();
    Some((encoding?, named.join(";")))
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
    let found = content_type.as_deref().and_then(charset).filter(|(encoding, _)| *encoding != UTF_8);
    let Some((encoding, named)) = found else { return Ok((body, content_type)) };
    let (text, had_errors) = encoding.decode_with_bom_removal(&body);
    if had_errors {
        return Ok((body, content_type));
    }
    if text.len() > bytes_max {
        return Err(Failure::TooLarge(bytes_max));
    }
    Ok((text.into_owned().into_bytes(), Some(named)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
