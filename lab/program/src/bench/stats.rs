//! Medians, ratios of pairs and their intervals, and the rule for a difference.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

/// A ratio with its interval. With an A/A test, this is the 99 % interval of `resolution`. Otherwise, it is the range
/// of the ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    #[serde(deserialize_with = "number")]
    pub median: f64,
    #[serde(deserialize_with = "number")]
    pub low: f64,
    #[serde(deserialize_with = "number")]
    pub high: f64,
}

/// Reads a number, or NaN from `null`: JSON has no number for a division by zero.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Interval {
    /// The same median with an interval of this resolution on both sides.
    pub(super) fn widened(self, resolution: f64) -> Self {
        Self { median: self.median, low: self.median / resolution, high: self.median * resolution }
    }
}

/// The rule for evaluating a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Once, after all runs.
    Fixed,
    /// After each round from the third on, until the result suffices (`suffices`). Repeated evaluation needs more certainty each
    /// time.
    Sequential,
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The median of these ratios, and their range. `None` if there are none.
pub(super) fn range(ratios: &[f64]) -> Option<Interval> {
    let median = median(ratios)?;
    let [low, high] = [f64::min, f64::max].map(|end| ratios.iter().copied().fold(median, end));
    Some(Interval { median, low, high })
}

/// `ours / theirs` for each pair. Pairs with a missing value, or with 0 in `theirs`, are left out.
pub(super) fn ratios(ours: &[Option<f64>], theirs: &[Option<f64>]) -> Vec<f64> {
    let whole = |(ours, theirs): (&Option<f64>, &Option<f64>)| Some(((*ours)?, (*theirs)?));
    let pairs = ours.iter().zip(theirs).filter_map(whole);
    pairs.filter(|(_, theirs)| *theirs > 0.0).map(|(ours, theirs)| ours / theirs).collect()
}

/// Smallest ratio above 1 that can be distinguished from noise. Its inverse is the limit below 1. `None` with fewer
/// than two pairs of either kind.
///
/// A difference has to exceed drift and disturbed runs in all but one of a hundred comparisons. A bootstrap interval of the median
/// fails this for few pairs: without any difference, it excluded 1, and by more than the A/A test, in 5 of 100 simulated comparisons
/// of six pairs, in 15 of three pairs, and in 30 of two. So the scatter is estimated from two sources: the ratios of A to B around
/// their median, and the A/A ratios around 1 (`of_itself`), where the truth is known. The ratio has to be [`multiple`] standard
/// errors away from 1.
///
/// With five pairs or more, deviations above three times the usual one are limited to that (winsorising), so that one disturbed run
/// doesn't hide a difference that all others show. With fewer pairs it isn't known which one was disturbed.
pub(super) fn resolution(ratios: &[f64], of_itself: &[f64], rule: Rule) -> Option<f64> {
    let logs = |ratios: &[f64]| -> Vec<f64> {
        ratios.iter().filter(|ratio| **ratio > 0.0).map(|ratio| ratio.ln()).collect()
    };
    let (logs, of_itself) = (logs(ratios), logs(of_itself));
    let middle = median(&logs)?;
    let pairs = logs.len();
    if pairs < 2 || of_itself.len() < 2 {
        return None;
    }
    let about_middle = logs.iter().map(|log| (log - middle).abs());
    let mut deviations: Vec<f64> = about_middle.chain(of_itself.iter().map(|log| log.abs())).collect();
    // The median uses one degree of freedom.
    let freedom = (deviations.len() - 1) as f64;
    if pairs >= WINSORISED_FROM {
        deviations.sort_by(f64::total_cmp);
        let usual = deviations[(freedom * 0.6).round() as usize];
        for deviation in &mut deviations {
            *deviation = deviation.min(3.0 * usual);
        }
    }
    let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    Some((multiple(pairs, rule) * (squares / freedom / pairs as f64).sqrt()).exp())
}

/// The smallest ratio above 1 that this many pairs of runs can show if each run scatters by `noise`.
pub(crate) fn detectable(noise: f64, pairs: usize) -> f64 {
    // A ratio has the noise of two runs.
    let error = noise * 2f64.sqrt() / (pairs as f64).sqrt();
    (multiple(pairs, Rule::Fixed) * error).exp()
}

/// The same for unpaired runs: the resolution of the ratio of the median of `new` to that of `old`. The scatter is that
/// of each sample about its own median. `None` with fewer than two values in either.
pub(crate) fn unpaired_resolution(old: &[f64], new: &[f64]) -> Option<f64> {
    let mut deviations = Vec::new();
    for values in [old, new] {
        let middle = median(values).filter(|middle| *middle > 0.0 && values.len() >= 2)?;
        deviations
            .extend(values.iter().filter(|value| **value > 0.0).map(|value| (value / middle).ln().abs()));
    }
    let fewer = old.len().min(new.len());
    let freedom = (old.len() + new.len() - 2) as f64;
    let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
    let error = (squares / freedom * (1.0 / old.len() as f64 + 1.0 / new.len() as f64)).sqrt();
    Some((multiple(fewer, Rule::Fixed) * UNPAIRED * error).exp())
}

/// The scatter is about two medians instead of one, so it is known less well.
const UNPAIRED: f64 = 1.25;

/// Returns `true` if `ratio` is farther from 1 than `resolution`.
pub(crate) fn is_beyond(ratio: f64, resolution: f64) -> bool {
    ratio.ln().abs() > resolution.ln()
}

/// Returns `true` if the median of `ratios` differs from noise: it is beyond the resolution and, if `beyond_noise`,
/// beyond the A/A ratio.
pub(super) fn is_difference(ratios: &[f64], of_itself: &[f64], beyond_noise: bool, rule: Rule) -> bool {
    let (Some(ratio), Some(noise)) = (median(ratios), median(of_itself)) else { return false };
    resolution(ratios, of_itself, rule).is_some_and(|resolution| is_beyond(ratio, resolution))
        && (!beyond_noise || ratio.ln().abs() > noise.ln().abs())
}

/// Number of pairs from which single disturbed runs can be recognized.
const WINSORISED_FROM: usize = 5;

/// Number of standard errors of a mean that the median of this many pairs must be away from 1, so that 99 of 100 sets
/// without a difference are closer. These are the 99th percentiles of simulated sets (log-normal of 1 to 8 %, up to 15
/// % outliers of 1.2 to 3 times as much, drift of up to 20 %, three to five servers in alternating order), rounded up.
/// For normal noise alone, Student's t times the 1.25 of a median would be enough: 7.3, 5.1, 4.4, 4.1 and 4.0.
fn multiple(pairs: usize, rule: Rule) -> f64 {
    const OF_PAIRS: [f64; 12] =
        [f64::INFINITY, f64::INFINITY, 10.0, 5.1, 4.4, 4.3, 4.1, 3.9, 3.8, 3.7, 3.6, 3.5];
    let multiple = OF_PAIRS[pairs.min(OF_PAIRS.len() - 1)];
    if rule == Rule::Sequential { multiple * SEQUENTIAL } else { multiple }
}

/// Factor for each of several evaluations, so that all of them together err in 1 of 100 sets.
const SEQUENTIAL: f64 = 1.25;
/// An interval suffices if it shows a difference and is at most this wide, or if it excludes a difference larger than
/// `EQUAL`.
const NARROW: f64 = 1.25;
const EQUAL: f64 = 1.1;
/// Maximum time of a quick case for each server and for the A/A test: 2 minutes for two servers.
const PER_SERVER: Duration = Duration::from_secs(40);
/// Number of rounds before the first evaluation.
const LOOKS_FROM: usize = 3;

/// Returns `true` if no further round is needed: these ratios show a difference and its size, or exclude a notable one.
pub(super) fn suffices(ratios: &[f64], of_itself: &[f64]) -> bool {
    if ratios.len() < LOOKS_FROM {
        return false;
    }
    let Some(resolution) = resolution(ratios, of_itself, Rule::Sequential) else { return false };
    let differs = is_difference(ratios, of_itself, true, Rule::Sequential);
    resolution <= if differs { NARROW } else { EQUAL }
}

/// Returns the maximum time of a quick case with this many servers, of which one may be the A/A test.
pub(super) fn quick_time(servers: usize) -> Duration {
    PER_SERVER.saturating_mul(servers as u32)
}

/// Returns `true` if a further round would exceed the time of a quick case, given the time that `made` rounds took.
pub(super) fn is_late(round: usize, spent: Duration, made: u32, servers: usize) -> bool {
    round >= LOOKS_FROM && spent + spent / made.max(1) > quick_time(servers)
}

#[cfg(test)]
mod tests;
