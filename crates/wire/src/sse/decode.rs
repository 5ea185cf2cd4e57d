//! Decodes an event stream (WHATWG HTML section 9.2.6).

use super::Error;
use std::time::Duration;

/// A decoded element of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// An event.
    Event {
        /// The event's type; `message` if the event has none.
        event: &'a str,
        /// The event's data, lines joined by LF.
        data: &'a str,
        /// The last id that this event or an earlier one set; empty if none did.
        id: &'a str,
    },
    /// A comment, without the space after its colon.
    Comment(&'a str),
    /// The delay before reconnecting.
    Retry(Duration),
}

/// The result of one [`Decoder::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// Number of input bytes that are processed.
    pub consumed: usize,
    /// The element that these bytes complete.
    pub decoded: Option<Decoded<'a>>,
}

/// Decodes one stream. Malformed UTF-8 becomes U+FFFD. An event that the end of the stream truncates is
/// discarded.
#[derive(Debug)]
pub struct Decoder {
    event_bytes_max: usize,
    /// The incomplete line. Invariant: `line.len() + data.len() <= event_bytes_max + 1`, and the same holds
    /// for each alone.
    line: Vec<u8>,
    /// The data so far. Every line ends with LF here.
    data: String,
    event: String,
    /// The last id that was set, and the last one that the end of an event made valid.
    id: String,
    last_id: String,
    /// The delivered text, if it had to be stored.
    comment: String,
    at_start: bool,
    /// `true` if the last line ended with CR: an LF right after it belongs to that line end.
    after_cr: bool,
    is_delivered: bool,
}

impl Decoder {
    /// Makes a decoder. `event_bytes_max` limits the data of one event together with the current line, and
    /// also the type and the id, each alone.
    pub fn new(event_bytes_max: usize) -> Self {
        Decoder {
            event_bytes_max,
            line: Vec::new(),
            data: String::new(),
            event: String::new(),
            id: String::new(),
            last_id: String::new(),
            comment: String::new(),
            at_start: true,
            after_cr: false,
            is_delivered: false,
        }
    }

    /// Returns the value of `Last-Event-ID` for reconnecting; empty if the stream had no id.
    pub fn last_event_id(&self) -> &str {
        &self.last_id
    }

    /// Processes the next bytes of the stream, up to the end of one element. Call it again with the remaining
    /// bytes.
    ///
    /// # Errors
    /// [`Error::EventTooBig`].
    pub fn receive(&mut self, input: &[u8]) -> Result<Received<'_>, Error> {
        if std::mem::take(&mut self.is_delivered) {
            self.data.clear();
            self.event.clear();
        }
        let mut consumed = 0;
        while consumed < input.len() {
            let rest = &input[consumed..];
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                consumed += 1;
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', rest);
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + piece.len() + self.data.len() > self.event_bytes_max {
                return Err(Error::EventTooBig);
            }
            consumed += piece.len();
            let Some(end) = end else {
                self.line.extend_from_slice(piece);
                break;
            };
            consumed += 1;
            self.after_cr = rest[end] == b'\r';
            let line = if self.line.is_empty() {
                self.take_line(piece)
            } else {
                self.line.extend_from_slice(piece);
                let line = std::mem::take(&mut self.line);
                let taken = self.take_line(&line);
                self.line = line;
                self.line.clear();
                taken
            };
            let decoded = match line {
                Line::Nothing => continue,
                Line::Event => Decoded::Event {
                    event: if self.event.is_empty() { "message" } else { &self.event },
                    data: &self.data[..self.data.len() - 1],
                    id: &self.last_id,
                },
                Line::Comment => Decoded::Comment(&self.comment),
                Line::Retry(delay) => Decoded::Retry(delay),
            };
            return Ok(Received { consumed, decoded: Some(decoded) });
        }
        Ok(Received { consumed, decoded: None })
    }

    fn take_line(&mut self, line: &[u8]) -> Line {
        let bom = if std::mem::take(&mut self.at_start) { line.strip_prefix(b"\xef\xbb\xbf") } else { None };
        let line = bom.unwrap_or(line);
        if line.is_empty() {
            self.last_id.clone_from(&self.id);
            if self.data.is_empty() {
                self.event.clear();
                return Line::Nothing;
            }
            self.is_delivered = true;
            return Line::Event;
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let put = |text: &mut String| {
            text.clear();
            text.push_str(&String::from_utf8_lossy(value));
        };
        match name {
            b"" => {
                put(&mut self.comment);
                return Line::Comment;
            }
            b"data" => {
                self.data.push_str(&String::from_utf8_lossy(value));
                self.data.push('\n');
            }
            b"event" => put(&mut self.event),
            b"id" if !value.contains(&0) => put(&mut self.id),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                // All characters are ASCII digits. A delay that does not fit is ignored.
                let millis = str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                if let Some(millis) = millis {
                    return Line::Retry(Duration::from_millis(millis));
                }
            }
            _ => {}
        }
        Line::Nothing
    }
}

/// The element that a line completes.
enum Line {
    Nothing,
    Event,
    Comment,
    Retry(Duration),
}
