//! Connections that leave for another node, and those that come from one ([`crate::ports::Relay`]).

use super::table::Conn;
use super::{Core, Incoming};
use crate::ports::{ClientConnection, Handover, Location, NodeTag};
use crate::protocols::http::MovedRequest;
use std::net::TcpStream;
use stentor_driver::{ConnId, DetachedConnection, Driver};

impl<D: Driver> Core<D> {
    /// Passes a connection through to another node. If that can't be, it begins anew on this core, to stay.
    pub(super) fn relay(&mut self, mut incoming: Incoming, node: NodeTag) {
        let shared = self.ex.shared.clone();
        let permit = shared.permit_relay(self.ex.options().limits.relayed_connections_max);
        if permit.is_none() {
            self.ex.metrics().relays_refused.add(1);
        }
        let (Some(permit), Some(relay)) = (permit, &shared.initial.options.relay) else {
            return self.begin_http(incoming, true);
        };
        let Some(detached) = self.driver.detach_plain(incoming.conn) else {
            return self.begin_http(incoming, true);
        };
        // It counts on the node that serves it.
        self.ex.release_connection(&mut incoming.slot);
        // One of a simulated network can't leave it.
        let Ok(fd) = detached.into_fd() else { return };
        self.ex.metrics().relayed.add(1);
        let MovedRequest { buffer: input, is_tls, .. } = incoming.moved;
        permit.set_buffered(input.capacity());
        let socket = TcpStream::from(fd);
        let connection = ClientConnection { socket, peer: incoming.peer, input, is_tls };
        relay.relay(node, connection, permit);
    }

    /// A connection has come from another node, or come back.
    pub(super) fn adopt(&mut self, connection: ClientConnection, handover: Handover) {
        let ClientConnection { socket, peer, input, is_tls } = connection;
        if handover == Handover::Relayed {
            if !self.has_room() {
                return self.ex.metrics().refused.add(1);
            }
            self.ex.metrics().adopted.add(1);
        }
        match self.driver.attach(DetachedConnection::from(std::os::fd::OwnedFd::from(socket))) {
            Ok(conn) => {
                let handover = Some(handover);
                let moved = MovedRequest { buffer: input, handover, is_tls, ..MovedRequest::default() };
                let slot = self.ex.count_adopted(peer.ip());
                self.begin_http(Incoming { conn, peer, moved, slot, begins_tls: false }, false);
            }
            Err(error) => tracing::warn!(%error, %peer, "a connection was lost between two nodes"),
        }
    }

    /// It is known which node has the session that a waiting request names.
    pub(super) fn located(&mut self, conn: ConnId, location: Location) {
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        if http.handle_location(location) {
            self.http_ready(index);
        }
    }
}
