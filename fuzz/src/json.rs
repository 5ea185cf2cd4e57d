//! JSON text: the functions of the crate agree with each other on any text.

use stentor_json::{
    DEPTH_MAX, Error, Escaping, RawString, check, depth, elements, members, minify, minify_to, string,
    string_is, unescape, unescape_to_wtf8, value_end, write_escaped, write_wtf8,
};

/// Checks a text, which is the input.
pub fn json(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        assert!(matches!(minify(data.to_vec()), Err(Error::Utf8(_))));
        return;
    };
    // No function panics on unchecked text.
    assert!(elements(text).count() <= text.len());
    assert!(members(text).all(|(name, value)| name.len() + value.len() < text.len()));
    let raw = unescape(text).into_owned();
    string_is(text, &raw);
    unescape_to_wtf8(&mut Vec::new(), data);

    let checked = check(text);
    if !text.starts_with('\u{feff}') {
        let minified = minify(data.to_vec());
        assert_eq!(minified.as_ref().map(|_| ()), checked.as_ref().map(|_| ()));
        if let Ok(minified) = minified {
            assert_eq!(minify(minified.clone()), Ok(minified.clone()));
            let mut appended = Vec::new();
            minify_to(&mut appended, data);
            assert_eq!(appended, minified);
        }
    }
    if checked.is_ok() {
        assert!(depth(data) <= DEPTH_MAX);
        assert!(value_end(text, 0).is_ok_and(|end| text[end..].trim().is_empty()));
        if let Some(means) = string(text.trim_matches([' ', '\t', '\n', '\r'])) {
            strings(&means);
        }
    }
    strings(text);
}

/// Checks that a written string reads as the same text.
fn strings(text: &str) {
    for escaping in [Escaping::Json, Escaping::Script, Escaping::Transit] {
        let mut written = Vec::new();
        write_escaped(&mut written, text, escaping);
        let written = str::from_utf8(&written).expect("we write UTF-8");
        assert_eq!(check(written), Ok(()));
        let (raw, rest) = RawString::read(written).expect("our own string is sound");
        assert_eq!((&*raw.unescape(), rest), (text, ""));
        assert!(raw.starts_with(text) && string_is(&written[1..written.len() - 1], text));
    }
    for escaping in [Escaping::TransitEventStream, Escaping::TransitScript, Escaping::TransitHtmlScript] {
        write_escaped(&mut Vec::new(), text, escaping);
    }
    let (mut written, mut means) = (Vec::new(), Vec::new());
    write_wtf8(&mut written, text.as_bytes());
    unescape_to_wtf8(&mut means, &written);
    assert_eq!(means, text.as_bytes());
}
