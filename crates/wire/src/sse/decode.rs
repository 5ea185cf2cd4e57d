//! Reading a stream (WHATWG HTML section 9.2.6).

use super::Error;
use std::time::Duration;

/// What a stream has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// An event.
    Event {
        /// Its type, `message` if it had none.
        event: &'a str,
        /// Its data, lines joined by LF.
        data: &'a str,
        /// The last id that was set, by this event or one before; empty if none was.
        id: &'a str,
    },
    /// A comment, without the space after its colon.
    Comment(&'a str),
    /// How long to wait before reconnecting.
    Retry(Duration),
}

/// The result of one [`Decoder::receive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received<'a> {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// What they completed.
    pub decoded: Option<Decoded<'a>>,
}

/// Reads one stream. Bytes that are no UTF-8 become U+FFFD; an event that the end of the stream cuts off is none.
#[derive(Debug)]
pub struct Decoder {
    event_bytes_max: usize,
    /// The line that has come in part. Invariant: `line.len() + data.len() <= event_bytes_max + 1`, as has each.
    line: Vec<u8>,
    /// Every line of data ends with LF here.
    data: String,
    event: String,
    /// The last id that was set, and the last that an event's end made valid.
    id: String,
    last_id: String,
    /// The text that was delivered, if it had to be kept.
    comment: String,
    at_start: bool,
    /// The last line ended with CR: an LF right after it belongs to it.
    after_cr: bool,
    is_delivered: bool,
}

impl Decoder {
    /// `event_bytes_max` bounds the data of one event together with the line that is being read, and the type and the
    /// id by themselves.
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

    /// What to send as `Last-Event-ID` when reconnecting; empty if nothing.
    pub fn last_event_id(&self) -> &str {
        &self.last_id
    }

    /// Takes the next bytes of the stream, up to the end of something. To be called again with what is left.
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
                // All are ASCII digits; a delay that does not fit is ignored.
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

/// What a line completes.
enum Line {
    Nothing,
    Event,
    Comment,
    Retry(Duration),
}
