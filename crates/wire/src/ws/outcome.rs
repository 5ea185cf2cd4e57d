//! The result of one step of a connection, before it becomes an event for the caller.

use super::{Error, Kind};

/// Location of delivered bytes.
pub(super) enum PayloadRange {
    /// `input[start..end]`
    Input(usize, usize),
    /// `shared.gathered[start..]`
    Gathered(usize),
    Inflated,
}

pub(super) enum Outcome {
    Nothing,
    Message(Kind, PayloadRange),
    Ping,
    Pong(PayloadRange),
    Closed(u16, PayloadRange),
    Violation(Error),
}

impl PayloadRange {
    pub(super) fn after(self, skipped: usize) -> PayloadRange {
        match self {
            PayloadRange::Input(start, end) => PayloadRange::Input(start + skipped, end),
            PayloadRange::Gathered(start) => PayloadRange::Gathered(start + skipped),
            other => other,
        }
    }
}
