//! Lines of the access log, which the data plane and the application link write.

/// The target of the events of the access log.
pub const ACCESS_LOG: &str = "stentor::access";

/// Maximum length of a path in a line of the access log, in bytes.
pub const LOGGED_PATH_BYTES_MAX: usize = 256;

/// The text for a line of the access log, with `?` for each byte that isn't printable ASCII.
pub fn shown(text: &str) -> String {
    let shown = |byte: u8| if byte.is_ascii_graphic() { char::from(byte) } else { '?' };
    text.bytes().map(shown).collect()
}
