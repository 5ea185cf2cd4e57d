//! Writes the operations that carry out a plan for an array.
//!
//! First what goes is removed, from behind. Then the new array is built from its front: what keeps its place is
//! passed, what is new is added behind the element before it, what moves is moved there. In between, the array
//! is made of elements that are *settled* (where they belong, relative to each other) and of *waiting* ones,
//! which will move and stand where they stood. A waiting element stands after everything that was put between
//! it and the kept element before it. From that, every place follows by counting.

use super::array::Plan;
use super::tape::NodeId;
use super::walk::Walk;
use super::write::{Token, TooLong};

/// Counts the waiting elements before a place of the old array: a Fenwick tree.
struct Waiting(Vec<u32>);

impl Waiting {
    fn new(places: usize) -> Self {
        Self(vec![0; places + 1])
    }

    fn change(&mut self, place: u32, by: i32) {
        let mut at = place as usize + 1;
        while let Some(count) = self.0.get_mut(at) {
            *count = count.wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    }

    fn before(&self, place: u32) -> usize {
        let (mut at, mut count) = (place as usize, 0);
        while at > 0 {
            count += self.0[at] as usize;
            at &= at - 1;
        }
        count
    }
}

impl Walk<'_> {
    /// `olds` and `news` begin at place `from` of both arrays.
    pub(super) fn carry_out(
        &mut self,
        plan: &Plan,
        olds: &[NodeId],
        news: &[NodeId],
        from: usize,
        limit: usize,
    ) -> Result<(), TooLong> {
        self.work.charge(olds.len() + news.len());
        let mut stays = vec![false; olds.len()];
        plan.pairs.iter().for_each(|&(i, _)| stays[i as usize] = true);
        for (i, _) in stays.iter().enumerate().rev().filter(|(_, stays)| !**stays) {
            self.writer.remove(Token::Index(from + i), limit)?;
        }
        self.place(plan, olds, news, from, limit)?;
        for &(i, j) in &plan.pairs {
            let at = Token::Index(from + j as usize);
            self.below(at, olds[i as usize], news[j as usize], limit)?;
        }
        Ok(())
    }

    /// Adds and moves.
    fn place(
        &mut self,
        plan: &Plan,
        olds: &[NodeId],
        news: &[NodeId],
        from: usize,
        limit: usize,
    ) -> Result<(), TooLong> {
        const NONE: u32 = u32::MAX;
        // For each old place, the new place of the first kept element behind it.
        let mut kept_behind = vec![NONE; olds.len()];
        let mut waiting = Waiting::new(olds.len());
        let moves = plan.kept.iter().any(|kept| !kept);
        if moves {
            self.work.charge(olds.len() + plan.pairs.len() * 16);
            for (&(i, j), &kept) in plan.pairs.iter().zip(&plan.kept) {
                if kept {
                    kept_behind[i as usize] = j;
                } else {
                    waiting.change(i, 1);
                }
            }
            let mut behind = NONE;
            for place in kept_behind.iter_mut().rev() {
                behind = std::mem::replace(place, behind).min(behind);
            }
        }
        // Waiting elements before the last kept element that was passed.
        let mut passed = 0;
        let mut pairs = plan.pairs.iter().zip(&plan.kept).peekable();
        for (j, &new) in news.iter().enumerate() {
            let old = pairs.next_if(|((_, place), _)| *place as usize == j);
            let before = |waiting: &Waiting| if moves { waiting.before(passed) } else { 0 };
            match old {
                Some((&(i, _), true)) => passed = i,
                Some((&(i, _), false)) => {
                    let behind = kept_behind[i as usize];
                    let settled = if (behind as usize) < j { behind as usize } else { j };
                    let source = settled + waiting.before(i);
                    waiting.change(i, -1);
                    let target = j + before(&waiting);
                    if source != target {
                        let (source, target) = (Token::Index(from + source), Token::Index(from + target));
                        self.writer.shift(source, target, limit)?;
                    }
                }
                None => {
                    let at = Token::Index(from + j + before(&waiting));
                    self.writer.add(at, self.new.raw(new), limit)?;
                }
            }
        }
        Ok(())
    }
}
