//! Connections that do nothing.

use std::time::Duration;

use stentor_driver::Driver;

use super::Outcome;
use super::fleet::Fleet;
use super::run::Ignore;
use crate::Error;

pub(super) fn run<D: Driver>(
    fleet: &mut Fleet<D>,
    hold: Duration,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let begin = fleet.read_clocks();
    fleet.turn_for(hold, &mut Ignore)?;
    outcome.load = begin.until(&fleet.read_clocks());
    Ok(())
}
