//! Writes heads and chunks. Headers that could inject a line are dropped.

use super::list::is_token;

/// Returns the usual reason phrase of a status, `""` if it has none.
fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// Appends `name: value` and CRLF. Drops a name that is no token, and a value with CR, LF or NUL: such a
/// value could inject further headers.
pub fn write_header(out: &mut Vec<u8>, name: &str, value: &str) {
    let safe = is_token(name.as_bytes()) && !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if safe {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends an HTTP/1.1 response head, including the empty line. `status` has three digits. The caller
/// supplies all headers, framing included.
pub fn write_response_head(out: &mut Vec<u8>, status: u16, headers: &[(&str, &str)]) {
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
    write_headers(out, headers);
}

/// Appends the headers and the empty line.
pub(crate) fn write_headers(out: &mut Vec<u8>, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        write_header(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends an HTTP/1.1 request head, including the empty line. The caller supplies all headers, `Host`
/// included.
///
/// Method and target come from our own code. Bytes in them that would end the line early are left out.
pub fn write_request_head(out: &mut Vec<u8>, method: &str, target: &str, headers: &[(&str, &str)]) {
    out.extend(method.bytes().filter(u8::is_ascii_graphic));
    out.push(b' ');
    out.extend(target.bytes().filter(u8::is_ascii_graphic));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_headers(out, headers);
}

/// Appends `data` as one chunk of a chunked body. Appends nothing if `data` is empty, because an empty chunk
/// would end the body.
pub fn write_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        let digits = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
        out.extend((0..digits).rev().map(|digit| b"0123456789abcdef"[data.len() >> (4 * digit) & 0xf]));
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the end of a chunked body, without trailers.
pub fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}
