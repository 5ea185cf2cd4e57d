//! Writing events. A value that could end its line early never does: whoever chooses it gets no line of their own.

use std::time::Duration;

/// One event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// What the client repeats as `Last-Event-ID`; `None` leaves the last one standing.
    pub id: Option<&'a str>,
    /// Its type; `None` is `message`.
    pub event: Option<&'a str>,
    /// Any text. CRLF and CR arrive as LF.
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

/// Appends a comment, which serves as a heartbeat. It doesn't end a block, because some clients deliver a block
/// without data as an event (httpx-sse, after an id).
pub fn write_comment(out: &mut Vec<u8>, text: &str) {
    write_lines(out, b": ", text);
}

/// Appends the `retry` line: the time that clients wait before they reconnect, in whole milliseconds. It belongs to
/// the block of the next event, for the same reason. Browsers apply it as soon as they read it.
pub fn write_retry(out: &mut Vec<u8>, delay: Duration) {
    out.extend_from_slice(format!("retry: {}\n", delay.as_millis()).as_bytes());
}

/// One line; CR, LF and NUL are left out of it.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &str) {
    out.extend_from_slice(name);
    out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
    out.push(b'\n');
}

/// A line for each of `text`, at least one.
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
