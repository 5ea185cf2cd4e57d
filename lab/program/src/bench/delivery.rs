//! CPU per delivery of a server that also sends heartbeats at unknown times.
//!
//! The time from one publication to the next is cut into slices, and the server's clock is read at their ends ([`Outcome::slices`]).
//! The *busy window* of a publication is its first slices, until the last receiver has it, and one more. The slices after it form
//! *idle windows* of the same length. The cost of a delivery is the CPU of busy windows beyond the average of idle ones. Its error
//! is at most the largest deviation of an idle window from the average. A cost below twice that error isn't reported.
//!
//! A server that pings only silent clients sends no ping to a client within a heartbeat interval after a delivery. If the next
//! publication came later than that, idle windows would have heartbeats that busy windows lack, and the cost would be too low. It isn't
//! reported then.

use std::time::Duration;

use crate::generator::{Outcome, Span};

/// Slices between two publications.
pub(super) const SLICES: u32 = 20;
/// The minimum number of idle windows for an estimate of their scatter.
const WINDOWS_MIN: usize = 3;
/// A cost must be this many times its uncertainty.
const BEYOND: f64 = 2.0;
/// Maximum time between two publications: the usual interval of heartbeats.
const PERIOD_MAX: Duration = Duration::from_secs(25);
/// A window counts if it has at least this share of its planned duration. The window after one that was read late is
/// shorter.
const WHOLE: f64 = 0.5;

/// CPU per delivery, of the part that `of` selects; or the reason why it can't be determined.
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
    let period = Duration::from_secs_f64(slice * each as f64);
    if period > PERIOD_MAX {
        return Err(format!(
            "CPU per delivery wasn't measured: messages were {period:.1?} apart, and for {PERIOD_MAX:?} after each one, clients aren't \
             pinged as they are later"
        ));
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
mod tests;
