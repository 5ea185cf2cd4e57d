//! Connections that do nothing.

use std::time::Duration;

use stentor_driver::Driver;

use super::Outcome;
use super::pool::ConnectionPool;
use super::run::Ignore;
use crate::Error;

pub(super) fn run<D: Driver>(
    pool: &mut ConnectionPool<D>,
    hold: Duration,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let begin = pool.read_clocks();
    pool.turn_for(hold, &mut Ignore)?;
    outcome.load = begin.until(&pool.read_clocks());
    Ok(())
}
