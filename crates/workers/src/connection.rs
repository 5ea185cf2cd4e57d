//! The WebSocket connection of a worker: bytes in, messages out, and the reverse.
//!
//! A connection is polled by the task of the service. It has one read buffer, and writes what is queued with vectored writes. Large messages
//! in frames aren't copied.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use stentor_link::{FRAME_BYTES_MAX, Frame, LinkError, SHARED_BYTES_MIN};
use stentor_wire::ws::{self, Event, Message, Opcode, Role};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size of the read buffer in bytes.
const READ_BYTES: usize = 64 << 10;

/// Maximum number of pieces of one write.
const PIECES_MAX: usize = 64;

/// Maximum number of bytes of the WebSocket protocol's answers that wait for the worker.
const ANSWERS_BYTES_MAX: usize = 64 << 10;

/// Maximum number of fragments of a message.
const FRAGMENTS_MAX: u32 = 1_024;

/// A byte stream of a worker.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Something that has arrived.
#[derive(Debug)]
pub(crate) enum Input {
    /// A binary message.
    Frame(Bytes),
    /// A ping, whose pong is queued, or a pong.
    Heartbeat,
    /// The worker has broken a rule.
    Violation(LinkError),
    /// The end of the connection, which is the last event.
    Ended,
}

/// State that all connections share: limits, and a buffer.
pub(crate) fn shared() -> ws::Shared {
    ws::Shared::new(ws::Limits { message_bytes_max: FRAME_BYTES_MAX, fragments_max: FRAGMENTS_MAX })
}

/// A connection after its handshake.
pub(crate) struct Connection {
    io: Box<dyn Io>,
    ws: ws::Connection,
    input: Box<[u8]>,
    /// The part of `input` that hasn't been parsed.
    unread: std::ops::Range<usize>,
    /// Pieces to write, before `tail`.
    output: VecDeque<Bytes>,
    output_bytes: usize,
    /// Small pieces to write, joined.
    tail: BytesMut,
    /// Answers of the WebSocket protocol: pongs, and a close.
    answers: Vec<u8>,
    /// Bytes of answers since all output was written.
    answers_bytes: usize,
    /// `true` if written bytes may be in a buffer of the stream.
    is_unflushed: bool,
    /// `true` after the end of the sending direction.
    is_shut: bool,
    is_ended: bool,
}

impl Connection {
    /// A connection from which `read` has been read.
    pub(crate) fn new(io: Box<dyn Io>, read: &[u8]) -> Self {
        let mut input = vec![0; READ_BYTES.max(read.len())];
        input[..read.len()].copy_from_slice(read);
        Self {
            io,
            ws: ws::Connection::new(Role::Server, None),
            input: input.into(),
            unread: 0..read.len(),
            output: VecDeque::new(),
            output_bytes: 0,
            tail: BytesMut::new(),
            answers: Vec::new(),
            answers_bytes: 0,
            is_unflushed: false,
            is_shut: false,
            is_ended: false,
        }
    }

    /// Bytes that the connection holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.len() + self.ws.held_bytes() + self.queued_bytes()
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.output_bytes + self.tail.len() + self.answers.len()
    }

    /// Returns the next input that has arrived.
    pub(crate) fn poll_input(&mut self, shared: &mut ws::Shared, cx: &mut Context<'_>) -> Poll<Input> {
        while !self.is_ended {
            if self.unread.is_empty() {
                let mut buffer = ReadBuf::new(&mut self.input);
                let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer));
                let bytes = buffer.filled().len();
                self.unread = 0..bytes;
                if read.is_err() || bytes == 0 {
                    break;
                }
            }
            let answered = self.answers.len();
            let received = self.ws.receive(shared, &mut self.input[self.unread.clone()], &mut self.answers);
            self.answers_bytes += self.answers.len() - answered;
            let input = match received.event {
                Some(Event::Ping) if self.answers_bytes > ANSWERS_BYTES_MAX => {
                    Some(Input::Violation(LinkError::UnreadPongs))
                }
                Some(Event::Message(Message::Binary(message))) => {
                    Some(Input::Frame(Bytes::copy_from_slice(message)))
                }
                Some(Event::Message(Message::Text(_))) => Some(Input::Violation(LinkError::Text)),
                Some(Event::Ping | Event::Pong(_)) => Some(Input::Heartbeat),
                Some(Event::Closed { error: Some(error), .. }) => {
                    tracing::debug!(%error, "a worker's WebSocket is malformed");
                    Some(Input::Violation(LinkError::WebSocket(error.close_code())))
                }
                Some(Event::Closed { error: None, .. }) => Some(Input::Ended),
                None => None,
            };
            self.unread.start += received.consumed;
            if let Some(input) = input {
                return Poll::Ready(input);
            }
        }
        self.is_ended = true;
        Poll::Ready(Input::Ended)
    }

    /// Reads and discards input until the connection ends.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_ended {
            let mut buffer = ReadBuf::new(&mut self.input);
            let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer));
            self.is_ended = read.is_err() || buffer.filled().is_empty();
        }
        Poll::Ready(())
    }

    /// Queues a frame.
    pub(crate) fn send(&mut self, frame: &Frame) {
        self.answers();
        self.tail.extend_from_slice(&ws::server_header(Opcode::Binary, frame.len(), false));
        for piece in frame.pieces() {
            if piece.len() < SHARED_BYTES_MIN {
                self.tail.extend_from_slice(piece);
            } else {
                self.join_tail();
                self.output_bytes += piece.len();
                self.output.push_back(piece.clone());
            }
        }
    }

    /// Queues a ping.
    pub(crate) fn ping(&mut self) {
        self.tail.extend_from_slice(&ws::server_header(Opcode::Ping, 0, false));
    }

    /// Queues the Close frame, unless the connection is closing.
    pub(crate) fn close(&mut self, code: u16) {
        self.ws.close(code, "", &mut self.answers);
    }

    /// Moves the protocol's answers behind the frames that are queued.
    fn answers(&mut self) {
        self.tail.extend_from_slice(&self.answers);
        self.answers.clear();
    }

    fn join_tail(&mut self) {
        if !self.tail.is_empty() {
            self.output_bytes += self.tail.len();
            self.output.push_back(self.tail.split().freeze());
        }
    }

    /// Writes the queued output. Ready when all output has been written.
    pub(crate) fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answers();
        self.join_tail();
        while !self.output.is_empty() {
            let pieces: Vec<IoSlice<'_>> =
                self.output.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            let mut written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &pieces))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output_bytes -= written;
            self.is_unflushed = true;
            while let Some(first) = self.output.front_mut()
                && written > 0
            {
                let bytes = written.min(first.len());
                first.advance(bytes);
                written -= bytes;
                if first.is_empty() {
                    self.output.pop_front();
                }
            }
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        self.answers_bytes = 0;
        Poll::Ready(Ok(()))
    }

    /// Ends the sending direction after all output has been written.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_output(cx))?;
        if !self.is_shut {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.is_shut = true;
        }
        Poll::Ready(Ok(()))
    }
}
