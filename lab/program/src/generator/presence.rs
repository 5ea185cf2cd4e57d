//! A room whose members are notified when others join and leave. The last connections are disconnected and reconnected one after the
//! other, so each time one member leaves and another joins. The others stay and must be notified of both.

use std::time::{Duration, Instant};

use super::pool::{ConnectionPool, Load, Message};
use crate::Error;

/// After this time without notices, all members are known to have joined.
const QUIET: Duration = Duration::from_millis(300);
/// Maximum number of checks for such a time.
const LOOKS: usize = 100;

struct Watching {
    /// Clients that stay.
    watchers: usize,
    /// Number of joins and leaves that the watchers have received.
    changes: u64,
}

impl Load for Watching {
    fn message(&mut self, pool: &mut ConnectionPool, message: Message) {
        if message.head.is_some() || !message.clean {
            pool.audit.corrupt += 1;
        } else if message.number < self.watchers {
            self.changes += message.payload_bytes;
        }
    }
}

/// Runs [`super::LoadSpec::Presence`].
pub(super) fn run(
    pool: &mut ConnectionPool,
    moving: usize,
    rate_hz: f64,
    measure: Duration,
) -> Result<(), Error> {
    let watchers = pool.begun().saturating_sub(moving);
    if watchers == 0 || moving == 0 || rate_hz <= 0.0 {
        return Err(Error::Generator("presence needs clients that stay, and some that don't".into()));
    }
    let mut load = Watching { watchers, changes: 0 };
    for _ in 0..LOOKS {
        let before = load.changes;
        pool.turn_for(QUIET, &mut load)?;
        if load.changes == before {
            break;
        }
    }
    load.changes = 0;
    let total = (measure.as_secs_f64() * rate_hz) as u64;
    let expected = total * watchers as u64 * 2;
    let before = pool.read_clocks();
    let begin = Instant::now();
    let deadline = begin + measure + pool.spec.late;
    let mut moved = 0;
    while load.changes < expected && Instant::now() < deadline {
        let due = begin + Duration::from_secs_f64(moved as f64 / rate_hz);
        let number = watchers + moved as usize % moving;
        if moved < total && due <= Instant::now() && pool.is_open(number) {
            pool.cut(number);
            pool.bring_back(&[number], &mut load, |_, _| ())?;
            moved += 1;
        }
        pool.turn(Some(due.max(Instant::now() + Duration::from_millis(1))), &mut load)?;
    }
    pool.outcome.load = before.until(&pool.read_clocks());
    pool.outcome.messages = moved;
    pool.audit.expected = expected;
    pool.audit.delivered = load.changes.min(expected);
    pool.audit.repeated += load.changes - pool.audit.delivered;
    Ok(())
}
