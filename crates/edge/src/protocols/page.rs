//! Pages of the application's own, perhaps in pieces that come one after the other.

use super::request::{RequestOutcome, ResponseOptions, answer};
use crate::app::Page;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use stentor_wire::http1::{self, Request, Version};

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

    fn write(&self, out: &mut Vec<u8>, piece: &[u8]) {
        if self.chunked {
            http1::write_chunk(out, piece);
        } else {
            out.extend_from_slice(piece);
        }
    }

    /// Appends the next piece.
    pub(crate) fn handle_timeout(&mut self, out: &mut Vec<u8>) {
        let Some((_, piece)) = self.pieces.pop_front() else { return };
        self.write(out, &piece);
        if self.chunked && self.pieces.is_empty() {
            http1::write_last_chunk(out);
        }
    }
}

/// Answers with a page, or with the beginning of one.
pub(crate) fn begin(
    request: &Request<'_>,
    draining: bool,
    page: &Page,
    out: &mut Vec<u8>,
) -> RequestOutcome<Box<DelayedBody>> {
    let options = ResponseOptions::of(request, draining);
    let extra: Vec<(&str, &str)> = page.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    if page.later.is_empty() {
        answer(out, options, page.status, &page.content_type, &extra, &page.body);
        return RequestOutcome::Answered { keep_alive: options.keep_alive };
    }
    let chunked = request.version() == Version::Http11;
    let later = DelayedBody {
        pieces: page.later.iter().cloned().collect(),
        chunked,
        keep_alive: options.keep_alive && chunked,
    };
    let mut headers = vec![("Content-Type", &*page.content_type), ("X-Content-Type-Options", "nosniff")];
    headers.push(("Connection", if later.keep_alive { "keep-alive" } else { "close" }));
    if chunked {
        headers.push(("Transfer-Encoding", "chunked"));
    }
    headers.extend_from_slice(&extra);
    http1::write_response_head(out, page.status, &headers);
    later.write(out, &page.body);
    RequestOutcome::Waiting(Box::new(later))
}
