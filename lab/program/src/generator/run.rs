//! One generator, from its first connection to its outcome.

use std::time::Duration;

use super::opening::{Ignore, meet, open_all};
use super::pool::ConnectionPool;
use super::{
    FanoutPlan, LoadSpec, Outcome, Publisher, Spec, ask, bare, budget, chat, echo, fanout, follow, misbehave,
    presence, reconnect, topics,
};
use crate::Error;
use crate::measure::pin_current;

/// Runs `spec` on the calling thread. `connected` is called on a separate thread when all connections are open, and the
/// load begins when it returns. Heartbeats continue until then. It is called again whenever all generators must reach
/// the same point before any continues.
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

/// Does the same as [`run`], and holds the connections until `done` returns.
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
        LoadSpec::Fanout(FanoutPlan { publisher: Publisher::Server | Publisher::Elsewhere, .. })
            | LoadSpec::Receive { .. }
            | LoadSpec::Ask
            | LoadSpec::Idle { .. }
            | LoadSpec::Misbehave { .. }
    );
    if sends && !spec.protocol.sends() {
        return Err(Error::Usage(format!("clients of {} can't send", spec.protocol.name())));
    }
    // These loads open their connections themselves.
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

/// Opens all connections and runs the load on them.
fn run_on_open(
    pool: &mut ConnectionPool,
    sends: bool,
    connected: &mut (impl FnMut(&Outcome) -> Result<(), Error> + Send),
) -> Result<(), Error> {
    let begin = pool.read_clocks();
    pool.outcome.progress = open_all(pool, &mut Ignore)?;
    pool.outcome.connect = begin.until(&pool.read_clocks());
    pool.outcome.connections = pool.open() as u64;
    if let (0, Some(why), true) = (pool.open(), &pool.audit.first_loss, sends) {
        return Err(Error::Generator(format!("none of its connections opened; {why}")));
    }
    meet(pool, connected)?;

    // Messages that arrived while waiting for other generators aren't counted.
    pool.turn_for(Duration::from_millis(20), &mut Ignore)?;
    // Without a time, there is no idle share to measure.
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
        LoadSpec::Fanout(plan) => fanout::run(pool, plan),
        LoadSpec::Receive { warm_up, measure } => echo::receive(pool, warm_up, measure),
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
