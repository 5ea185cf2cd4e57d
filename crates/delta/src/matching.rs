//! Matches the items of two sequences. Items are hashes; equal hashes are the same item here.
//!
//! All results are pairs of positions, in the old sequence and in the new one. The time isn't quadratic: the
//! exact search stops at [`EDITS_MAX`] edits or when the allowed work is used up; then only items that are
//! unique in both sequences are used as anchors.

use super::walk::Work;

/// A position in the old sequence and one in the new sequence.
pub(crate) type Pair = (u32, u32);

/// Maximum number of insertions and removals that the exact search follows. The search stores half the square
/// of this number of positions.
const EDITS_MAX: usize = 256;

/// Estimated cost of sorting an item in steps, for any number of items.
pub(crate) const SORT_STEPS: usize = 16;

/// Returns a longest common subsequence, or a good common one, in ascending order of both positions. Like
/// `diff`, it may split the sequences at items that are unique on both sides.
pub(crate) fn common(old: &[u64], new: &[u64], work: &mut Work) -> Vec<Pair> {
    if let Some(pairs) = shortest_edit(old, new, work) {
        return pairs;
    }
    let steps = (old.len() + new.len()) * SORT_STEPS;
    if !work.allows(steps) {
        return Vec::new();
    }
    work.charge(steps);
    let mut anchors = rising(&unique_in_both(old, new));
    anchors.push((old.len() as u32, new.len() as u32));
    let mut pairs = Vec::with_capacity(anchors.len());
    let (mut i, mut j) = (0, 0);
    for (a, b) in anchors {
        let (old, new) = (&old[i..a as usize], &new[j..b as usize]);
        if let Some(between) = shortest_edit(old, new, work) {
            pairs.extend(between.iter().map(|&(x, y)| (x + i as u32, y + j as u32)));
        }
        pairs.push((a, b));
        (i, j) = (a as usize + 1, b as usize + 1);
    }
    pairs.pop();
    pairs
}

/// Runs Myers' greedy algorithm (1986): for each number of edits, it computes the farthest position on each
/// diagonal. Returns `None` if it takes more than [`EDITS_MAX`] edits or more work than is left.
fn shortest_edit(old: &[u64], new: &[u64], work: &mut Work) -> Option<Vec<Pair>> {
    let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    work.charge(prefix + 1);
    let (rest_of_old, rest_of_new) = (&old[prefix..], &new[prefix..]);
    let (m, n) = (rest_of_old.len() as isize, rest_of_new.len() as isize);
    let mut pairs: Vec<Pair> = (0..prefix as u32).map(|i| (i, i)).collect();
    if m == 0 || n == 0 {
        return Some(pairs);
    }
    // `rounds[d][k]` is the position in the old sequence that `d` edits reach on the diagonal `2k - d`.
    let mut rounds: Vec<Vec<u32>> = Vec::new();
    for d in 0..=EDITS_MAX.min((m + n) as usize) {
        let mut reached: Vec<u32> = Vec::with_capacity(d + 1);
        let mut steps = d + 1;
        for k in 0..=d {
            let diagonal = 2 * k as isize - d as isize;
            let mut x = match rounds.last() {
                None => 0,
                Some(last) => step(last, k).0,
            };
            // A position past the edge isn't valid, but neighbors may continue from it.
            while x < m && x - diagonal < n && x >= diagonal {
                if rest_of_old[x as usize] != rest_of_new[(x - diagonal) as usize] {
                    break;
                }
                x += 1;
                steps += 1;
            }
            reached.push(x as u32);
            if !work.allows(steps) {
                work.charge(steps);
                return None;
            }
            if x >= m && x - diagonal >= n {
                rounds.push(reached);
                work.charge(steps);
                trace(&rounds, prefix as u32, m, n, &mut pairs);
                return Some(pairs);
            }
        }
        rounds.push(reached);
        work.charge(steps);
    }
    None
}

/// Returns the start of the diagonal with number `k` from the positions of the last round, and `true` for a
/// removal.
fn step(last: &[u32], k: usize) -> (isize, bool) {
    // A removal comes from the diagonal below, an insertion from the diagonal above.
    let removal = k.checked_sub(1).map(|below| last[below] as isize + 1);
    let insertion = last.get(k).map(|&x| x as isize);
    match (removal, insertion) {
        (Some(removal), Some(insertion)) if removal > insertion => (removal, true),
        (Some(removal), None) => (removal, true),
        (_, Some(insertion)) => (insertion, false),
        (None, None) => (0, false),
    }
}

/// Walks back through the rounds and appends the matched pairs.
fn trace(rounds: &[Vec<u32>], prefix: u32, m: isize, n: isize, pairs: &mut Vec<Pair>) {
    let from = pairs.len();
    let (mut x, mut y) = (m, n);
    for (d, _) in rounds.iter().enumerate().rev() {
        let k = ((x - y + d as isize) / 2) as usize;
        let (start, removal) = match d.checked_sub(1) {
            None => (0, false),
            Some(before) => step(&rounds[before], k),
        };
        while x > start {
            (x, y) = (x - 1, y - 1);
            pairs.push((prefix + x as u32, prefix + y as u32));
        }
        if d > 0 {
            if removal { x -= 1 } else { y -= 1 }
        }
    }
    pairs[from..].reverse();
}

/// Returns the positions sorted by hash.
fn sorted(hashes: &[u64]) -> Vec<(u64, u32)> {
    let mut places: Vec<_> = hashes.iter().zip(0..).map(|(&hash, place)| (hash, place)).collect();
    places.sort_unstable();
    places
}

/// Returns the items that occur once in each sequence, in ascending order of the new positions.
fn unique_in_both(old: &[u64], new: &[u64]) -> Vec<Pair> {
    let (old, new) = (sorted(old), sorted(new));
    let mut pairs = Vec::new();
    let (mut a, mut b) =
        (old.chunk_by(|x, y| x.0 == y.0).peekable(), new.chunk_by(|x, y| x.0 == y.0).peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        if x[0].0 < y[0].0 {
            a.next();
        } else if x[0].0 > y[0].0 {
            b.next();
        } else {
            if let (&[(_, i)], &[(_, j)]) = (*x, *y) {
                pairs.push((i, j));
            }
            a.next();
            b.next();
        }
    }
    pairs.sort_unstable_by_key(|&(_, j)| j);
    pairs
}

/// Pairs equal items regardless of their positions: the first with the first, the second with the second. The
/// new positions ascend.
pub(crate) fn alike(old: &[u64], new: &[u64]) -> Vec<Pair> {
    let (old, new) = (sorted(old), sorted(new));
    let mut pairs = Vec::new();
    let (mut a, mut b) = (old.iter().peekable(), new.iter().peekable());
    while let (Some(&&(x, i)), Some(&&(y, j))) = (a.peek(), b.peek()) {
        if x <= y {
            a.next();
        }
        if y <= x {
            b.next();
        }
        if x == y {
            pairs.push((i, j));
        }
    }
    pairs.sort_unstable_by_key(|&(_, j)| j);
    pairs
}

/// Returns the longest selection of pairs whose old positions ascend as well, from pairs whose new positions
/// ascend.
pub(crate) fn rising(pairs: &[Pair]) -> Vec<Pair> {
    let kept = rising_places(pairs);
    pairs.iter().zip(kept).filter_map(|(&pair, kept)| kept.then_some(pair)).collect()
}

/// Returns `true` for each pair that is in the selection of [`rising`]. Uses patience sorting.
pub(crate) fn rising_places(pairs: &[Pair]) -> Vec<bool> {
    const NONE: u32 = u32::MAX;
    // For each length of a selection, the pair with the lowest end.
    let mut ends: Vec<u32> = Vec::new();
    let mut before: Vec<u32> = Vec::with_capacity(pairs.len());
    for (&(old, _), place) in pairs.iter().zip(0..) {
        let rises = ends.last().is_none_or(|&end| pairs[end as usize].0 < old);
        let length =
            if rises { ends.len() } else { ends.partition_point(|&end| pairs[end as usize].0 < old) };
        before.push(length.checked_sub(1).map_or(NONE, |shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = place,
            None => ends.push(place),
        }
    }
    let mut kept = vec![false; pairs.len()];
    let mut at = ends.last().copied().unwrap_or(NONE);
    while at != NONE {
        kept[at as usize] = true;
        at = before[at as usize];
    }
    kept
}

#[cfg(test)]
mod tests;
