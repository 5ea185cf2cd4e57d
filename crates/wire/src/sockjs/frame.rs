//! A server's frames, in the wrapping of each transport.

use super::Transport;
use super::answer::Callback;
use stentor_json::{Escaping, write_escaped};

/// A frame from the server to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `o`: a session has begun.
    Open,
    /// `h`: heartbeat of the server.
    Heartbeat,
    /// `a[…]`: messages.
    Messages(&'a [&'a str]),
    /// `c[…]`: the session is over.
    Close(Close<'a>),
}

/// The reason for the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close<'a> {
    /// The application's code, or a code of SockJS.
    pub code: u16,
    /// The reason, for people.
    pub reason: &'a str,
}

impl Close<'static> {
    /// Sent to a second receiver while the first one is attached.
    pub const ANOTHER_CONNECTION: Self = Close { code: 2010, reason: "Another connection still open" };
    /// Sent to a receiver after an earlier one whose connection broke.
    pub const INTERRUPTED: Self = Close { code: 1002, reason: "Connection interrupted" };
    /// The default of an application.
    pub const NORMAL: Self = Close { code: 1000, reason: "Normal closure" };
}

/// The bytes around a frame, by transport. A frame in one wrapping has the same bytes for all receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrapping {
    /// No wrapping: WebSocket has its own frames.
    WebSocket,
    /// A line, for `xhr` and `xhr_streaming`.
    Xhr,
    /// A server-sent event without a name.
    EventSource,
    /// A script.
    HtmlFile,
    /// The end of a function call, whose start is written separately, see [`write_jsonp_callback`].
    Jsonp,
}

impl Wrapping {
    /// All wrappings.
    pub const ALL: [Wrapping; 5] =
        [Wrapping::WebSocket, Wrapping::Xhr, Wrapping::EventSource, Wrapping::HtmlFile, Wrapping::Jsonp];

    /// Returns the wrapping of a transport; `None` if the transport sends no frames.
    pub fn of(transport: Transport) -> Option<Wrapping> {
        match transport {
            Transport::WebSocket => Some(Wrapping::WebSocket),
            Transport::Xhr | Transport::XhrStreaming => Some(Wrapping::Xhr),
            Transport::EventSource => Some(Wrapping::EventSource),
            Transport::HtmlFile => Some(Wrapping::HtmlFile),
            Transport::Jsonp => Some(Wrapping::Jsonp),
            Transport::XhrSend | Transport::JsonpSend => None,
        }
    }

    /// Returns the bytes before any frame.
    fn before(self) -> &'static str {
        self.head().trim_end_matches("a[")
    }

    /// Returns the bytes after any frame.
    fn after(self) -> &'static str {
        self.tail().trim_start_matches(']')
    }

    #[inline]
    fn escaping(self) -> Escaping {
        match self {
            Wrapping::WebSocket | Wrapping::Xhr => Escaping::Transit,
            Wrapping::EventSource => Escaping::TransitEventStream,
            Wrapping::HtmlFile => Escaping::TransitHtmlScript,
            Wrapping::Jsonp => Escaping::TransitScript,
        }
    }

    /// Returns the bytes before the messages of a frame of messages.
    #[inline]
    pub fn head(self) -> &'static str {
        match self {
            Wrapping::WebSocket | Wrapping::Xhr => "a[",
            Wrapping::EventSource => "data: a[",
            Wrapping::HtmlFile => "<script>\np(\"a[",
            Wrapping::Jsonp => "(\"a[",
        }
    }

    /// Returns the bytes after the messages of a frame of messages.
    #[inline]
    pub fn tail(self) -> &'static str {
        match self {
            Wrapping::WebSocket => "]",
            Wrapping::Xhr => "]\n",
            Wrapping::EventSource => "]\r\n\r\n",
            Wrapping::HtmlFile => "]\");\n</script>\r\n",
            Wrapping::Jsonp => "]\");\r\n",
        }
    }

    /// Returns the messages in an encoded frame. Messages of several frames can be joined with commas between
    /// a [`head`](Self::head) and a [`tail`](Self::tail). `None` if the frame has another type.
    pub fn messages_of(self, frame: &[u8]) -> Option<&[u8]> {
        frame.strip_prefix(self.head().as_bytes())?.strip_suffix(self.tail().as_bytes())
    }

    /// Appends one message as it stands in a frame: a string with its quotes, escaped for this wrapping.
    #[inline]
    pub fn write_message(self, out: &mut Vec<u8>, text: &str) {
        write_escaped(out, text, self.escaping());
    }

    /// Appends messages, joined by commas.
    #[inline]
    pub(super) fn write_joined(self, out: &mut Vec<u8>, messages: &[&str]) {
        for (at, text) in messages.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.write_message(out, text);
        }
    }

    /// Appends a frame.
    #[inline]
    pub fn write(self, out: &mut Vec<u8>, frame: &Frame<'_>) {
        match frame {
            Frame::Messages(messages) => {
                out.extend_from_slice(self.head().as_bytes());
                self.write_joined(out, messages);
                out.extend_from_slice(self.tail().as_bytes());
            }
            Frame::Open => self.write_plain(out, "o"),
            Frame::Heartbeat => self.write_plain(out, "h"),
            Frame::Close(close) => self.write_close(out, close),
        }
    }

    fn write_close(self, out: &mut Vec<u8>, Close { code, reason }: &Close<'_>) {
        out.extend_from_slice(format!("{}c[{code},", self.before()).as_bytes());
        self.write_message(out, reason);
        out.extend_from_slice(self.tail().as_bytes());
    }

    fn write_plain(self, out: &mut Vec<u8>, frame: &str) {
        for part in [self.before(), frame, self.after()] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

/// Appends the start of a frame in [`Wrapping::Jsonp`]. The comment keeps software, Flash above all, from
/// reading the response as anything but a script.
pub fn write_jsonp_callback(out: &mut Vec<u8>, callback: &Callback<'_>) {
    out.extend_from_slice(b"/**/");
    out.extend_from_slice(callback.as_str().as_bytes());
}

/// Counts the bytes of a response, to end it in time: browsers keep a complete streaming response in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimit {
    left_bytes: usize,
}

impl ResponseLimit {
    /// Default limit of sockjs-node for streaming transports, in bytes.
    pub const STREAMING_BYTES: usize = 128 * 1024;

    /// Makes the limit of a response: `streaming_bytes` for a streaming transport, one frame for polling,
    /// unlimited for a WebSocket.
    pub fn new(transport: Transport, streaming_bytes: usize) -> Self {
        let left_bytes = match transport {
            Transport::XhrStreaming | Transport::EventSource | Transport::HtmlFile => streaming_bytes,
            Transport::Xhr | Transport::Jsonp | Transport::XhrSend | Transport::JsonpSend => 1,
            Transport::WebSocket => usize::MAX,
        };
        ResponseLimit { left_bytes }
    }

    /// Returns the number of bytes until the limit; `usize::MAX` without a limit.
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// Counts a wrapped frame (the prelude doesn't count). Returns `true` if the response must end with it.
    #[must_use]
    pub fn is_reached_by(&mut self, frame_bytes: usize) -> bool {
        if self.left_bytes != usize::MAX {
            self.left_bytes = self.left_bytes.saturating_sub(frame_bytes);
        }
        self.left_bytes == 0
    }
}
