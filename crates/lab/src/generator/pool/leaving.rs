//! Connections that end, and those that the load stops, ends and begins anew.

use stentor_driver::Driver;

use super::{ConnectionPool, Stage};
use crate::Error;

impl ConnectionPool {
    /// Stops reading from a connection.
    pub(in super::super) fn pause(&mut self, number: usize) {
        self.driver.pause(self.connections[number].main.conn);
    }

    /// Reads from it again.
    pub(in super::super) fn resume(&mut self, number: usize) {
        self.driver.resume(self.connections[number].main.conn);
    }

    /// Cuts a connection, without a word of its protocol; nothing is held against the server.
    pub(in super::super) fn cut(&mut self, number: usize) {
        self.close(number);
    }

    /// Closes a connection; returns where it stood, if it was there.
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

    /// Begins connection `number`, which is lost, anew.
    pub(in super::super) fn come_back(&mut self, number: usize) -> Result<(), Error> {
        assert_eq!(self.connections[number].stage, Stage::Lost, "a connection that is there can't come back");
        self.connections[number] = self.anew(number)?;
        Ok(())
    }

    /// One is no more, for this reason.
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
