//! The audit of every message: its checksum and length, and its number beside that which had to come on its connection.

use super::{ConnectionPool, Message};
use crate::payload::Head;

/// How many numbers a connection may skip at once: beyond that a number is no number.
const AHEAD_MAX: u64 = 1 << 20;
/// Skipped numbers that are remembered, to tell a late message from a repeated one.
const SKIPPED_MAX: usize = 1 << 16;

impl ConnectionPool {
    /// Audits one message against the length that was sent and the order on its connection. Returns the head
    /// of a valid one; what is wrong is counted where `counts` says that it belongs to the measured part.
    pub(in crate::generator) fn check(
        &mut self,
        message: &Message,
        bytes: usize,
        counts: impl Fn(u64) -> bool,
    ) -> Option<Head> {
        let valid = self.check_alone(message, bytes);
        let sequence = message.head?.sequence;
        let expected = &mut self.connections[message.number].expected;
        // A spoiled message has come as well, if its number is the one that had to come: it isn't missing besides. Any other
        // number may be what was spoiled.
        if valid.is_none() && *expected != Some(sequence) {
            return None;
        }
        let expected = expected.get_or_insert(sequence);
        if let Some(ahead) = sequence.checked_sub(*expected) {
            if ahead > AHEAD_MAX {
                // The number itself was changed, in a payload too short for a checksum.
                self.audit.corrupt += 1;
                return None;
            }
            for missing in *expected..sequence {
                self.audit.gaps += u64::from(counts(missing));
                if self.skipped.len() < SKIPPED_MAX {
                    self.skipped.insert((message.number, missing));
                }
            }
            *expected = sequence + 1;
            return valid;
        }
        if self.skipped.remove(&(message.number, sequence)) {
            self.audit.gaps = self.audit.gaps.saturating_sub(u64::from(counts(sequence)));
            self.audit.reordered += 1;
            return valid;
        }
        self.audit.repeated += 1;
        None
    }

    /// Audits one message without regard to others.
    pub(in crate::generator) fn check_alone(&mut self, message: &Message, bytes: usize) -> Option<Head> {
        let Some(head) = message.head else {
            self.audit.corrupt += 1;
            return None;
        };
        if message.payload_bytes != bytes as u64 {
            self.audit.wrong_length += 1;
            return None;
        }
        if !message.clean {
            self.audit.corrupt += 1;
            return None;
        }
        Some(head)
    }

    /// Counts a valid message of the measured part, and times it.
    pub(in crate::generator) fn deliver(&mut self, message: &Message, intended_ns: u64) {
        self.audit.delivered += 1;
        self.outcome.latency.record_ns(message.at_ns.saturating_sub(intended_ns));
    }

    /// Says that the next message of every connection has the number 0.
    pub(in crate::generator) fn expect_from_zero(&mut self) {
        for connection in &mut self.connections {
            connection.expected = Some(0);
        }
    }
}
