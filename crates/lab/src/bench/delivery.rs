//! What a delivery costs a server that has heartbeats to send as well, of which nobody knows when they are due.
//!
//! The time from one publication to the next is cut into slices, and the server's clock is read at their ends ([`Outcome::slices`]).
//! The *busy window* of a publication are the first of them, until everybody has it and one more; the others, in as many
//! at a time, are the *idle windows*, right before the next publication and right after this one. What a delivery costs
//! is what busy windows take more than idle ones do on average. How far that may be wrong, the idle windows say: each busy
//! one may have had what the farthest of them had. A cost that isn't larger than twice that is none.

use std::time::Duration;

use crate::generator::{Outcome, Span};

/// From one publication to the next.
pub(super) const SLICES: u32 = 20;
/// Idle windows that tell how far they scatter.
const WINDOWS_MIN: usize = 3;
/// A cost is that many times what it may be wrong by.
const BEYOND: f64 = 2.0;
/// Of the time that a window should have, what one has at least that is looked at: one that was read late leaves the next one short.
const WHOLE: f64 = 0.5;

/// CPU, by `of`, per delivery; or why that can't be said.
pub(super) fn cost(outcome: &Outcome, of: fn(&Span) -> Duration) -> Result<Duration, String> {
    let publications = outcome.last_of_each_ns.len();
    let each = outcome.slices.len() / publications.max(1);
    let last = Duration::from_nanos(outcome.last_of_each_ns.iter().copied().max().unwrap_or(0));
    let wall = |window: &[Span]| window.iter().map(|span| span.wall).sum::<Duration>().as_secs_f64();
    let cpu = |window: &[Span]| window.iter().map(of).sum::<Duration>().as_secs_f64();
    let slice = wall(&outcome.slices) / outcome.slices.len().max(1) as f64;
    if each == 0 || slice <= 0.0 || outcome.messages == 0 {
        return Err("CPU per delivery wasn't measured: there were no deliveries, or nobody looked".into());
    }
    let busy = (last.as_secs_f64() / slice).ceil() as usize + 1;
    let (mut windows, mut idle) = (Vec::new(), Vec::new());
    for slices in outcome.slices.chunks_exact(each) {
        let (during, after) = slices.split_at(busy.min(each));
        windows.push((cpu(during), wall(during)));
        let whole = |window: &&[Span]| wall(window) >= slice * busy as f64 * WHOLE;
        idle.extend(after.chunks_exact(busy).filter(whole).map(|window| cpu(window) / wall(window)));
    }
    if idle.len() < WINDOWS_MIN {
        let period = Duration::from_secs_f64(slice * each as f64);
        return Err(format!(
            "CPU per delivery wasn't measured: a message took {last:.1?} of the {period:.1?} until the next, so heartbeats were \
             never seen alone"
        ));
    }
    let share = idle.iter().sum::<f64>() / idle.len() as f64;
    let scatter = idle.iter().map(|one| (one - share).abs()).fold(0.0, f64::max);
    let cost: f64 = windows.iter().map(|(cpu, wall)| cpu - share * wall).sum();
    let doubtful = windows.iter().map(|(_, wall)| scatter * wall).sum::<f64>();
    let micros_each = |seconds: f64| seconds * 1e6 / outcome.messages as f64;
    if cost <= BEYOND * doubtful {
        return Err(format!(
            "CPU per delivery wasn't measured: heartbeats scatter by {:.2} µs a delivery, which took {:.2} µs with them",
            micros_each(doubtful),
            micros_each(windows.iter().map(|(cpu, _)| cpu).sum())
        ));
    }
    Ok(Duration::from_secs_f64(cost / outcome.messages as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Publications of 10 slices of 100 ms, which used so many milliseconds, and the last receiver of each.
    fn outcome(used_ms: &[[u32; 10]], last_ms: u64) -> Outcome {
        let span = |used: &u32| Span { wall: 100 * MS, server_cpu: *used * MS, ..Span::default() };
        Outcome {
            messages: 1000 * used_ms.len() as u64,
            slices: used_ms.iter().flatten().map(span).collect(),
            last_of_each_ns: vec![last_ms * 1_000_000; used_ms.len()],
            ..Outcome::default()
        }
    }

    #[test]
    fn known_costs_are_found_or_it_is_said_that_they_cannot_be() {
        let check = |used_ms: &[[u32; 10]], last_ms, expect: Result<f64, &str>| match (
            cost(&outcome(used_ms, last_ms), |span| span.server_cpu),
            expect,
        ) {
            (Ok(cost), Ok(micros)) => {
                assert!(
                    (cost.as_secs_f64() * 1e6 - micros).abs() < 0.01,
                    "{cost:?}, not {micros}: {used_ms:?}"
                );
            }
            (Err(why), Err(says)) => assert!(why.contains(says), "{why}"),
            (found, expect) => panic!("{found:?}, not {expect:?}: {used_ms:?}"),
        };
        // Nothing but deliveries: 8 ms for 1,000.
        check(&[[6, 2, 0, 0, 0, 0, 0, 0, 0, 0]; 2], 90, Ok(8.0));
        // On top of 3 ms that each slice takes.
        check(&[[9, 5, 3, 3, 3, 3, 3, 3, 3, 3]; 2], 90, Ok(8.0));
        // What comes one slice after the last receiver belongs to it, what comes later doesn't.
        check(&[[4, 2, 2, 0, 0, 0, 0, 0, 0, 0]; 2], 101, Ok(8.0));
        // Heartbeats of 1 ms here and there: as many in the idle windows on average, and a window may have had 1.
        check(&[[8, 0, 1, 0, 0, 0, 1, 0, 0, 0]; 2], 90, Ok(7.5));
        // The same burst, twice as large, may be all that there was.
        check(
            &[[8, 0, 8, 0, 0, 0, 0, 0, 0, 0]; 2],
            90,
            Err("heartbeats scatter by 6.00 µs a delivery, which took 8.00"),
        );
        // One burst, during deliveries or beside them: nobody knows.
        check(&[[0, 0, 0, 0, 0, 9, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0, 0, 0]], 90, Err("scatter"));
        // Less than idle ones take.
        check(&[[0, 0, 3, 3, 3, 3, 3, 3, 3, 3]; 2], 90, Err("wasn't measured"));
        check(&[[0; 10]; 2], 90, Err("wasn't measured"));
        // Two idle windows; and none.
        check(&[[8, 8, 8, 8, 0, 0, 0, 0, 0, 0]; 2], 390, Err("a message took 390.0ms of the 1.0s"));
        check(&[[8; 10]; 4], 990, Err("never seen alone"));
        check(&[[8; 10]; 4], 5000, Err("never seen alone"));
        check(&[], 0, Err("nobody looked"));
    }

    #[test]
    fn a_slice_that_was_read_late_does_not_count_twice() {
        let mut late = outcome(&[[8, 0, 1, 1, 1, 1, 1, 1, 1, 1]; 2], 90);
        // Of the third and fourth idle window the last three slices were read at once.
        late.slices[5].wall = 300 * MS;
        late.slices[5].server_cpu = 3 * MS;
        for slice in &mut late.slices[6..8] {
            (slice.wall, slice.server_cpu) = (Duration::ZERO, Duration::ZERO);
        }
        let found = cost(&late, |span| span.server_cpu).unwrap();
        assert!((found.as_secs_f64() * 1e6 - 6.0).abs() < 0.01, "{found:?}");
    }
}
