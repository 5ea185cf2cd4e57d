//! Medians, ratios of pairs, and their bootstrap interval.

use serde::Serialize;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 10_000;

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The median of the ratios.
    pub median: f64,
    /// The 2.5th percentile of the medians of resampled ratios.
    pub low: f64,
    /// The 97.5th.
    pub high: f64,
}

impl Interval {
    /// Whether 1 lies outside.
    pub fn excludes_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The median of `ours / theirs`, pair by pair, with the bootstrap interval that `seed` gives. Pairs where
/// either is missing or theirs is 0 don't count; `None` where none is left.
pub fn ratio_interval(ours: &[Option<f64>], theirs: &[Option<f64>], seed: u64) -> Option<Interval> {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter_map(|(ours, theirs)| Some(((*ours)?, (*theirs)?)))
        .filter(|(_, theirs)| *theirs > 0.0)
        .map(|(ours, theirs)| ours / theirs)
        .collect();
    let middle = median(&ratios)?;
    let mut random = Splitmix(seed);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut resample = ratios.clone();
    for _ in 0..RESAMPLES {
        for value in &mut resample {
            *value = ratios[random.below(ratios.len())];
        }
        medians.extend(median(&resample));
    }
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
    Some(Interval { median: middle, low: at(0.025), high: at(0.975) })
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for resampling.
struct Splitmix(u64);

impl Splitmix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let check = |values: &[f64], expect: Option<f64>| assert_eq!(median(values), expect);
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0, 2.0], Some(2.0));
        check(&[4.0, 1.0, 2.0, 9.0], Some(3.0));
    }

    #[test]
    fn an_interval_holds_the_ratio_and_is_the_same_for_a_seed() {
        let ours: Vec<_> = [1.1, 1.2, 1.0, 1.3, 1.15, 1.25].map(Some).to_vec();
        let theirs = vec![Some(1.0); 6];
        let interval = ratio_interval(&ours, &theirs, 7).unwrap();
        assert!((interval.median - 1.175).abs() < 1e-9, "{interval:?}");
        assert!(interval.low >= 1.0 && interval.low < interval.median, "{interval:?}");
        assert!(interval.high <= 1.3 && interval.high > interval.median, "{interval:?}");
        assert_eq!(ratio_interval(&ours, &theirs, 7), Some(interval));
        assert!(!interval.excludes_one() || interval.low > 1.0);
    }

    #[test]
    fn pairs_with_a_hole_do_not_count() {
        assert_eq!(ratio_interval(&[Some(1.0), None], &[None, Some(1.0)], 1), None);
        assert_eq!(ratio_interval(&[Some(1.0)], &[Some(0.0)], 1), None);
        let one = ratio_interval(&[Some(2.0), None, Some(9.0)], &[Some(1.0), Some(5.0), None], 1).unwrap();
        assert_eq!(one, Interval { median: 2.0, low: 2.0, high: 2.0 });
    }
}
