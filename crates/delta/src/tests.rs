//! Tests that need internals: correctness doesn't depend on different values having different hashes.

use super::hash::Keys;
use super::walk::STEPS_FREE;
use super::*;

#[path = "../tests/delta/generate.rs"]
pub(crate) mod generate;

/// With hashes of only a few bits, patches are still correct.
#[test]
fn equal_hashes_of_different_values_do_no_harm() {
    for mask in [0, 1, 7] {
        let differ = Differ { options: Options::default(), keys: Keys::weakened(Seed([1, 2]), mask) };
        for seed in 0..400 {
            let (old, new) = generate::pair(seed);
            let parse = |text| differ.parse(text).unwrap();
            let (before, after) = (parse(old.as_bytes()), parse(new.as_bytes()));
            let honest = Differ::new(Options::default(), Seed([1, 2]));
            let equal = |a: &[u8], b: &[u8]| {
                let (a, b) = (honest.parse(a).unwrap(), honest.parse(b).unwrap());
                honest.diff(&a, &b).delta == Delta::Unchanged
            };
            match differ.diff(&before, &after).delta {
                Delta::Unchanged => {
                    assert!(equal(old.as_bytes(), new.as_bytes()), "seed {seed}: {old} {new}")
                }
                Delta::Patch(patch) => {
                    let made = apply(old.as_bytes(), &patch, ApplyLimits::default()).unwrap();
                    assert!(equal(&made, new.as_bytes()), "seed {seed}: {old} {new}");
                }
                Delta::Snapshot => {}
            }
        }
    }
}

#[test]
fn equal_hashes_cost_no_more_than_is_allowed() {
    let differ = Differ { options: Options::default(), keys: Keys::weakened(Seed([1, 2]), 0) };
    let list = |from: usize| {
        format!("[{}0]", (from..from + 50_000).map(|i| format!("{{\"id\":{i}}},")).collect::<String>())
    };
    let (old, new) = (list(0), list(7));
    let diff = differ.diff(&differ.parse(old.as_bytes()).unwrap(), &differ.parse(new.as_bytes()).unwrap());
    let bytes = (old.len() + new.len()) as u64;
    assert!(diff.steps < STEPS_FREE + 20 * bytes, "{} steps for {bytes} bytes", diff.steps);
}
