//! One generator from its first connection to its outcome.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stentor_driver::Waker;

use super::pool::{ConnectionPool, Load};
use super::{
    LoadSpec, Outcome, Progress, Publisher, Spec, ask, bare, budget, chat, echo, fanout, follow, misbehave,
    presence, reconnect, topics,
};
use crate::Error;
use crate::measure::pin_current;

/// How long connections may take beyond what their rate needs.
const CONNECT_SLACK: Duration = Duration::from_secs(30);

/// Connections under way at once.
const CONNECTING_MAX: usize = 256;

/// Looks at what the server takes while connections are opened.
const OPENING_POINTS: usize = 20;

/// Runs `spec` on the calling thread. `connected` is called, on a thread of its own, when all connections are open, and the
/// load begins when it returns; until then they are kept alive. It is called once more whenever all generators have to
/// come as far before any goes on.
pub fn run(
    spec: &Spec,
    connected: impl FnMut(&Outcome) -> Result<(), Error> + Send,
) -> Result<Outcome, Error> {
    let mut outcome = None;
    run_and_hold(spec, connected, |found| {
        outcome = Some(found);
        Ok(())
    })?;
    outcome.ok_or_else(|| Error::Generator("it came to no end".into()))
}

/// As [`run`]; the connections are held until `done` returns.
pub(super) fn run_and_hold(
    spec: &Spec,
    mut connected: impl FnMut(&Outcome) -> Result<(), Error> + Send,
    done: impl FnOnce(Outcome) -> Result<(), Error>,
) -> Result<(), Error> {
    let _pinned = spec.core.map(pin_current).transpose().map_err(Error::io("pinning the generator"))?;
    if spec.bare {
        connected(&Outcome::default())?;
        return done(bare::run(spec)?);
    }
    let mut pool = ConnectionPool::new(spec)?;
    let sends = !matches!(
        spec.load,
        LoadSpec::Fanout { publisher: Publisher::Server | Publisher::Elsewhere, .. }
            | LoadSpec::Receive { .. }
            | LoadSpec::Ask
            | LoadSpec::Idle { .. }
            | LoadSpec::Misbehave { .. }
    );
    if sends && !spec.protocol.sends() {
        return Err(Error::Usage(format!("clients of {} can't send", spec.protocol.name())));
    }
    // These open their connections themselves.
    match spec.load {
        LoadSpec::Budget(plan) => {
            connected(&pool.outcome)?;
            budget::run(&mut pool, &plan)?;
        }
        LoadSpec::Misbehave { how, lasts } => misbehave::run(&mut pool, how, lasts, &mut connected)?,
        _ => run_on_open(&mut pool, sends, &mut connected)?,
    }
    let verified = pool.verify();
    let audit = std::mem::take(&mut pool.audit);
    done(Outcome { verified, audit, ..std::mem::take(&mut pool.outcome) })
}

/// Opens all connections, and puts the load on them.
fn run_on_open(
    pool: &mut ConnectionPool,
    sends: bool,
    connected: &mut (impl FnMut(&Outcome) -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let begin = pool.read_clocks();
    pool.outcome.opening = open_all(pool, &mut Ignore)?;
    pool.outcome.connect = begin.until(&pool.read_clocks());
    pool.outcome.connections = pool.open() as u64;
    if let (0, Some(why), true) = (pool.open(), &pool.audit.first_loss, sends) {
        return Err(Error::Generator(format!("none of its connections opened; {why}")));
    }
    meet(pool, connected)?;

    // What came while the others were waited for belongs to nobody.
    pool.turn_for(Duration::from_millis(20), &mut Ignore)?;
    // Of no time at all, a share of it says nothing.
    if !pool.spec.idle.is_zero() {
        let begin = pool.read_clocks();
        pool.turn_for(pool.spec.idle, &mut Ignore)?;
        pool.outcome.idle = begin.until(&pool.read_clocks());
    }

    match pool.spec.load.clone() {
        LoadSpec::EchoOpen { bytes, rate_hz, warm_up, measure } => {
            echo::open(pool, bytes, rate_hz, warm_up, measure)
        }
        LoadSpec::EchoClosed { bytes, warm_up, measure } => echo::closed(pool, bytes, warm_up, measure),
        LoadSpec::Fanout { bytes, rate_hz, warm_up, count, publisher } => {
            fanout::run(pool, fanout::Plan { bytes, rate_hz, warm_up, count, publisher })
        }
        LoadSpec::Receive { measure } => echo::receive(pool, measure),
        LoadSpec::Topics(plan) => topics::run(pool, &plan),
        LoadSpec::Presence { moving, rate_hz, measure } => presence::run(pool, moving, rate_hz, measure),
        LoadSpec::Chat(plan) => chat::run(pool, &plan),
        LoadSpec::Ask => ask::run(pool),
        LoadSpec::Follow { lasts } => follow::run(pool, lasts),
        LoadSpec::Idle { hold } => {
            let begin = pool.read_clocks();
            pool.turn_for(hold, &mut Ignore)?;
            pool.outcome.load = begin.until(&pool.read_clocks());
            Ok(())
        }
        LoadSpec::Reconnect { cut, bytes, publisher } => {
            reconnect::run(pool, cut, bytes, publisher, connected)
        }
        LoadSpec::Budget(_) | LoadSpec::Misbehave { .. } => Ok(()),
    }
}

/// Waits until `connected` returns, and has clients answer meanwhile: whoever opens half a million connections waits for
/// longer than a server's patience.
pub(super) fn meet(
    pool: &mut ConnectionPool,
    connected: &mut (impl FnMut(&Outcome) -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let (waker, outcome) = (pool.waker(), pool.outcome.clone());
    let is_back = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            // Also when a test's panics.
            let _woken = Woken { is_back: &is_back, waker };
            connected(&outcome)
        });
        pool.untold(|pool| {
            while !is_back.load(Ordering::Acquire) {
                pool.turn(None, &mut Ignore)?;
            }
            Ok(())
        })?;
        waiting.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Opens all connections at the rate of the spec. Returns how it went.
pub(super) fn open_all(pool: &mut ConnectionPool, load: &mut impl Load) -> Result<Vec<Progress>, Error> {
    let total = pool.spec.connections;
    let every = Duration::from_secs_f64(1.0 / pool.spec.connect_rate_hz.max(1.0));
    let begin = Instant::now();
    let deadline = begin + every.mul_f64(total as f64) + CONNECT_SLACK;
    let mut next = begin;
    let begun = pool.read_clocks();
    let mut opening = vec![pool.progress(&begun, 0)];
    let step = total.div_ceil(OPENING_POINTS).max(1);
    loop {
        let now = Instant::now();
        let settled = pool.open() + pool.audit.lost_connections as usize;
        if settled == total || pool.open() >= opening.len() * step {
            opening.push(pool.progress(&begun, 0));
        }
        if settled == total {
            return Ok(opening);
        }
        if now > deadline {
            let why = pool.audit.first_loss.as_deref().unwrap_or_else(|| pool.awaited());
            let (open, within) = (pool.open(), begin.elapsed());
            return Err(Error::Generator(format!(
                "{open} of {total} connections opened within {within:.0?}; {why}"
            )));
        }
        let mut burst = 0;
        while next <= now && burst < 16 && pool.begun() < total && pool.begun() - settled < CONNECTING_MAX {
            pool.begin()?;
            next += every;
            burst += 1;
        }
        // A slow server moves the schedule; it isn't caught up in a burst.
        next = next.max(now - Duration::from_millis(5));
        let due = if pool.begun() < total { next } else { deadline };
        // Coarse waits are good enough here, and leave the core to the server's half of TCP.
        pool.turn(Some(due.max(now + Duration::from_micros(2_300))), load)?;
    }
}

/// Tells a pool, when it is dropped, that it need not turn any more.
struct Woken<'a> {
    is_back: &'a AtomicBool,
    waker: Waker,
}

impl Drop for Woken<'_> {
    fn drop(&mut self) {
        self.is_back.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Nothing is done with what comes.
pub(super) struct Ignore;

impl Load for Ignore {}
