//! A server's frames, in the wrapping of each transport.

use super::Transport;
use super::answer::Callback;
use stentor_json::{Escaping, write_escaped};

/// A frame from the server to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// `o`: a session has begun.
    Open,
    /// `h`: the server lives.
    Heartbeat,
    /// `a[…]`: messages.
    Messages(&'a [&'a str]),
    /// `c[…]`: the session is over.
    Close(Close<'a>),
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close<'a> {
    /// The application's code, or one of SockJS.
    pub code: u16,
    /// For people.
    pub reason: &'a str,
}

impl Close<'static> {
    /// What a second receiver gets while the first is attached.
    pub const ANOTHER_CONNECTION: Self = Close { code: 2010, reason: "Another connection still open" };
    /// What a receiver gets after one that went away without its end.
    pub const INTERRUPTED: Self = Close { code: 1002, reason: "Connection interrupted" };
    /// An application's default.
    pub const NORMAL: Self = Close { code: 1000, reason: "Normal closure" };
}

/// What is put around frames on their way. A frame in one wrapping is the same bytes for all receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wrapping {
    /// Nothing: a WebSocket has frames of its own.
    WebSocket,
    /// A line, for `xhr` and `xhr_streaming`.
    Xhr,
    /// An event without a name.
    EventSource,
    /// A script.
    HtmlFile,
    /// The rest of a call whose callback is written before, see [`write_jsonp_callback`].
    Jsonp,
}

impl Wrapping {
    /// All of them.
    pub const ALL: [Wrapping; 5] =
        [Wrapping::WebSocket, Wrapping::Xhr, Wrapping::EventSource, Wrapping::HtmlFile, Wrapping::Jsonp];

    /// What a transport needs; `None` where it takes no frames.
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

    /// What any frame begins with.
    fn before(self) -> &'static str {
        self.head().trim_end_matches("a[")
    }

    /// What any frame ends with.
    fn after(self) -> &'static str {
        self.tail().trim_start_matches(']')
    }

    fn escaping(self) -> Escaping {
        match self {
            Wrapping::WebSocket | Wrapping::Xhr => Escaping::SockJs,
            Wrapping::EventSource => Escaping::SockJsEventStream,
            Wrapping::HtmlFile => Escaping::SockJsHtmlScript,
            Wrapping::Jsonp => Escaping::SockJsScript,
        }
    }

    /// What a frame of messages begins with.
    pub fn head(self) -> &'static str {
        match self {
            Wrapping::WebSocket | Wrapping::Xhr => "a[",
            Wrapping::EventSource => "data: a[",
            Wrapping::HtmlFile => "<script>\np(\"a[",
            Wrapping::Jsonp => "(\"a[",
        }
    }

    /// What a frame of messages ends with.
    pub fn tail(self) -> &'static str {
        match self {
            Wrapping::WebSocket => "]",
            Wrapping::Xhr => "]\n",
            Wrapping::EventSource => "]\r\n\r\n",
            Wrapping::HtmlFile => "]\");\n</script>\r\n",
            Wrapping::Jsonp => "]\");\r\n",
        }
    }

    /// The messages of an encoded frame of messages, to be joined with those of others by commas between a
    /// [`head`](Self::head) and a [`tail`](Self::tail). `None` if the frame is another.
    pub fn messages_of(self, frame: &[u8]) -> Option<&[u8]> {
        frame.strip_prefix(self.head().as_bytes())?.strip_suffix(self.tail().as_bytes())
    }

    /// Appends one message as it stands in a frame: a string with its quotes, escaped for where the frame is put.
    pub fn write_message(self, out: &mut Vec<u8>, text: &str) {
        write_escaped(out, text, self.escaping());
    }

    /// Appends messages, joined by commas.
    pub(super) fn write_joined(self, out: &mut Vec<u8>, messages: &[&str]) {
        for (at, text) in messages.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.write_message(out, text);
        }
    }

    /// Appends a frame.
    pub fn write(self, out: &mut Vec<u8>, frame: &Frame<'_>) {
        match frame {
            Frame::Messages(messages) => {
                out.extend_from_slice(self.head().as_bytes());
                self.write_joined(out, messages);
                out.extend_from_slice(self.tail().as_bytes());
            }
            Frame::Open => self.write_plain(out, "o"),
            Frame::Heartbeat => self.write_plain(out, "h"),
            Frame::Close(Close { code, reason }) => {
                out.extend_from_slice(format!("{}c[{code},", self.before()).as_bytes());
                self.write_message(out, reason);
                out.extend_from_slice(self.tail().as_bytes());
            }
        }
    }

    fn write_plain(self, out: &mut Vec<u8>, frame: &str) {
        for part in [self.before(), frame, self.after()] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

/// Appends what stands before a frame in [`Wrapping::Jsonp`]. The comment keeps the response from being taken for
/// something else than a script, Flash above all.
pub fn write_jsonp_callback(out: &mut Vec<u8>, callback: &Callback<'_>) {
    out.extend_from_slice(b"/**/");
    out.extend_from_slice(callback.as_str().as_bytes());
}

/// Counts what a response has carried, to end it in time: browsers keep all of a streaming response in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimit {
    left_bytes: usize,
}

impl ResponseLimit {
    /// sockjs-node's default for streaming transports, in bytes.
    pub const STREAMING_BYTES: usize = 128 * 1024;

    /// For a response of this transport, with `streaming_bytes` if it streams; at most one frame if it polls, any
    /// number on a WebSocket.
    pub fn new(transport: Transport, streaming_bytes: usize) -> Self {
        let left_bytes = match transport {
            Transport::XhrStreaming | Transport::EventSource | Transport::HtmlFile => streaming_bytes,
            Transport::Xhr | Transport::Jsonp | Transport::XhrSend | Transport::JsonpSend => 1,
            Transport::WebSocket => usize::MAX,
        };
        ResponseLimit { left_bytes }
    }

    /// Bytes until the end: `usize::MAX` where there is no limit.
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// Takes note of a frame, wrapped (the prelude doesn't count). True if the response ends with it.
    #[must_use]
    pub fn is_reached_by(&mut self, frame_bytes: usize) -> bool {
        if self.left_bytes != usize::MAX {
            self.left_bytes = self.left_bytes.saturating_sub(frame_bytes);
        }
        self.left_bytes == 0
    }
}
