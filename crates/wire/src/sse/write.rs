//! Writes events. CR, LF and NUL are removed from values, so that a value can't inject lines.

use std::time::Duration;

/// An event to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// The id that the client repeats as `Last-Event-ID`; `None` leaves the previous id valid.
    pub id: Option<&'a str>,
    /// The event's type; `None` means `message`.
    pub event: Option<&'a str>,
    /// The data. CRLF and CR arrive as LF.
    pub data: &'a str,
}

/// Appends an event.
pub fn write_event(out: &mut Vec<u8>, event: &Event<'_>) {
    out.reserve(event.data.len() + 64);
    if let Some(id) = event.id {
        write_field(out, b"id: ", id);
    }
    if let Some(name) = event.event {
        write_field(out, b"event: ", name);
    }
    write_lines(out, b"data: ", event.data);
    out.push(b'\n');
}

/// Appends a comment, which serves as a heartbeat. The comment doesn't end a block, because some clients
/// deliver a block without data as an event (httpx-sse, after an id).
pub fn write_comment(out: &mut Vec<u8>, text: &str) {
    write_lines(out, b": ", text);
}

/// Appends the `retry` line: the delay before clients reconnect, in whole milliseconds. The line belongs to
/// the block of the next event, because some clients deliver a block without data as an event. Browsers apply
/// the delay as soon as they read the line.
pub fn write_retry(out: &mut Vec<u8>, delay: Duration) {
    out.extend_from_slice(format!("retry: {}\n", delay.as_millis()).as_bytes());
}

/// Appends one line without CR, LF and NUL of the value.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
    out.push(b'\n');
}

/// Appends a line for each line of `text`, at least one.
fn write_lines(out: &mut Vec<u8>, name: &[u8], text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let end = memchr::memchr2(b'\r', b'\n', rest);
        out.extend_from_slice(name);
        out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        out.push(b'\n');
        let Some(end) = end else { return };
        rest = &rest[end + if rest[end..].starts_with(b"\r\n") { 2 } else { 1 }..];
    }
}
