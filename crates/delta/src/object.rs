//! Matches the members of objects by name. A member whose name alone changed is moved.

use super::tape::{NodeId, Parsed};
use super::text;
use super::walk::Walk;
use super::write::{Token, TooLong};
use std::cmp::Ordering;

/// The members of two objects, by name.
pub(crate) struct Members {
    pub(crate) both: Vec<(NodeId, NodeId)>,
    pub(crate) removed: Vec<NodeId>,
    pub(crate) added: Vec<NodeId>,
}

fn by_name(parsed: &Parsed<'_>, members: &mut [NodeId]) {
    members.sort_by(|&a, &b| text::compare(parsed.name(a), parsed.name(b)));
}

impl Walk<'_> {
    /// Matches members by name. They usually come in the same order; the others are sorted.
    pub(crate) fn members(&mut self, old: NodeId, new: NodeId) -> Members {
        let (mut olds, mut news) = (self.old.children(old), self.new.children(new));
        let mut members = Members { both: Vec::new(), removed: Vec::new(), added: Vec::new() };
        loop {
            let (rest_of_old, rest_of_new) = (olds.clone(), news.clone());
            self.work.charge(1);
            match (olds.next(), news.next()) {
                (Some(a), Some(b)) if text::equal(self.old.name(a), self.new.name(b)) => {
                    members.both.push((a, b));
                }
                (None, None) => return members,
                _ => {
                    self.rest_of_members(rest_of_old.collect(), rest_of_new.collect(), &mut members);
                    return members;
                }
            }
        }
    }

    fn rest_of_members(&mut self, mut olds: Vec<NodeId>, mut news: Vec<NodeId>, members: &mut Members) {
        let count = olds.len() + news.len();
        self.work.charge(count * (count.ilog2() as usize + 1));
        by_name(self.old, &mut olds);
        by_name(self.new, &mut news);
        let (mut a, mut b) = (olds.into_iter().peekable(), news.into_iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(&a), Some(&b)) => text::compare(self.old.name(a), self.new.name(b)),
            };
            match order {
                Ordering::Less => members.removed.extend(a.next()),
                Ordering::Greater => members.added.extend(b.next()),
                Ordering::Equal => members.both.extend(a.next().zip(b.next())),
            }
        }
        // Patches follow the order of the documents.
        members.removed.sort_unstable();
        members.added.sort_unstable();
        members.both.sort_unstable_by_key(|&(_, new)| new);
    }

    pub(crate) fn object(&mut self, old: NodeId, new: NodeId, limit: usize) -> Result<(), TooLong> {
        let mut members = self.members(old, new);
        for (from, to) in self.renamed(&mut members) {
            let (from, to) = (self.old.name(from), self.new.name(to));
            self.may_name(from)?;
            self.may_name(to)?;
            self.writer.shift(Token::Name(from), Token::Name(to), limit)?;
        }
        for &member in &members.removed {
            let name = self.old.name(member);
            self.may_name(name)?;
            self.writer.remove(Token::Name(name), limit)?;
        }
        for &(old, new) in &members.both {
            if !self.same(old, new) {
                let name = self.new.name(new);
                self.may_name(name)?;
                let mark = self.writer.push(Token::Name(name));
                let written = self.value(old, new, limit);
                self.writer.pop(mark);
                written?;
            }
        }
        for &member in &members.added {
            let name = self.new.name(member);
            self.may_name(name)?;
            self.writer.add(Token::Name(name), self.new.raw(member), limit)?;
        }
        Ok(())
    }

    /// Checks a member's name. A member that no path may name can only change together with its object.
    fn may_name(&self, name: &[u8]) -> Result<(), TooLong> {
        if self.writer.may_name(name) { Ok(()) } else { Err(TooLong) }
    }

    /// Takes the removed members whose value was added under another name: a `move` is shorter than a
    /// `remove` and an `add`, whatever the value.
    fn renamed(&mut self, members: &mut Members) -> Vec<(NodeId, NodeId)> {
        let (removed, added) = (&members.removed, &members.added);
        if removed.is_empty() || added.is_empty() {
            return Vec::new();
        }
        self.work.charge(removed.len() + added.len());
        let hashes_of_old = removed.iter().map(|&id| self.old.hash(id)).collect::<Vec<_>>();
        let hashes_of_new = added.iter().map(|&id| self.new.hash(id)).collect::<Vec<_>>();
        let alike = super::matching::alike(&hashes_of_old, &hashes_of_new);
        let mut pairs: Vec<_> =
            alike.iter().map(|&(i, j)| (removed[i as usize], added[j as usize])).collect();
        pairs.retain(|&(from, to)| self.same(from, to));
        pairs.sort_unstable_by_key(|&(_, to)| to);
        let (mut froms, mut tos) = (Vec::new(), Vec::new());
        pairs.iter().for_each(|&(from, to)| {
            froms.push(from);
            tos.push(to);
        });
        froms.sort_unstable();
        members.removed.retain(|id| froms.binary_search(id).is_err());
        members.added.retain(|id| tos.binary_search(id).is_err());
        pairs
    }
}
