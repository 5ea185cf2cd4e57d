//! Matches the elements of two arrays by content.
//!
//! Equal elements at both ends stay. For the elements between them, several plans are made, and the plan with
//! the shortest estimated patch is used: elements matched by an identity (`identity`) or by equality
//! (`matching`), in order or with moves. Unmatched elements between two kept ones are matched with each other
//! by similarity. A plan is only a proposal: for every plan, `order` writes correct operations.

use super::matching::{self, Pair};
use super::tape::{Kind, NodeId};
use super::text;
use super::walk::Walk;
use super::write::{ADD_BYTES, MOVE_BYTES, REMOVE_BYTES, REPLACE_BYTES, TooLong};

/// Maximum number of pairs of unmatched elements that are compared for similarity. With more pairs, the
/// elements are matched in order.
const ALIGNMENT_CELLS_MAX: usize = 2500;

/// Estimated size in bytes of a change inside a value, without its path: an operation with a short value.
const CHANGE_BYTES: usize = REPLACE_BYTES + 16;

/// Number of members or elements above which similarity isn't estimated one by one.
const LIKENESS_MEMBERS_MAX: usize = 64;

/// A matching of the elements of two arrays.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The pairs, in ascending order of the new positions.
    pub(crate) pairs: Vec<Pair>,
    /// `true` for each pair that keeps its place. The old positions of these pairs ascend.
    pub(crate) kept: Vec<bool>,
    /// Estimated size of the resulting operations in bytes.
    pub(crate) bytes: usize,
}

impl Walk<'_> {
    pub(crate) fn array(&mut self, old: NodeId, new: NodeId, limit: usize) -> Result<(), TooLong> {
        let olds: Vec<NodeId> = self.old.children(old).collect();
        let news: Vec<NodeId> = self.new.children(new).collect();
        let mut prefix = 0;
        while let (Some(&a), Some(&b)) = (olds.get(prefix), news.get(prefix))
            && self.same(a, b)
        {
            prefix += 1;
        }
        let (mut olds, mut news) = (&olds[prefix..], &news[prefix..]);
        while let ([rest_of_old @ .., a], [rest_of_new @ .., b]) = (olds, news)
            && self.same(*a, *b)
        {
            (olds, news) = (rest_of_old, rest_of_new);
        }
        let plan = self.plan(olds, news);
        self.carry_out(&plan, olds, news, prefix, limit)
    }

    fn plan(&mut self, olds: &[NodeId], news: &[NodeId]) -> Plan {
        if olds.is_empty() || news.is_empty() {
            return Plan::default();
        }
        if olds.len() == 1 && news.len() == 1 {
            return Plan { pairs: vec![(0, 0)], kept: vec![true], bytes: 0 };
        }
        let (identified, certain) = self.by_identity(olds, news);
        if certain && let Some(plan) = identified {
            return plan;
        }
        let hashes =
            |of: &super::Parsed<'_>, ids: &[NodeId]| ids.iter().map(|&id| of.hash(id)).collect::<Vec<_>>();
        let (old_hashes, new_hashes) = (hashes(self.old, olds), hashes(self.new, news));
        let in_order = if olds.len() * news.len() <= ALIGNMENT_CELLS_MAX {
            // There are few enough elements to weigh them: their lengths decide which of two elements stays.
            let places = |ids: &[NodeId]| (0..ids.len() as u32).collect::<Vec<_>>();
            let mut pairs = self.align(&places(olds), &places(news), olds, news);
            pairs.retain(|&(i, j)| old_hashes[i as usize] == new_hashes[j as usize]);
            pairs
        } else {
            matching::common(&old_hashes, &new_hashes, &mut self.work)
        };
        let moved = self.moved(&in_order, &old_hashes, &new_hashes);
        let mut plans: Vec<Plan> = identified.into_iter().collect();
        if !moved.is_empty() {
            let mut pairs = [&in_order[..], &moved].concat();
            pairs.sort_unstable_by_key(|&(_, new)| new);
            plans.push(self.complete(pairs, olds, news));
        }
        plans.push(self.complete(in_order, olds, news));
        plans.into_iter().min_by_key(|plan| plan.bytes).unwrap_or_default()
    }

    /// Pairs equal elements outside the common subsequence: they were moved.
    fn moved(&mut self, in_order: &[Pair], old_hashes: &[u64], new_hashes: &[u64]) -> Vec<Pair> {
        self.work.charge(old_hashes.len() + new_hashes.len());
        let left_over = |hashes: &[u64], taken: Vec<u32>| -> (Vec<u32>, Vec<u64>) {
            let mut taken = taken.into_iter().peekable();
            (0..).zip(hashes).filter(|(place, _)| taken.next_if_eq(place).is_none()).unzip()
        };
        let (old_places, olds) = left_over(old_hashes, in_order.iter().map(|pair| pair.0).collect());
        let (new_places, news) = left_over(new_hashes, in_order.iter().map(|pair| pair.1).collect());
        let steps = (olds.len() + news.len()) * matching::SORT_STEPS;
        if !self.work.allows(steps) {
            return Vec::new();
        }
        self.work.charge(steps);
        let pairs = matching::alike(&olds, &news);
        pairs.into_iter().map(|(i, j)| (old_places[i as usize], new_places[j as usize])).collect()
    }

    /// Makes a plan from pairs whose new positions ascend: as many of them as possible keep their places, and
    /// the unmatched elements between those are matched.
    pub(crate) fn complete(&mut self, pairs: Vec<Pair>, olds: &[NodeId], news: &[NodeId]) -> Plan {
        self.work.charge(olds.len() + news.len() + pairs.len() * 4);
        let kept = matching::rising_places(&pairs);
        let (mut old_taken, mut new_taken) = (vec![false; olds.len()], vec![false; news.len()]);
        for &(i, j) in &pairs {
            (old_taken[i as usize], new_taken[j as usize]) = (true, true);
        }
        let stay = pairs.iter().zip(&kept).filter_map(|(&pair, &kept)| kept.then_some(pair));
        let stay: Vec<Pair> = stay.chain([(olds.len() as u32, news.len() as u32)]).collect();
        let mut all: Vec<(Pair, bool)> = pairs.into_iter().zip(kept).collect();
        let (mut i, mut j) = (0, 0);
        for (a, b) in stay {
            let left_over = |range: std::ops::Range<u32>, taken: &[bool]| -> Vec<u32> {
                range.filter(|&place| !taken[place as usize]).collect()
            };
            let (old_places, new_places) = (left_over(i..a, &old_taken), left_over(j..b, &new_taken));
            if !old_places.is_empty() && !new_places.is_empty() {
                let pairs = self.align(&old_places, &new_places, olds, news);
                all.extend(pairs.into_iter().map(|pair| (pair, true)));
            }
            (i, j) = (a + 1, b + 1);
        }
        all.sort_unstable_by_key(|&((_, new), _)| new);
        let (pairs, kept) = all.into_iter().unzip();
        let mut plan = Plan { pairs, kept, bytes: 0 };
        plan.bytes = self.estimate(&plan, olds, news);
        plan
    }

    /// Matches elements in order so that the total cost of the changes is minimal.
    fn align(
        &mut self,
        old_places: &[u32],
        new_places: &[u32],
        olds: &[NodeId],
        news: &[NodeId],
    ) -> Vec<Pair> {
        let (m, n) = (old_places.len(), new_places.len());
        let as_they_come = || old_places.iter().copied().zip(new_places.iter().copied()).collect();
        if m * n == 1 || m * n > ALIGNMENT_CELLS_MAX || !self.work.allows(m * n * 4) {
            return as_they_come();
        }
        // `cost[i][j]` is the minimum cost for the first `i` old and `j` new elements. Every unmatched
        // element costs an operation.
        let new = self.new;
        let removal = REMOVE_BYTES + self.writer.path_len();
        let insertion = ADD_BYTES + self.writer.path_len();
        let insert = |j: usize| insertion + new.len(news[new_places[j - 1] as usize]);
        let mut cost = vec![0; (m + 1) * (n + 1)];
        let at = |i: usize, j: usize| i * (n + 1) + j;
        for i in 1..=m {
            cost[at(i, 0)] = i * removal;
        }
        for j in 1..=n {
            cost[at(0, j)] = cost[at(0, j - 1)] + insert(j);
        }
        for i in 1..=m {
            for j in 1..=n {
                let (old, new) = (olds[old_places[i - 1] as usize], news[new_places[j - 1] as usize]);
                let pair = cost[at(i - 1, j - 1)] + self.difference(old, new);
                let single = (cost[at(i - 1, j)] + removal).min(cost[at(i, j - 1)] + insert(j));
                cost[at(i, j)] = pair.min(single);
            }
        }
        let (mut i, mut j, mut pairs) = (m, n, Vec::with_capacity(m.min(n)));
        while i > 0 && j > 0 {
            if cost[at(i, j)] == cost[at(i - 1, j)] + removal {
                i -= 1;
            } else if cost[at(i, j)] == cost[at(i, j - 1)] + insert(j) {
                j -= 1;
            } else {
                (i, j) = (i - 1, j - 1);
                pairs.push((old_places[i], new_places[j]));
            }
        }
        pairs.reverse();
        pairs
    }

    /// Estimates the size of a plan's operations in bytes.
    fn estimate(&mut self, plan: &Plan, olds: &[NodeId], news: &[NodeId]) -> usize {
        let path = self.writer.path_len() + 2;
        let removed = olds.len() - plan.pairs.len();
        let mut bytes = removed * (REMOVE_BYTES + path);
        let mut pairs = plan.pairs.iter().zip(&plan.kept).peekable();
        for (place, &new) in (0..).zip(news) {
            bytes += match pairs.next_if(|((_, j), _)| *j == place) {
                None => ADD_BYTES + path + self.new.len(new),
                Some((&(i, _), &kept)) => {
                    let shift = if kept { 0 } else { MOVE_BYTES + 2 * path };
                    shift + self.difference(olds[i as usize], new)
                }
            };
        }
        bytes
    }

    /// Estimates the size of the change from one value to the other in bytes. Looks one level down.
    fn difference(&mut self, old: NodeId, new: NodeId) -> usize {
        self.work.charge(1);
        if self.old.hash(old) == self.new.hash(new) {
            return 0;
        }
        let path = self.writer.path_len() + 2;
        let replace = REPLACE_BYTES + path + self.new.len(new);
        let kind = self.new.kind(new);
        if kind != self.old.kind(old) || !self.work.allows(LIKENESS_MEMBERS_MAX) {
            return replace;
        }
        match kind {
            Kind::Object => replace.min(self.difference_of_objects(old, new)),
            Kind::Array => replace.min(CHANGE_BYTES + path + self.new.len(new) / 4),
            _ => replace,
        }
    }

    fn difference_of_objects(&mut self, old: NodeId, new: NodeId) -> usize {
        let path = self.writer.path_len() + 2;
        let (mut bytes, mut common) = (0, 0);
        let mut olds = self.old.children(old);
        for (count, b) in self.new.children(new).enumerate() {
            if count == LIKENESS_MEMBERS_MAX {
                return usize::MAX;
            }
            self.work.charge(1);
            let name = self.new.name(b);
            let change = CHANGE_BYTES + path + name.len() + 1;
            // Members usually come in the same order.
            let beside = olds.next().filter(|&a| text::equal(self.old.name(a), name));
            let a = beside.or_else(|| {
                let mut members = self.old.children(old).take(LIKENESS_MEMBERS_MAX);
                members.find(|&a| {
                    self.work.charge(1);
                    text::equal(self.old.name(a), name)
                })
            });
            common += usize::from(a.is_some());
            bytes += match a {
                None => change + self.new.len(b),
                Some(a) if self.old.hash(a) == self.new.hash(b) => 0,
                Some(_) => change + self.new.len(b).min(CHANGE_BYTES),
            };
        }
        self.work.charge(1);
        let removed = self.old.children(old).take(LIKENESS_MEMBERS_MAX).count().saturating_sub(common);
        bytes + removed * (REMOVE_BYTES + path)
    }
}
