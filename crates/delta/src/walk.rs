//! Descends two documents in parallel and writes their differences.
//!
//! At each pair of different values there are two ways: descend further, or replace the old value with the
//! new one. The walk tries the first, with the size of the second as its limit; if it reaches the limit, its
//! output is discarded. So no part of a patch is longer than the value that it produces, and discarded output
//! stays in proportion to the kept output.

use super::number::Number;
use super::tape::{Kind, NodeId, Parsed};
use super::write::{REPLACE_BYTES, Token, TooLong, Writer};
use super::{Options, text};

/// Steps taken, and steps allowed. A step is about the cost of one comparison of hashes or names: a few
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) done: u64,
    pub(crate) max: u64,
}

/// Additional steps, so that small documents have enough of them.
pub(crate) const STEPS_FREE: u64 = 10_000;

impl Work {
    /// Returns the steps allowed for both texts together.
    pub(crate) fn for_bytes(options: &Options, bytes: usize) -> Self {
        Self { done: 0, max: STEPS_FREE + bytes as u64 * u64::from(options.steps_per_byte) }
    }

    /// Counts steps that were taken or are about to be.
    pub(crate) fn charge(&mut self, steps: usize) {
        self.done += steps as u64;
    }

    /// Returns `true` if this many more steps are allowed.
    pub(crate) fn allows(&self, steps: usize) -> bool {
        self.done + steps as u64 <= self.max
    }
}

/// Number of bytes that are compared in about the time of one step.
const BYTES_PER_STEP: usize = 16;

pub(crate) struct Walk<'a> {
    pub(crate) old: &'a Parsed<'a>,
    pub(crate) new: &'a Parsed<'a>,
    pub(crate) options: &'a Options,
    pub(crate) writer: Writer,
    pub(crate) work: Work,
}

impl Walk<'_> {
    /// Returns `true` if the values are certainly equal; equal hashes are only a hint. Beyond the allowed
    /// work, only equal spellings count, which makes a patch longer but never wrong.
    pub(crate) fn same(&mut self, old: NodeId, new: NodeId) -> bool {
        self.work.charge(1);
        if self.old.hash(old) != self.new.hash(new) {
            return false;
        }
        let (a, b) = (self.old.raw(old), self.new.raw(new));
        if a.len() == b.len() {
            self.work.charge(a.len() / BYTES_PER_STEP);
            if a == b {
                return true;
            }
        }
        self.same_value(old, new)
    }

    fn same_value(&mut self, old: NodeId, new: NodeId) -> bool {
        if !self.work.allows(1) || self.old.hash(old) != self.new.hash(new) {
            return false;
        }
        let kind = self.old.kind(old);
        if kind != self.new.kind(new) {
            return false;
        }
        let (a, b) = (self.old.raw(old), self.new.raw(new));
        match kind {
            Kind::Literal => a == b,
            Kind::Number => {
                self.work.charge(1 + (a.len() + b.len()) / BYTES_PER_STEP);
                Number::of(a) == Number::of(b)
            }
            Kind::String => {
                self.work.charge(1 + (a.len() + b.len()) / BYTES_PER_STEP);
                text::equal(&a[1..a.len() - 1], &b[1..b.len() - 1])
            }
            Kind::Array => {
                let (mut olds, mut news) = (self.old.children(old), self.new.children(new));
                loop {
                    self.work.charge(1);
                    match (olds.next(), news.next()) {
                        (None, None) => return true,
                        (Some(a), Some(b)) if self.same_value(a, b) => {}
                        _ => return false,
                    }
                }
            }
            Kind::Object => self.same_members(old, new),
        }
    }

    fn same_members(&mut self, old: NodeId, new: NodeId) -> bool {
        let members = self.members(old, new);
        members.removed.is_empty()
            && members.added.is_empty()
            && members.both.iter().all(|&(a, b)| self.same_value(a, b))
    }

    /// Writes the operations that turn `old` into `new`, which differ and are at the current path.
    pub(crate) fn value(&mut self, old: NodeId, new: NodeId, limit: usize) -> Result<(), TooLong> {
        let from = self.writer.len();
        let own = limit.min(from + REPLACE_BYTES + self.writer.path_len() + self.new.len(new));
        let kind = self.new.kind(new);
        if kind == self.old.kind(old) && self.work.allows(1) {
            let below = match kind {
                Kind::Object => self.object(old, new, own),
                Kind::Array => self.array(old, new, own),
                _ => Err(TooLong),
            };
            if below.is_ok() {
                return Ok(());
            }
            self.writer.truncate(from);
        }
        self.work.charge(1 + self.new.len(new) / BYTES_PER_STEP);
        self.writer.replace(self.new.raw(new), limit)
    }

    /// Writes the operations, below the current path, that turn `old` into `new`, unless they are equal.
    pub(crate) fn below(
        &mut self,
        at: Token<'_>,
        old: NodeId,
        new: NodeId,
        limit: usize,
    ) -> Result<(), TooLong> {
        if self.same(old, new) {
            return Ok(());
        }
        let mark = self.writer.push(at);
        let written = self.value(old, new, limit);
        self.writer.pop(mark);
        written
    }
}
