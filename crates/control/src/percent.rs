//! Percent escapes (RFC 3986, 2.1).

/// Decodes `text`. Returns its bytes, and `true` if all escapes are well-formed. Copies malformed escapes
/// unchanged.
pub(crate) fn decode(text: &str) -> (Vec<u8>, bool) {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    let mut are_whole = true;
    for piece in pieces {
        let digits =
            piece.split_at_checked(2).filter(|(digits, _)| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|(digits, rest)| Some((u8::from_str_radix(digits, 16).ok()?, rest))) {
            Some((byte, rest)) => {
                bytes.push(byte);
                bytes.extend_from_slice(rest.as_bytes());
            }
            None => {
                are_whole = false;
                bytes.push(b'%');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    (bytes, are_whole)
}

/// Decodes `text`. Returns `None` if an escape is malformed or the result isn't UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let (bytes, are_whole) = decode(text);
    String::from_utf8(bytes).ok().filter(|_| are_whole)
}

/// Appends `value` to `out`. Escapes all bytes for which `keeps` returns `false`.
pub(crate) fn encode(value: &str, keeps: impl Fn(u8) -> bool, out: &mut String) {
    for byte in value.bytes() {
        if keeps(byte) {
            out.push(char::from(byte));
        } else {
            let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0').to_ascii_uppercase();
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}
