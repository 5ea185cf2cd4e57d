//! The response that carries lines to a client, until the response ends or another one replaces it.

use super::encode::{lines, write_line};
use crate::executor::PollAnswer;
use crate::identity::ClientId;
use crate::model::Frame;
use crate::protocols::client::{ActiveTransport, Client};
use crate::protocols::request::write_piece;
use crate::protocols::response::{Response, ResponseContext, ResponseState};

/// A heartbeat: an empty line. It doesn't count as a line.
const EMPTY_LINE: &[u8] = b"\n";

/// A response that carries lines.
pub(super) struct Stream {
    pub(super) client: ClientId,
    pub(super) state: ResponseState,
    /// `true` if each line is a chunk (HTTP/1.1).
    pub(super) is_chunked: bool,
    /// Number of bytes after which the response ends.
    pub(super) left_bytes: usize,
}

impl Response for Stream {
    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }

    fn client(&self) -> Option<ClientId> {
        Some(self.client)
    }

    fn take_frames(&mut self, cx: &mut ResponseContext<'_>, frames: &mut Vec<Frame>) {
        let Some(client) = cx.client.as_deref_mut().filter(|_| !self.state.is_whole) else { return };
        if client.state().transport != ActiveTransport::Stream(cx.conn) {
            return;
        }
        let begin = frames.len();
        client.take_frames(cx.ex, frames);
        let bytes: usize = frames[begin..].iter().map(Frame::len).sum();
        if !self.is_chunked {
            for frame in &mut frames[begin..] {
                *frame = Frame::owned(lines(&frame.bytes()).collect::<Vec<_>>().concat());
            }
        }
        let mut end = Vec::new();
        if self.ends_after(bytes, &mut end) {
            frames.extend((!end.is_empty()).then(|| Frame::owned(end)));
            client.handle_response_end(cx.ex);
        }
    }

    fn answer(&mut self, cx: &mut ResponseContext<'_>, answer: PollAnswer, out: &mut Vec<u8>) {
        let Some(client) = cx.client.as_deref_mut().filter(|_| !self.state.is_whole) else { return };
        let is_carrier = client.state().transport == ActiveTransport::Stream(cx.conn);
        match answer {
            PollAnswer::Heartbeat => {
                write_piece(out, self.is_chunked, EMPTY_LINE);
                if is_carrier && self.ends_after(EMPTY_LINE.len(), out) {
                    client.handle_response_end(cx.ex);
                }
            }
            PollAnswer::Pending if client.state().ended => {
                self.state.keep_alive &= !cx.ex.is_draining();
                self.write_end(client, out);
            }
            // Another stream carries the client now.
            _ if !is_carrier => self.state.finish(self.is_chunked, out),
            _ => {}
        }
    }
}

impl Stream {
    /// Counts bytes that the response carries. If it has reached its bound, ends it and returns `true`.
    fn ends_after(&mut self, bytes: usize, out: &mut Vec<u8>) -> bool {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        if self.left_bytes > 0 {
            return false;
        }
        self.state.finish(self.is_chunked, out);
        true
    }

    /// Appends the lines that wait for a client that has ended, the reason, and the end of the response.
    pub(super) fn write_end(&mut self, client: &mut dyn Client, out: &mut Vec<u8>) {
        let mut last = client.take_queue();
        if let Some((code, reason)) = client.closed() {
            let reason = String::from_utf8(crate::encode::json_string(reason)).unwrap_or_default();
            write_line(&mut last, &format!(r#"{{"type":"disconnect","code":{code},"reason":{reason}}}"#));
        }
        if self.is_chunked {
            out.append(&mut last);
        } else {
            lines(&last).for_each(|line| out.extend_from_slice(line));
        }
        self.state.finish(self.is_chunked, out);
    }
}
