//! The requests to the engine: at most [`REQUESTS_MAX`] have no answer, and further ones wait.

use super::REQUESTS_MAX;
use crate::engine::Request;
use std::collections::VecDeque;
use std::time::Instant;
use stentor_hub::{Key, ShrinkingMap, pop_front};

/// Memory of a request without an answer.
const REQUEST_BYTES: usize = size_of::<Asked>() + size_of::<Request>();

/// The purpose of a request, and the term of the lease that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Load,
    Acquire,
    Renew(u64),
    Release(u64),
    Store(u64),
}

/// The number of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

/// A request without an answer.
pub(super) struct Asked {
    pub(super) key: Key,
    /// The incarnation of the feed that made the request.
    pub(super) incarnation: u64,
    pub(super) purpose: Purpose,
    pub(super) at: Instant,
}

#[derive(Default)]
pub(super) struct Requests {
    /// Requests without an answer, those in `waiting` included.
    pub(super) asked: ShrinkingMap<Ticket, Asked>,
    /// The last number.
    drawn: u64,
    /// Number of requests before the engine was connected again.
    drawn_before: u64,
    /// Requests that wait until others are answered.
    pub(super) waiting: VecDeque<(Ticket, Request)>,
    /// Number of requests that were sent.
    pub(super) sent: u64,
    /// Number of entries that the engine has refused, although the node knew the log.
    pub(super) refused: u64,
}

impl Requests {
    /// The number of the last request.
    pub(super) fn drawn(&self) -> u64 {
        self.drawn
    }

    /// The ticket of the last request.
    pub(super) fn last(&self) -> Ticket {
        Ticket(self.drawn)
    }

    /// Draws a number that no request has.
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Adds a request.
    pub(super) fn push(&mut self, asked: Asked, request: Request) -> Ticket {
        let ticket = Ticket(self.draw());
        self.asked.insert(ticket, asked);
        self.waiting.push_back((ticket, request));
        ticket
    }

    /// Returns the next request to send.
    pub(super) fn poll(&mut self) -> Option<(Ticket, Request)> {
        if self.asked.len() - self.waiting.len() >= REQUESTS_MAX {
            return None;
        }
        let next = pop_front(&mut self.waiting)?;
        self.sent += 1;
        Some(next)
    }

    /// Called when the engine is connected again.
    pub(super) fn handle_connected(&mut self) {
        self.drawn_before = self.drawn;
    }

    /// Returns `true` if a request was made before the engine was connected again.
    pub(super) fn is_former(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.drawn_before
    }

    /// Returns `true` while the engine hasn't released all leases that it should release, or may grant a lease because of a request
    /// up to `left_at`.
    pub(super) fn is_releasing(&self, left_at: Option<Ticket>) -> bool {
        self.asked.iter().any(|(ticket, asked)| match asked.purpose {
            Purpose::Release(_) => true,
            Purpose::Acquire => left_at.is_some_and(|left_at| *ticket <= left_at),
            Purpose::Load | Purpose::Renew(_) | Purpose::Store(_) => false,
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.asked.len() * REQUEST_BYTES
    }
}
