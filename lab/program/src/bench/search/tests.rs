use super::*;

#[test]
fn the_search_finds_the_highest_level_that_holds() {
    let check = |holds: usize, most: usize, expect: (usize, usize)| {
        let mut search = Search { first: 100, most, within: 0.05, held: 0, failed: None };
        let mut levels = 0;
        while let Some(level) = search.next() {
            assert!(level <= most, "{level}");
            search.learn(level, level <= holds);
            levels += 1;
        }
        assert_eq!((search.held, levels), expect, "{search:?}");
    };
    check(10_000, 10_000, (10_000, 8));
    check(410, 10_000, (400, 9));
    check(100, 100, (100, 1));
    check(0, 10_000, (0, 7));
    check(3, 10_000, (3, 7));
}
