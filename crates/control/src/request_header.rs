//! Headers that a configuration may add to requests to an upstream.

use hyper::header::{ACCEPT_ENCODING, HOST, HeaderName, HeaderValue};

/// Names, in lower case, of headers that the fetcher sets itself. An upstream's `headers` must not have them.
const RESERVED_HEADERS: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "if-modified-since",
    "if-none-match",
    "range",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Checks a header for every request to an upstream.
///
/// # Errors
/// Returns the mistake. The text doesn't contain the value, which may be a secret.
pub fn upstream_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let field =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a header"))?;
    if RESERVED_HEADERS.contains(&field.as_str()) {
        let hint = match field {
            HOST => ": use the setting `host`",
            ACCEPT_ENCODING => ": use the setting `accept_encoding`",
            _ => "",
        };
        return Err(format!("the header {name:?} is set by the fetcher itself{hint}"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("the header {name:?} has characters that no header can have"))?;
    value.set_sensitive(true);
    Ok((field, value))
}
