//! Questions to other nodes about their sockets.

use super::{Asked, Decided, Questions, Refused};
use crate::ports::{SocketName, SocketQuestion};
use std::time::Instant;
use stentor_frame::ConnId;

impl Questions {
    /// Looks for a socket on other nodes, by calling `find`. Returns the number of the question if the socket has arrived,
    /// `None` if no node has the socket. `decided` is the decision for which the client waited, if any.
    ///
    /// # Errors
    /// The answer is pending.
    pub(crate) fn find_socket(
        &mut self,
        now: Instant,
        conn: ConnId,
        name: SocketName,
        decided: Option<Decided>,
        find: impl FnOnce(SocketQuestion) -> bool,
    ) -> Result<Option<u64>, Refused> {
        if let Some(decided) = decided {
            return Ok(decided.answer.is_ok().then_some(decided.number));
        }
        if !self.make_room(None) {
            self.unanswered += 1;
            return Ok(None);
        }
        let number = self.tickets.draw();
        let ticket = self.tickets.of(number);
        if !find(SocketQuestion { ticket, name: name.clone() }) {
            return Ok(None);
        }
        self.defer(now, conn, Asked::Socket(Box::new(name)), number, None);
        Err(Refused::Pending)
    }

    /// The socket that a connection waits for.
    pub(crate) fn awaited_socket(&self, number: u64) -> Option<&SocketName> {
        match &self.waiting.question(number)?.asked {
            Asked::Socket(name) => Some(name),
            _ => None,
        }
    }
}
