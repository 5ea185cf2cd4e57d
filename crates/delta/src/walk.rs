//! Goes down two documents at once and writes what differs.
//!
//! At each pair of values that differ there are two ways: go on below, or put the new value in the old one's
//! place. The walk tries the first, with the length of the second as its limit; where it reaches that, what was
//! written is taken back. So no part of a patch is longer than the value it makes, and what is written in vain
//! stays in proportion to what is written.

use super::number::Number;
use super::tape::{Kind, NodeId, Parsed};
use super::write::{REPLACE_BYTES, Token, TooLong, Writer};
use super::{Options, text};

/// Steps done, of steps allowed. A step is about what one comparison of hashes or names costs: a few
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) done: u64,
    pub(crate) max: u64,
}

/// Steps allowed on top, so that small documents aren't short of them.
pub(crate) const STEPS_FREE: u64 = 10_000;

impl Work {
    /// What both texts together are allowed.
    pub(crate) fn for_bytes(options: &Options, bytes: usize) -> Self {
        Self { done: 0, max: STEPS_FREE + bytes as u64 * u64::from(options.steps_per_byte) }
    }

    /// Notes steps that were done or are about to be.
    pub(crate) fn charge(&mut self, steps: usize) {
        self.done += steps as u64;
    }

    /// Whether this many more steps are allowed.
    pub(crate) fn allows(&self, steps: usize) -> bool {
        self.done + steps as u64 <= self.max
    }
}

/// Bytes that are compared in about the time of one step.
const BYTES_PER_STEP: usize = 16;

pub(crate) struct Walk<'a> {
    pub(crate) old: &'a Parsed<'a>,
    pub(crate) new: &'a Parsed<'a>,
    pub(crate) options: &'a Options,
    pub(crate) writer: Writer,
    pub(crate) work: Work,
}

impl Walk<'_> {
    /// Whether the values are equal, for certain: equal hashes are only a hint. Beyond the work allowed only
    /// equal spellings count, which makes a patch longer, never wrong.
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

    /// Writes what makes `new` of `old`; they differ, and the path is theirs.
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

    /// Writes below the path what makes `new` of `old`, unless they are the same.
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
