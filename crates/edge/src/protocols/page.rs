//! Pages of the application's own, perhaps in pieces that come one after the other.

use super::request::{RequestContext, RequestOutcome, borrowed, write_piece, write_stream_head};
use crate::app::Page;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use stentor_wire::http1;

/// What is still to come of a page.
pub(crate) struct DelayedBody {
    pieces: VecDeque<(Duration, Bytes)>,
    chunked: bool,
    pub(crate) keep_alive: bool,
}

impl DelayedBody {
    pub(crate) fn is_answered(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How long after the last piece the next one comes.
    pub(crate) fn next_after(&self) -> Duration {
        self.pieces.front().map_or(Duration::ZERO, |(after, _)| *after)
    }

    /// Appends the next piece.
    pub(crate) fn handle_timeout(&mut self, out: &mut Vec<u8>) {
        let Some((_, piece)) = self.pieces.pop_front() else { return };
        write_piece(out, self.chunked, &piece);
        if self.chunked && self.pieces.is_empty() {
            http1::write_last_chunk(out);
        }
    }
}

/// Answers with a page, or with the beginning of one.
pub(crate) fn handle_request(cx: &mut RequestContext<'_>, page: Page) -> RequestOutcome<Box<DelayedBody>> {
    let Page { status, content_type, headers, body, later } = page;
    let extra = borrowed(&headers);
    if later.is_empty() {
        return cx.answer(status, &content_type, &extra, &body);
    }
    let chunked = write_stream_head(cx.out, cx.request, &mut cx.options, status, &content_type, &extra);
    write_piece(cx.out, chunked, &body);
    let keep_alive = cx.options.keep_alive;
    RequestOutcome::Waiting(Box::new(DelayedBody { pieces: later.into(), chunked, keep_alive }))
}
