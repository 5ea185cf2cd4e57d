//! Requests of SockJS clients that wait for frames. A poll gets one frame. A stream gets frames until it has reached its limit.

use super::encode::frame_of;
use crate::encode::{records, unchunked_bytes};
use crate::executor::{Executor, PollAnswer, SEND_BYTES_MAX, SEND_FRAMES_MAX};
use crate::identity::ClientId;
use crate::model::Frame;
use crate::protocols::client::{ActiveTransport, Client, POLL_BYTES_MAX, POLL_FRAMES_MAX};
use crate::protocols::request::write_piece;
use crate::protocols::response::{Response, ResponseContext, ResponseState};
use stentor_wire::sockjs::{self, ResponseLimit, Wrapping};

/// A request that waits for frames.
pub(crate) struct Receiver {
    pub(super) client: ClientId,
    pub(super) state: ResponseState,
    pub(super) wrapping: Wrapping,
    /// `true` if each frame is a chunk (HTTP/1.1).
    pub(super) chunked: bool,
    pub(super) limit: ResponseLimit,
    /// The beginning of the response to a poll. `None` for a stream, whose beginning has already been sent.
    pub(super) poll: Option<Box<PollStart>>,
}

/// The beginning of the response to a poll.
pub(super) struct PollStart {
    /// The headers, without the length and the empty line.
    pub(super) head: Vec<u8>,
    /// The JSONP callback.
    pub(super) callback: Vec<u8>,
}

impl Response for Receiver {
    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }

    fn client(&self) -> Option<ClientId> {
        Some(self.client)
    }

    /// Counts only the beginning of a poll's response. The receiver itself is counted with the connections, so an idle
    /// stream needs no charge of its own.
    fn held_bytes(&self) -> usize {
        self.poll.as_ref().map_or(0, |start| start.head.capacity() + start.callback.capacity())
    }

    fn take_frames(&mut self, cx: &mut ResponseContext<'_>, frames: &mut Vec<Frame>) {
        if let Some(client) = &mut cx.client
            && client.state().transport == ActiveTransport::Stream(cx.conn)
            && self.stream(&mut **client, cx.ex, frames)
        {
            client.handle_response_end(cx.ex);
        }
    }

    fn answer(&mut self, cx: &mut ResponseContext<'_>, answer: PollAnswer, out: &mut Vec<u8>) {
        let Some(client) = cx.client.as_deref_mut().filter(|_| !self.state.is_whole) else { return };
        let has_ended = client.state().ended;
        match answer {
            PollAnswer::Pending if has_ended => {
                self.state.keep_alive &= !cx.ex.is_draining();
                self.write_end(client, cx.ex, out);
            }
            PollAnswer::Pending => self.messages(client, cx.ex, out),
            PollAnswer::Heartbeat => self.write_frame(out, &sockjs::Frame::Heartbeat),
            PollAnswer::Records(_) | PollAnswer::Unavailable => {}
        }
        if self.state.is_whole {
            client.handle_response_end(cx.ex);
        }
    }
}

impl Receiver {
    /// Appends a frame. Ends the response if it has reached its limit.
    fn write(&mut self, out: &mut Vec<u8>, frame: &[u8]) {
        if let Some(PollStart { head, callback }) = self.poll.as_deref() {
            out.extend_from_slice(head);
            let bytes = callback.len() + frame.len();
            out.extend_from_slice(format!("Content-Length: {bytes}\r\n\r\n").as_bytes());
            out.extend_from_slice(callback);
            out.extend_from_slice(frame);
            self.state.is_whole = true;
            return;
        }
        write_piece(out, self.chunked, frame);
        if self.limit.is_reached_by(frame.len()) {
            self.finish(out);
        }
    }

    /// Ends the response.
    fn finish(&mut self, out: &mut Vec<u8>) {
        self.state.finish(self.chunked && self.poll.is_none(), out);
    }

    /// Appends a frame without messages.
    pub(super) fn write_frame(&mut self, out: &mut Vec<u8>, what: &sockjs::Frame<'_>) {
        let mut frame = Vec::with_capacity(64);
        self.wrapping.write(&mut frame, what);
        self.write(out, &frame);
    }

    /// Ends the response with a close frame.
    pub(super) fn refuse(&mut self, out: &mut Vec<u8>, close: sockjs::Close<'_>) {
        self.write_frame(out, &sockjs::Frame::Close(close));
        self.finish(out);
    }

    /// Appends a frame with the client's pending messages, if there are any. For a poll, it includes the session's pending
    /// deliveries.
    pub(super) fn messages(&mut self, client: &mut dyn Client, ex: &mut Executor, out: &mut Vec<u8>) {
        let wrapping = self.wrapping;
        let mut frame = wrapping.head().as_bytes().to_vec();
        let begin = frame.len();
        let separate = |frame: &mut Vec<u8>| {
            if frame.len() > begin {
                frame.push(b',');
            }
        };
        for (_, text) in records(&client.take_queue()) {
            separate(&mut frame);
            // The conversion can't fail, because records contain text of applications.
            wrapping.write_message(&mut frame, std::str::from_utf8(text).unwrap_or_default());
        }
        if self.poll.is_some()
            && let Some(session) = client.session_in("/")
        {
            ex.take(session, POLL_BYTES_MAX, POLL_FRAMES_MAX, |_, encoded| {
                let bytes = encoded.bytes();
                if let Some(messages) = wrapping.messages_of(frame_of(wrapping, &bytes)) {
                    separate(&mut frame);
                    frame.extend_from_slice(messages);
                }
            });
        }
        if frame.len() > begin {
            frame.extend_from_slice(wrapping.tail().as_bytes());
            self.write(out, &frame);
        }
    }

    /// Appends the last frames of a client that has ended. A poll gets the pending messages, or the close frame if there
    /// are none. A stream gets both, unless the messages reach its limit.
    pub(super) fn write_end(&mut self, client: &mut dyn Client, ex: &mut Executor, out: &mut Vec<u8>) {
        self.messages(client, ex, out);
        if !self.state.is_whole
            && let Some((code, reason)) = client.closed()
        {
            self.refuse(out, sockjs::Close { code, reason });
        }
        self.finish(out);
    }

    /// Moves pending messages of a stream's client into `frames`, up to the size of one send. Returns `true` if this has
    /// ended the response.
    pub(crate) fn stream(
        &mut self,
        client: &mut dyn Client,
        ex: &mut Executor,
        frames: &mut Vec<Frame>,
    ) -> bool {
        if self.state.is_whole || self.poll.is_some() {
            return false;
        }
        let mut out = Vec::new();
        self.messages(client, ex, &mut out);
        if !out.is_empty() {
            frames.push(Frame::owned(out));
        }
        if self.state.is_whole {
            return true;
        }
        let (wrapping, chunked, limit) = (self.wrapping, self.chunked, &mut self.limit);
        let bytes_max = SEND_BYTES_MAX.min(limit.left_bytes());
        let mut ended = false;
        if let Some(session) = client.session_in("/") {
            ex.take(session, bytes_max, SEND_FRAMES_MAX, |_, encoded| {
                ended |= limit.is_reached_by(unchunked_bytes(encoded.len()));
                if chunked {
                    frames.push(encoded.clone());
                } else {
                    frames.push(Frame::owned(frame_of(wrapping, &encoded.bytes()).to_vec()));
                }
            });
        }
        if ended {
            let mut end = Vec::new();
            self.finish(&mut end);
            frames.push(Frame::owned(end));
        }
        ended
    }
}
