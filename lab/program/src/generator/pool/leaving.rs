//! Ends connections, and stops, closes and reopens them for loads.

use std::time::{Duration, Instant};

use stentor_driver::Driver;

use super::{ConnectionPool, Load, Stage};
use crate::Error;

/// Number of connections reopened between two polls.
const BACK_AT_ONCE: usize = 32;

impl ConnectionPool {
    /// Stops reading from a connection.
    pub(in super::super) fn pause(&mut self, number: usize) {
        self.driver.pause(self.connections[number].main.conn);
    }

    /// Resumes reading from a connection.
    pub(in super::super) fn resume(&mut self, number: usize) {
        self.driver.resume(self.connections[number].main.conn);
    }

    /// Disconnects without a closing message. The connection doesn't count as lost.
    pub(in super::super) fn cut(&mut self, number: usize) {
        self.close(number);
    }

    /// Closes a connection. Returns its state, if it existed.
    fn close(&mut self, number: usize) -> Option<Stage> {
        let connection = &mut self.connections[number];
        let was = std::mem::replace(&mut connection.stage, Stage::Lost);
        if was == Stage::Lost {
            return None;
        }
        self.open -= usize::from(was == Stage::Open);
        self.driver.close(connection.main.conn);
        if let Some(side) = connection.side.take() {
            self.driver.close(side.conn);
        }
        Some(was)
    }

    /// Reopens the lost connection `number`.
    pub(in super::super) fn come_back(&mut self, number: usize) -> Result<(), Error> {
        assert_eq!(self.connections[number].stage, Stage::Lost, "a connection that is there can't come back");
        self.connections[number] = self.anew(number)?;
        Ok(())
    }

    /// Reconnects these connections in bursts. Calls `begun` before each connection.
    pub(in super::super) fn bring_back<L: Load>(
        &mut self,
        numbers: &[usize],
        load: &mut L,
        mut begun: impl FnMut(&mut L, usize),
    ) -> Result<(), Error> {
        // Connections come from other addresses, so that none meets the remains of its predecessor.
        self.round = self.round.wrapping_add(1);
        for some in numbers.chunks(BACK_AT_ONCE) {
            for number in some {
                begun(load, *number);
                self.come_back(*number)?;
            }
            self.turn(Some(Instant::now()), load)?;
        }
        Ok(())
    }

    /// Disconnects all open connections, reconnects them, and waits until all are open or lost. Returns the time until all were
    /// started, and until all were open.
    pub(in super::super) fn restart<L: Load>(
        &mut self,
        within: Duration,
        load: &mut L,
        begun: impl FnMut(&mut L, usize),
    ) -> Result<[Duration; 2], Error> {
        let there = self.open_ones();
        let lost = self.audit.lost_connections;
        let begin = Instant::now();
        there.iter().for_each(|number| self.cut(*number));
        self.bring_back(&there, load, begun)?;
        let asking = begin.elapsed();
        let is_missing =
            |pool: &Self, _: &L| pool.open() + ((pool.audit.lost_connections - lost) as usize) < there.len();
        self.turn_while(within, load, is_missing)?;
        if is_missing(self, load) {
            let (back, all) = (self.open(), there.len());
            return Err(Error::Generator(format!("{back} of {all} connections came back in {within:.1?}")));
        }
        Ok([asking, begin.elapsed()])
    }

    /// Records that a connection was lost, with the reason.
    pub(super) fn lose(&mut self, number: usize, why: &str) {
        let Some(was) = self.close(number) else { return };
        self.audit.lost_connections += 1;
        let stage = match was {
            Stage::Connecting => "connecting",
            Stage::Opening => "in the handshake",
            Stage::Open | Stage::Lost => "when open",
        };
        self.audit.first_loss.get_or_insert_with(|| format!("{stage}: {why}"));
    }
}
