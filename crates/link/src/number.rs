//! Numbers of frames. Both sides count frames from 1 in 64 bits. A header has 32 bits: 1 follows 4,294,967,295, and 0 means that
//! a frame isn't numbered, or that none has been handled.

const PERIOD: u64 = u32::MAX as u64;

/// The number in a header.
pub(crate) fn in_header(count: u64) -> u32 {
    match count {
        0 => 0,
        count => ((count - 1) % PERIOD) as u32 + 1,
    }
}

/// The count with this number in a header that is nearest to `near`.
pub(crate) fn nearest(number: u32, near: u64) -> u64 {
    if number == 0 {
        return 0;
    }
    let base = near.max(1);
    // How far the number is ahead of `base`: less than a period.
    let ahead = (u64::from(number) + PERIOD - u64::from(in_header(base))) % PERIOD;
    let behind = PERIOD - ahead;
    if ahead <= PERIOD / 2 || behind >= base { base + ahead } else { base - behind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_found_by_its_number() {
        let check = |count: u64, number: u32| {
            assert_eq!(in_header(count), number, "{count}");
            let nears =
                [count.saturating_sub(1_000_000), count.saturating_sub(1), count, count + 1, count + 9];
            for near in nears.into_iter().filter(|_| count > 0) {
                assert_eq!(nearest(number, near), count, "{number} near {near}");
            }
        };
        check(0, 0);
        check(1, 1);
        check(2, 2);
        check(4_294_967_295, u32::MAX);
        check(4_294_967_296, 1);
        check(4_294_967_297, 2);
        check(2 * 4_294_967_295 + 7, 7);
        // Numbers far ahead of a young count aren't negative counts.
        assert_eq!(nearest(u32::MAX, 1), 4_294_967_295);
        assert_eq!(nearest(0, 9), 0);
    }
}
