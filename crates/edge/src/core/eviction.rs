//! Makes room for a new connection at the limit: closes the connection that has waited longest without a complete
//! request.
//!
//! A client that opens silent connections thus evicts its own. Active connections stay: WebSockets, SSE streams, and requests
//! that are being answered. At worst, a client loses an idle connection and reconnects.
//!
//! Connections that speak HTTP are in a list, ordered by the time of their last complete request, or of the connect if there was
//! none. The links are in [`super::table::HttpConnection`], which an upgrade frees. **Invariant:** a connection is in the list
//! exactly while its machine is [`Machine::Http`] or [`Machine::Preface`]; only [`Table::insert`], [`Table::set_machine`] and
//! [`Table::remove`] change that.

use super::table::{Conn, Links, Machine, NONE, Table};
use super::{Connections, Protocols, end};
use stentor_driver::Driver;

/// Maximum number of connections to examine for one without a request. A small number suffices, because connections with a
/// request move to the end of the list.
const LOOKS_MAX: usize = 16;

impl Table {
    fn links(&mut self, index: u32) -> Option<&mut Links> {
        match self.get_mut(index as usize) {
            Some(Conn { machine: Machine::Http(connection), .. }) => Some(&mut connection.links),
            Some(Conn { machine: Machine::Preface(preface), .. }) => Some(&mut preface.links),
            _ => None,
        }
    }

    /// Adds a connection that speaks HTTP and isn't in the list. Other connections are ignored.
    pub(super) fn link(&mut self, index: usize) {
        let (index, newest) = (index as u32, self.ends.newest);
        let Some(links) = self.links(index) else { return };
        *links = Links { older: newest, newer: NONE };
        match self.links(newest) {
            Some(links) => links.newer = index,
            None => self.ends.oldest = index,
        }
        self.ends.newest = index;
    }

    /// Removes a connection from the list, if it is there.
    pub(super) fn unlink(&mut self, index: usize) {
        let Some(links) = self.links(index as u32) else { return };
        let Links { older, newer } = std::mem::take(links);
        match self.links(older) {
            Some(links) => links.newer = newer,
            None => self.ends.oldest = newer,
        }
        match self.links(newer) {
            Some(links) => links.older = older,
            None => self.ends.newest = older,
        }
    }

    /// Moves a connection to the end of the list, because a complete request has arrived.
    pub(super) fn requested(&mut self, index: usize) {
        if self.ends.newest != index as u32 {
            self.unlink(index);
            self.link(index);
        }
    }

    /// The connection that has waited longest without a complete request.
    fn oldest(&self) -> Option<usize> {
        (self.ends.oldest != NONE).then_some(self.ends.oldest as usize)
    }

    /// Returns `true` if a connection has no request that waits or is being answered.
    fn awaits_request(&self, index: usize) -> bool {
        match self.get(index) {
            Some(Conn { machine: Machine::Http(connection), in_flight, replies, .. }) => {
                !connection.http.is_busy() && !in_flight && !replies.is_some()
            }
            Some(Conn { machine: Machine::Preface(_), .. }) => true,
            _ => false,
        }
    }
}

/// Closes a connection without a request, the oldest first. Returns `true` if there was one on this core.
pub(super) fn evict(conns: &mut Connections<impl Driver>, protocols: &mut Protocols) -> bool {
    for _ in 0..LOOKS_MAX {
        let Some(index) = conns.table.oldest() else { return false };
        if conns.table.awaits_request(index) {
            protocols.ex.metrics().evicted.add(1);
            end::abort(conns, protocols, index);
            conns.record_load(&protocols.ex);
            return true;
        }
        conns.table.requested(index);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_frame::{ConnId, Key};
    use stentor_session::millis::Millis;
    use stentor_session::protocols::http::{Http, MovedRequest};

    /// Returns the list, oldest first. Checks that the links in both directions agree.
    fn listed(table: &mut Table) -> Vec<u32> {
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let (mut at, mut back) = (table.ends.oldest, table.ends.newest);
        while let Some(links) = table.links(at).copied() {
            forward.push(at);
            at = links.newer;
        }
        while let Some(links) = table.links(back).copied() {
            backward.push(back);
            back = links.older;
        }
        backward.reverse();
        assert_eq!(forward, backward);
        forward
    }

    fn http() -> Machine {
        let peer = ([127, 0, 0, 1], 1).into();
        Machine::http(Http::new(peer, Millis::default(), MovedRequest::default(), false))
    }

    #[test]
    fn connections_are_listed_by_their_last_complete_request() {
        let mut table = Table::default();
        assert_eq!((table.oldest(), listed(&mut table)), (None, vec![]));
        for index in 0..5 {
            table.insert(ConnId(Key { index, generation: 0 }), http());
        }
        assert_eq!(listed(&mut table), [0, 1, 2, 3, 4]);
        table.requested(0);
        table.requested(2);
        table.requested(2);
        assert_eq!(listed(&mut table), [1, 3, 4, 0, 2]);
        table.remove(4);
        table.set_machine(1, Machine::Closing { deadline: Millis::default() });
        table.requested(1);
        assert_eq!((table.oldest(), listed(&mut table)), (Some(3), vec![3, 0, 2]));
        table.remove(2);
        table.insert(ConnId(Key { index: 4, generation: 0 }), http());
        assert_eq!(listed(&mut table), [3, 0, 4]);
        for index in [3, 0, 4] {
            table.remove(index);
        }
        assert_eq!((table.oldest(), listed(&mut table)), (None, vec![]));
    }
}
