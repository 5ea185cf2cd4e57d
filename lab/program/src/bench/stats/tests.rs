use std::f64::consts::TAU;

use fastrand::Rng;

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
fn pairs_with_a_hole_do_not_count() {
    let check = |ours: &[Option<f64>], theirs: &[Option<f64>], expect: Option<[f64; 3]>| {
        let found = range(&ratios(ours, theirs));
        assert_eq!(found.map(|Interval { median, low, high }| [median, low, high]), expect);
    };
    check(&[Some(1.0), None], &[None, Some(1.0)], None);
    check(&[Some(1.0)], &[Some(0.0)], None);
    check(&[Some(2.0), None, Some(9.0)], &[Some(1.0), Some(5.0), None], Some([2.0; 3]));
    check(&[Some(4.0), Some(1.0), Some(3.0)], &[Some(2.0); 3], Some([1.5, 0.5, 2.0]));
}

/// Samples as on a shared machine: log-normal, one in twenty disturbed, with a drift over all runs.
struct Noise {
    random: Rng,
    scatter: f64,
    drift: f64,
}

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.random.f64()
    }

    /// A normally distributed number (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (angle * TAU).cos()
    }

    /// Runs of A, B and A again in alternating order. B costs `factor` times as much as A.
    fn runs(&mut self, pairs: usize, factor: f64) -> [Vec<Option<f64>>; 3] {
        let mut runs = [Vec::new(), Vec::new(), Vec::new()];
        let slope = self.normal() * self.drift;
        let (mut walk, total) = (0.0, (3 * pairs) as f64);
        for nth in 0..3 * pairs {
            let of = if nth / 3 % 2 == 0 { nth % 3 } else { 2 - nth % 3 };
            walk += self.normal() * self.drift / total.sqrt();
            let mut log = slope * nth as f64 / total + walk + self.normal() * self.scatter;
            if self.uniform() < 0.05 {
                log += (1.2 + 1.8 * self.uniform()).ln();
            }
            runs[of].push(Some(log.exp() * if of == 1 { factor } else { 1.0 }));
        }
        runs
    }
}

/// Number of a thousand comparisons that find a difference.
fn found(pairs: usize, scatter: f64, drift: f64, factor: f64) -> usize {
    let mut noise = Noise { random: Rng::with_seed(pairs as u64), scatter, drift };
    (0..1000)
        .filter(|_| {
            let [ours, theirs, again] = noise.runs(pairs, factor);
            let (others, of_itself) = (ratios(&ours, &theirs), ratios(&ours, &again));
            is_difference(&others, &of_itself, true, Rule::Fixed)
        })
        .count()
}

#[test]
fn equal_servers_hardly_ever_show_a_difference() {
    for pairs in [2, 3, 6, 12] {
        for (scatter, drift) in [(0.01, 0.0), (0.03, 0.1), (0.08, 0.2)] {
            let found = found(pairs, scatter, drift, 1.0);
            assert!(found <= 10, "{found} of 1000 with {pairs} pairs, {scatter}, {drift}");
        }
    }
}

#[test]
fn a_difference_of_a_fifth_is_found_in_most_runs() {
    let check = |pairs, scatter, drift, least: usize| {
        let found = found(pairs, scatter, drift, 1.2);
        assert!(found >= least, "{found} of 1000 with {pairs} pairs, {scatter}, {drift}");
    };
    check(3, 0.02, 0.02, 500);
    check(6, 0.02, 0.02, 900);
    check(6, 0.03, 0.1, 700);
    check(12, 0.05, 0.1, 900);
}

#[test]
fn a_resolution_is_worth_what_the_scatter_is() {
    assert_eq!(resolution(&[2.0], &[1.0, 1.0], Rule::Fixed), None);
    assert_eq!(resolution(&[2.0, 2.0], &[1.0], Rule::Fixed), None);
    assert_eq!(resolution(&[], &[], Rule::Fixed), None);
    // Counts that repeat exactly: any difference is significant.
    assert_eq!(resolution(&[1.01, 1.01], &[1.0, 1.0], Rule::Fixed), Some(1.0));
    let quiet = resolution(&[1.2, 1.21, 1.19], &[1.0, 1.01, 0.99], Rule::Fixed).unwrap();
    let loud = resolution(&[1.2, 1.21, 1.19], &[1.0, 1.3, 0.8], Rule::Fixed).unwrap();
    assert!(quiet > 1.0 && quiet < 1.1 && loud > 1.5, "{quiet} {loud}");
    // One disturbed run of six hides less than one of four.
    let six = resolution(&[1.2, 1.21, 1.19, 1.2, 1.2, 2.4], &[1.0, 1.01, 0.99, 1.0, 1.0, 1.0], Rule::Fixed)
        .unwrap();
    let four = resolution(&[1.2, 1.21, 1.19, 2.4], &[1.0, 1.01, 0.99, 1.0], Rule::Fixed).unwrap();
    assert!(six < 1.1 && four > 1.5, "{six} {four}");
    assert!(is_beyond(1.2, 1.1) && is_beyond(0.8, 1.1) && !is_beyond(0.95, 1.1));
}

/// Number of a thousand sets that find a difference when each is examined after every round from the third to the last,
/// and the mean number of rounds that they take.
fn found_step_by_step(most: usize, scatter: f64, drift: f64, factor: f64) -> (usize, f64) {
    let mut noise = Noise { random: Rng::with_seed(17), scatter, drift };
    let (mut found, mut rounds) = (0, 0);
    for _ in 0..1000 {
        let [ours, theirs, again] = noise.runs(most, factor);
        let until = |round: usize| {
            (ratios(&ours[..round], &theirs[..round]), ratios(&ours[..round], &again[..round]))
        };
        let last = (3..most).find(|round| suffices(&until(*round).0, &until(*round).1)).unwrap_or(most);
        let (others, of_itself) = until(last);
        found += usize::from(is_difference(&others, &of_itself, true, Rule::Sequential));
        rounds += last;
    }
    (found, rounds as f64 / 1000.0)
}

#[test]
fn stopping_early_neither_invents_a_difference_nor_misses_a_large_one() {
    for (scatter, drift) in [(0.01, 0.0), (0.03, 0.1), (0.05, 0.1), (0.08, 0.2)] {
        for most in 3..=6 {
            let (found, _) = found_step_by_step(most, scatter, drift, 1.0);
            assert!(found <= 10, "{found} of 1000 without a difference, {most} rounds, {scatter}, {drift}");
        }
    }
    // Also the default noise, with the number of rounds that fit into the time of a quick case.
    for (most, scatter, drift, most_rounds) in [(6, 0.01, 0.0, 4.0), (6, 0.03, 0.1, 6.0), (5, 0.03, 0.1, 5.0)]
    {
        for factor in [1.5, 1.0 / 1.5] {
            let (found, rounds) = found_step_by_step(most, scatter, drift, factor);
            assert!(
                found >= 950 && rounds <= most_rounds,
                "{found} of 1000, {rounds} rounds, {scatter}, {drift}"
            );
        }
    }
}

#[test]
fn no_round_begins_that_would_take_longer_than_two_minutes_for_two_servers() {
    let check = |round, spent_s, made, servers, expect| {
        assert_eq!(is_late(round, Duration::from_secs(spent_s), made, servers), expect, "{round} {spent_s}");
    };
    check(4, 96, 4, 3, false);
    check(4, 97, 4, 3, true);
    check(4, 97, 4, 4, false);
    // Three rounds always run. Rounds before an interruption took no time in this run.
    check(2, 300, 2, 3, false);
    check(4, 30, 1, 3, false);
    check(4, 61, 1, 3, true);
}
