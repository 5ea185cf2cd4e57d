//! The audit of every message: its checksum, its length, and its number compared with the expected one on its connection.

use super::{ConnectionPool, Message};
use crate::payload::Head;

/// Maximum number of messages that a connection may skip at once. A higher number counts as corrupt.
const AHEAD_MAX: u64 = 1 << 20;
/// Maximum number of remembered gaps, which distinguish a late message from a repeated one.
const SKIPPED_MAX: usize = 1 << 16;

impl ConnectionPool {
    /// Audits one message by the sent length and the order on its connection. Returns the head of a valid message.
    /// Errors are counted only with `counts`: the message belongs to the measured part.
    pub(in crate::generator) fn check(
        &mut self,
        message: &Message,
        bytes: usize,
        counts: impl Fn(u64) -> bool,
    ) -> Option<Head> {
        let valid = self.check_alone(message, bytes);
        let sequence = message.head?.sequence;
        let expected = &mut self.connections[message.number].expected;
        // A corrupt message with the expected number has arrived, so it isn't missing as well. Any other number may
        // itself be the corrupt part.
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

    /// Audits one message independently of others.
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

    /// Counts and times a valid message of the measured part.
    pub(in crate::generator) fn deliver(&mut self, message: &Message, intended_ns: u64) {
        self.audit.delivered += 1;
        self.outcome.latency.record_ns(message.at_ns.saturating_sub(intended_ns));
    }

    /// Expects number 0 as the next number of every connection.
    pub(in crate::generator) fn expect_from_zero(&mut self) {
        for connection in &mut self.connections {
            connection.expected = Some(0);
        }
    }
}
