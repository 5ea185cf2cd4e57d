//! Finds ambiguous patterns: a pattern may match names that are meant for another pattern, because a claim's
//! value may contain the other pattern's text. With the `sub` `7-private`, `user-{sub}` matches
//! `user-7-private`, which `user-{sub}-private` matches for user 7.

use crate::pattern::{Pattern, Segment, split};
use crate::permissions::Rule;

/// Returns the pairs of ambiguous patterns as texts, each pair once.
pub fn ambiguous_patterns(rules: &[Rule]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut compare = |one: &Pattern, other: &Pattern| {
        let pair = (one.to_string(), other.to_string());
        let is_known = found.contains(&pair) || found.contains(&(pair.1.clone(), pair.0.clone()));
        if !is_known && are_ambiguous(&one.segments, &other.segments) {
            found.push(pair);
        }
    };
    for (n, rule) in rules.iter().enumerate() {
        for other in &rules[n..] {
            rule.feeds.iter().for_each(|one| other.feeds.iter().for_each(|other| compare(one, other)));
            if rule.namespace == other.namespace {
                rule.rooms.iter().for_each(|one| other.rooms.iter().for_each(|other| compare(one, other)));
            }
        }
    }
    found
}

/// Returns `true` if a name may match both patterns, and the texts around a claim differ in them.
fn are_ambiguous(one: &[Segment], other: &[Segment]) -> bool {
    let mut is_ambiguous = false;
    for (one, other) in one.iter().zip(other) {
        if matches!(one, Segment::Rest) || matches!(other, Segment::Rest) {
            return is_ambiguous;
        }
        if !may_meet(one, other) {
            return false;
        }
        is_ambiguous |= one != other
            && [one, other].iter().all(|segment| matches!(segment, Segment::Claim { .. }))
            && around(one) != around(other);
    }
    is_ambiguous && one.len() == other.len()
}

fn around(segment: &Segment) -> (&str, &str) {
    match segment {
        Segment::Claim { before, after, .. } => (before, after),
        Segment::Text(_) | Segment::Any(_) | Segment::Rest => ("", ""),
    }
}

/// Returns `true` if a part of a name may match both segments.
fn may_meet(one: &Segment, other: &Segment) -> bool {
    let end = |segment: &Segment| match segment {
        Segment::Text(text) => split(text).1,
        Segment::Any(end) | Segment::Claim { end, .. } => *end,
        Segment::Rest => None,
    };
    let ((before, after), (other_before, other_after)) = (around(one), around(other));
    let texts_meet = match (one, other) {
        (Segment::Text(text), Segment::Text(other)) => text == other,
        (Segment::Text(text), _) => {
            let text = split(text).0;
            text.starts_with(other_before) && text.ends_with(other_after)
        }
        (_, Segment::Text(_)) => return may_meet(other, one),
        _ => {
            (before.starts_with(other_before) || other_before.starts_with(before))
                && (after.ends_with(other_after) || other_after.ends_with(after))
        }
    };
    texts_meet && end(one) == end(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{Actions, Recipients};

    #[test]
    fn ambiguous_patterns_are_found() {
        fn check(rooms: &[&str], expect: bool) {
            let allow = Actions::parse(&["subscribe"]).unwrap();
            let rule = |room: &&str| Rule::new(&[], &[], &[*room], None, allow, Recipients::Users).unwrap();
            let rules: Vec<_> = rooms.iter().map(rule).collect();
            let found = ambiguous_patterns(&rules);
            let pair = (rooms[0].to_owned(), rooms[1].to_owned());
            assert_eq!(found, if expect { vec![pair] } else { Vec::new() }, "{rooms:?}");
        }
        check(&["user-{sub}", "user-{sub}-private"], true);
        check(&["user-{sub}-private", "user-{sub}"], true);
        check(&["{sub}", "{sub}-private"], true);
        check(&["user-{sub}", "user-vip-{sub}"], true);
        check(&["a:user-{sub}:x", "*:user-{sub}-b:x"], true);
        check(&["user-{sub}/**", "user-{sub}-private/a"], true);
        check(&["user-{sub}", "user-{sub}"], false);
        check(&["user-{sub}", "team-{sub}-private"], false);
        check(&["user-{sub}-public", "user-{sub}-private"], false);
        check(&["user:{sub}", "user:{sub}:private"], false);
        check(&["a:user-{sub}", "b:user-{sub}-private"], false);
        check(&["user-{sub}:a", "user-{sub}-private/a"], false);
        check(&["user-{sub}", "user-admin"], false);
    }
}
