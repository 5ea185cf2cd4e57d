//! Pages of the application's own, perhaps in pieces that come one after the other.

use super::Core;
use super::http::Verdict;
use super::request::{Manner, answer};
use super::table::{Conn, Stack, Waiting};
use crate::app::Page;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use stentor_driver::Driver;
use stentor_wire::http1::{self, Request, Version};

/// What is still to come of a page.
pub(super) struct Later {
    pieces: VecDeque<(Duration, Bytes)>,
    chunked: bool,
    pub(super) keep_alive: bool,
}

impl Later {
    pub(super) fn is_answered(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How long after the last piece the next one comes.
    pub(super) fn next_after(&self) -> Duration {
        self.pieces.front().map_or(Duration::ZERO, |(after, _)| *after)
    }

    fn write(&self, out: &mut Vec<u8>, piece: &[u8]) {
        if self.chunked {
            http1::write_chunk(out, piece);
        } else {
            out.extend_from_slice(piece);
        }
    }
}

impl<D: Driver> Core<D> {
    /// Answers with a page, or with the beginning of one.
    pub(super) fn begin_page(&mut self, request: &Request<'_>, page: &Page, out: &mut Vec<u8>) -> Verdict {
        let manner = Manner::of(request, self.draining);
        let extra: Vec<(&str, &str)> = page.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        if page.later.is_empty() {
            answer(out, manner, page.status, &page.content_type, &extra, &page.body);
            return Verdict::Answered { keep_alive: manner.keep_alive };
        }
        let chunked = request.version() == Version::Http11;
        let later = Later {
            pieces: page.later.iter().cloned().collect(),
            chunked,
            keep_alive: manner.keep_alive && chunked,
        };
        let mut headers = vec![("Content-Type", &*page.content_type), ("X-Content-Type-Options", "nosniff")];
        headers.push(("Connection", if later.keep_alive { "keep-alive" } else { "close" }));
        if chunked {
            headers.push(("Transfer-Encoding", "chunked"));
        }
        headers.extend_from_slice(&extra);
        http1::write_response_head(out, page.status, &headers);
        later.write(out, &page.body);
        Verdict::Waiting(Waiting::Page(Box::new(later)))
    }

    /// It is time for the next piece of a page.
    pub(super) fn more_of_page(&mut self, index: usize) {
        let now = self.millis();
        let idle_timeout = self.shared.options.limits.idle_timeout;
        let Some(conn) = self.table.get_mut(index) else { return };
        let Conn { stack: Stack::Http(http), replies, .. } = conn else { return };
        let Some(Waiting::Page(page)) = &mut http.waiting else { return };
        let Some((_, piece)) = page.pieces.pop_front() else { return };
        let out = replies.get_or_insert_default();
        page.write(out, &piece);
        if page.chunked && page.pieces.is_empty() {
            http1::write_last_chunk(out);
        }
        let deadline = now.after(if page.is_answered() { idle_timeout } else { page.next_after() });
        http.deadline = deadline;
        conn.weigh(&self.shared.ledger);
        self.arm(index, deadline);
        self.flush(index);
    }
}
