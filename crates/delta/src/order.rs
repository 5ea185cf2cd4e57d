//! Writes the operations that carry out a plan for an array.
//!
//! First, elements are removed from the back to the front. Then the new array is built from the front: kept
//! elements are skipped, new ones are added after their predecessor, and moved ones are moved there.
//! Meanwhile the array consists of *placed* elements (in their final relative order) and *waiting* ones,
//! which will move and are still at their old positions. A waiting element stands after all elements that
//! were inserted between it and the kept element before it. Every position follows from that by counting.

use super::array::Plan;
use super::tape::NodeId;
use super::walk::Walk;
use super::write::{Token, TooLong};

/// Counts the waiting elements before a position of the old array: a Fenwick tree.
#[derive(Default)]
struct Waiting(Vec<u32>);

impl Waiting {
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
            count += self.0.get(at).map_or(0, |&count| count as usize);
            at &= at - 1;
        }
        count
    }
}

impl Walk<'_> {
    /// Writes the operations. `olds` and `news` begin at position `from` of both arrays.
    pub(crate) fn carry_out(
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
        let mut row = Row::default();
        if plan.kept.contains(&false) {
            self.work.charge(olds.len() + plan.pairs.len() * 16);
            row = Row::new(plan, olds.len());
        }
        let mut pairs = plan.pairs.iter().zip(&plan.kept).peekable();
        for (j, &new) in news.iter().enumerate() {
            match pairs.next_if(|((_, place), _)| *place as usize == j) {
                Some((&(i, _), true)) => row.pass(i),
                Some((&(i, _), false)) => {
                    let source = row.take(i, j);
                    let target = j + row.waiting_before_next();
                    if source != target {
                        let (source, target) = (Token::Index(from + source), Token::Index(from + target));
                        self.writer.shift(source, target, limit)?;
                    }
                }
                None => {
                    let at = Token::Index(from + j + row.waiting_before_next());
                    self.writer.add(at, self.new.raw(new), limit)?;
                }
            }
        }
        for &(i, j) in &plan.pairs {
            let at = Token::Index(from + j as usize);
            self.below(at, olds[i as usize], news[j as usize], limit)?;
        }
        Ok(())
    }
}

/// The array during its construction, as far as positions must be counted. Empty if no element moves: then no
/// element waits, and the finished part is at the front.
#[derive(Default)]
struct Row {
    waiting: Waiting,
    /// For each old position: the number of kept elements before it, and the new position of the first kept
    /// element after it.
    kept: Vec<(usize, usize)>,
    /// The old position of the last kept element that was skipped.
    last_passed: u32,
    /// Number of kept elements that were skipped.
    passed: usize,
}

impl Row {
    fn new(plan: &Plan, olds: usize) -> Self {
        let mut waiting = Waiting(vec![0; olds + 1]);
        let mut kept_at = vec![None; olds];
        for (&(i, j), &kept) in plan.pairs.iter().zip(&plan.kept) {
            if kept {
                kept_at[i as usize] = Some(j as usize);
            } else {
                waiting.change(i, 1);
            }
        }
        let mut before = 0;
        let count = |place: &Option<usize>| {
            let here = before;
            before += usize::from(place.is_some());
            (here, usize::MAX)
        };
        let mut kept: Vec<_> = kept_at.iter().map(count).collect();
        let mut behind = usize::MAX;
        for ((_, first_behind), place) in kept.iter_mut().zip(&kept_at).rev() {
            *first_behind = behind;
            behind = place.unwrap_or(behind);
        }
        Self { waiting, kept, last_passed: 0, passed: 0 }
    }

    fn pass(&mut self, place: u32) {
        self.last_passed = place;
        self.passed += 1;
    }

    /// Returns the number of waiting elements before the next placed one: those before the last kept element
    /// that was skipped.
    fn waiting_before_next(&self) -> usize {
        self.waiting.before(self.last_passed)
    }

    /// Removes a waiting element when `placed` elements are placed. Returns its position.
    fn take(&mut self, place: u32, placed: usize) -> usize {
        let (kept_before, first_behind) = self.kept[place as usize];
        // Number of elements in front of this one. If the first kept element after this one was skipped,
        // these are the placed elements before that kept element. Otherwise, they are all placed elements,
        // and the kept elements before this one that weren't skipped yet.
        let in_front = if first_behind < placed { first_behind } else { placed + kept_before - self.passed };
        let place_now = in_front + self.waiting.before(place);
        self.waiting.change(place, -1);
        place_now
    }
}
