//! Selects the member that identifies the objects of an array.
//!
//! A member qualifies if every object of both arrays has it as a string or a number, and no two objects of
//! one array share its value. Names that the caller configured come first, then names that usually denote an
//! identity in APIs; both are trusted. Any other member is used only if matching by it gives the shortest
//! estimated patch.

use super::Options;
use super::array::Plan;
use super::matching::{self, Pair};
use super::tape::{Kind, NodeId, Parsed};
use super::text;
use super::walk::Walk;

/// Maximum number of members that are tried.
const CANDIDATES_MAX: usize = 8;

/// Names that denote an identity, in order of preference.
const KNOWN: [&str; 8] = ["id", "_id", "uuid", "guid", "uid", "key", "slug", "code"];

/// The reason for trusting a name, the most trusted first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    Given(usize),
    Known(usize),
    /// A name that ends like `matchId` or `match_id`.
    Ending,
    Found,
}

struct Candidate<'a> {
    name: &'a [u8],
    trust: Trust,
    /// The member's hashes in the old elements and in the new ones.
    hashes: [Vec<u64>; 2],
}

/// Returns `true` if a name denotes an identity.
pub(crate) fn is_trusted(options: &Options, raw: &[u8]) -> bool {
    trust(options, raw) < Trust::Found
}

fn trust(options: &Options, raw: &[u8]) -> Trust {
    let name = text::decoded(raw);
    if let Some(place) = options.identity.iter().position(|given| given.as_bytes() == &*name) {
        return Trust::Given(place);
    }
    if let Some(place) = KNOWN.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(&name)) {
        return Trust::Known(place);
    }
    let endings = [&b"Id"[..], b"ID", b"_id", b"-id"];
    if endings.iter().any(|ending| name.ends_with(ending)) { Trust::Ending } else { Trust::Found }
}

impl Walk<'_> {
    /// Returns `true` if both values are objects with the same value of a trusted member.
    pub(crate) fn is_identified(&mut self, old: NodeId, new: NodeId) -> bool {
        if self.old.kind(old) != Kind::Object || self.new.kind(new) != Kind::Object {
            return false;
        }
        let mut members = self.old.children(old).take(CANDIDATES_MAX);
        members.any(|member| {
            let name = self.old.name(member);
            is_trusted(self.options, name)
                && may_identify(self.old.kind(member))
                && self.new.member(new, name).is_some_and(|other| self.new.raw(other) == self.old.raw(member))
        })
    }

    /// Returns the best plan by identity, and `true` if the identity's name is trusted.
    pub(crate) fn by_identity(&mut self, olds: &[NodeId], news: &[NodeId]) -> (Option<Plan>, bool) {
        let mut best: Option<Plan> = None;
        let new = self.new;
        for candidate in self.candidates(olds, news, new) {
            let steps = (olds.len() + news.len()) * 2 * matching::SORT_STEPS;
            if !self.work.allows(steps) {
                break;
            }
            self.work.charge(steps);
            let [old_hashes, new_hashes] = &candidate.hashes;
            let Some(pairs) = unique_pairs(old_hashes, new_hashes) else { continue };
            if pairs.is_empty() {
                continue;
            }
            let plan = self.complete(pairs, olds, news);
            if candidate.trust < Trust::Found {
                return (Some(plan), true);
            }
            if best.as_ref().is_none_or(|best| plan.bytes < best.bytes) {
                best = Some(plan);
            }
        }
        (best, false)
    }

    /// Returns the members that every element has as a string or a number, the most trusted first.
    fn candidates<'n>(
        &mut self,
        olds: &[NodeId],
        news: &[NodeId],
        new: &'n Parsed<'_>,
    ) -> Vec<Candidate<'n>> {
        let Some(&first) = news.first() else { return Vec::new() };
        if new.kind(first) != Kind::Object {
            return Vec::new();
        }
        let named = new.children(first).filter(|&id| may_identify(new.kind(id)));
        let mut candidates: Vec<_> = named
            .map(|id| {
                self.work.charge(2);
                let name = new.name(id);
                Candidate { name, trust: trust(self.options, name), hashes: [Vec::new(), Vec::new()] }
            })
            .collect();
        candidates.sort_by_key(|candidate| candidate.trust);
        candidates.truncate(CANDIDATES_MAX);
        for (side, parsed, elements) in [(0, self.old, olds), (1, new, news)] {
            for (count, &element) in elements.iter().enumerate() {
                if candidates.is_empty() || !self.work.allows(1) || parsed.kind(element) != Kind::Object {
                    return Vec::new();
                }
                for id in parsed.children(element) {
                    self.work.charge(1);
                    let name = parsed.name(id);
                    // Candidates that follow have found their member already, or were dropped.
                    let same = |candidate: &&mut Candidate<'_>| text::equal(candidate.name, name);
                    if may_identify(parsed.kind(id))
                        && let Some(candidate) = candidates.iter_mut().find(same)
                    {
                        candidate.hashes[side].push(parsed.hash(id));
                    }
                }
                candidates.retain(|candidate| candidate.hashes[side].len() == count + 1);
            }
        }
        candidates
    }
}

fn may_identify(kind: Kind) -> bool {
    matches!(kind, Kind::String | Kind::Number)
}

/// Returns the pairs of equal values in ascending order of the new positions, unless a value occurs twice in
/// one array.
fn unique_pairs(old: &[u64], new: &[u64]) -> Option<Vec<Pair>> {
    let unique = |hashes: &[u64]| {
        let mut sorted = hashes.to_vec();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    (unique(old) && unique(new)).then(|| matching::alike(old, new))
}
