use super::*;

/// Returns the length of a longest common subsequence, by the textbook algorithm.
fn length(old: &[u64], new: &[u64]) -> usize {
    let mut row = vec![0; new.len() + 1];
    for a in old {
        let mut before = 0;
        for (j, b) in new.iter().enumerate() {
            let here = row[j + 1];
            row[j + 1] = if a == b { before + 1 } else { here.max(row[j]) };
            before = here;
        }
    }
    row[new.len()]
}

fn work(max: u64) -> Work {
    Work { done: 0, max }
}

fn assert_common(old: &[u64], new: &[u64], pairs: &[Pair]) {
    assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{pairs:?}");
    assert!(pairs.iter().all(|&(i, j)| old[i as usize] == new[j as usize]), "{old:?} {new:?} {pairs:?}");
}

#[test]
fn common_subsequences_are_longest() {
    let mut state = 1u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    for round in 0..2000 {
        let kinds = 1 + round % 7;
        let (m, n) = (below(20), below(20));
        let old: Vec<u64> = (0..m).map(|_| below(kinds)).collect();
        let new: Vec<u64> = (0..n).map(|_| below(kinds)).collect();
        let pairs = common(&old, &new, &mut work(u64::MAX));
        assert_common(&old, &new, &pairs);
        assert_eq!(pairs.len(), length(&old, &new), "{old:?} {new:?}");
    }
}

#[test]
fn long_sequences_are_anchored_at_unique_items() {
    // 900 edits per side. Each tenth item is unique and common to both sides.
    let side = |own: u64| (0..1000).map(|i| if i % 10 == 9 { i } else { own + i }).collect::<Vec<u64>>();
    let (old, new) = (side(10_000), side(20_000));
    let pairs = common(&old, &new, &mut work(u64::MAX));
    assert_common(&old, &new, &pairs);
    assert_eq!(pairs.len(), 100);
    // Without allowed work there is no result, and almost no work is done.
    let mut spent = work(0);
    assert_eq!(common(&old, &new, &mut spent), []);
    assert!(spent.done < 100, "{}", spent.done);
}

#[test]
fn rising_selections_are_longest() {
    let check = |old: &[u32], expect: &[u32]| {
        let pairs: Vec<Pair> = old.iter().copied().zip(0..).collect();
        assert_eq!(rising(&pairs).iter().map(|pair| pair.0).collect::<Vec<_>>(), expect);
    };
    check(&[], &[]);
    check(&[0, 1, 2], &[0, 1, 2]);
    check(&[2, 1, 0], &[0]);
    check(&[4, 0, 1, 2, 3], &[0, 1, 2, 3]);
    check(&[1, 2, 3, 4, 0], &[1, 2, 3, 4]);
    check(&[3, 4, 0, 5, 1, 2], &[0, 1, 2]);
}

#[test]
fn alike_items_are_paired_one_to_one() {
    assert_eq!(alike(&[7, 8, 7, 9], &[7, 7, 7, 8]), [(0, 0), (2, 1), (1, 3)]);
    assert_eq!(unique_in_both(&[7, 8, 7, 9], &[9, 7, 8, 5]), [(3, 0), (1, 2)]);
}
