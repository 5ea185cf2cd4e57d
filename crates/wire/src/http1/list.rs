//! Comma-separated header values (RFC 9110 section 5.6). Every function takes time linear in the value's
//! length.

/// Returns `true` for a byte of a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");
    TOKEN[usize::from(byte)]
}

/// Makes a table that is `true` for letters, digits, and the bytes of `others`.
pub(crate) const fn table(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// Returns `true` for a non-empty token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Returns `bytes` without spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Iterates over the tokens of a comma-separated list, trimmed. Empty and malformed elements are skipped.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &str> {
    let elements = value.split(|byte| *byte == b',').map(trim);
    elements.filter(|element| is_token(element)).filter_map(|token| str::from_utf8(token).ok())
}

/// Splits at `separator`, but not inside a quoted string (RFC 9110 section 5.6.4). Elements are trimmed and
/// may be empty.
pub(crate) fn split_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let (mut quoted, mut escaped) = (false, false);
        for (at, &byte) in bytes.iter().enumerate() {
            if escaped {
                escaped = false;
            } else if quoted && byte == b'\\' {
                escaped = true;
            } else if byte == b'"' {
                quoted = !quoted;
            } else if byte == separator && !quoted {
                rest = Some(&bytes[at + 1..]);
                return Some(trim(&bytes[..at]));
            }
        }
        rest = None;
        Some(trim(bytes))
    })
}
