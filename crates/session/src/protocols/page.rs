//! Pages of the application, which may be sent in pieces with delays.

use super::client::TransportStatus;
use super::request::{RequestContext, RequestOutcome, borrowed, write_piece, write_stream_head};
use super::response::{Response, ResponseState};
use crate::app::Page;
use crate::executor::Executor;
use crate::millis::Millis;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use stentor_wire::http1;

/// The remaining pieces of a page.
pub(crate) struct DelayedBody {
    pieces: VecDeque<(Duration, Bytes)>,
    chunked: bool,
    state: ResponseState,
}

impl Response for DelayedBody {
    fn state(&self) -> &ResponseState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ResponseState {
        &mut self.state
    }

    fn ends_with_input(&self) -> bool {
        false
    }

    /// The time between the last piece and the next one.
    fn first_timeout(&self, _: &Executor) -> Duration {
        self.pieces.front().map_or(Duration::ZERO, |(after, _)| *after)
    }

    /// Appends the next piece, even if the client hasn't read the previous ones.
    fn handle_timeout(&mut self, ex: &Executor, _: TransportStatus, out: &mut Vec<u8>) -> Option<Millis> {
        if let Some((_, piece)) = self.pieces.pop_front() {
            write_piece(out, self.chunked, &piece);
        }
        self.state.is_whole = self.pieces.is_empty();
        if self.state.is_whole && self.chunked {
            http1::write_last_chunk(out);
        }
        let idle_timeout = ex.options().limits.idle_timeout;
        Some(ex.millis().after(if self.state.is_whole { idle_timeout } else { self.first_timeout(ex) }))
    }
}

/// Answers with a page, or with its first piece.
pub(crate) fn handle_request(cx: &mut RequestContext<'_>, page: Page) -> RequestOutcome {
    let Page { status, content_type, headers, body, later } = page;
    let extra = borrowed(&headers);
    if later.is_empty() {
        return cx.answer(status, &content_type, &extra, &body);
    }
    let chunked = write_stream_head(cx.out, cx.request, &mut cx.options, status, &content_type, &extra);
    write_piece(cx.out, chunked, &body);
    let state = ResponseState::new(cx.options.keep_alive);
    RequestOutcome::Waiting(Box::new(DelayedBody { pieces: later.into(), chunked, state }))
}
