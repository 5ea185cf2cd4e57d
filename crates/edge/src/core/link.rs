//! Works on the entries of the application link. They have a queue of their own: entries of all links, in order.

use super::{Connections, Mail, Protocols, Work, turn};
use std::mem;
use stentor_driver::Driver;
use stentor_session::core::link::LinkProgress;

/// Steps of work on entries per turn. One step is about 50 ns.
const STEPS_PER_TURN: usize = 8_192;

/// Carries out waiting entries, for at most the steps of one turn.
pub(super) fn work_on_entries(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    work: &mut Work,
) {
    if work.tasks.link.is_empty() {
        return;
    }
    let mut queue = mem::take(&mut work.tasks.link);
    let mut steps = STEPS_PER_TURN;
    loop {
        match protocols.carry_out_link(&mut queue, &mut steps) {
            LinkProgress::Done => break,
            LinkProgress::Yield => {
                protocols.ex.metrics().command_yields.add(1);
                break;
            }
            LinkProgress::Pump => {
                turn::pump(conns, protocols, mail, work);
            }
        }
    }
    work.tasks.link = queue;
}
