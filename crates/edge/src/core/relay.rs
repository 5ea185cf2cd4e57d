//! Connections that are relayed to another node, and connections that arrive from one ([`crate::ports::Relay`]).

use super::table::Conn;
use super::{Connections, Incoming, Mail, Protocols, admission, input};
use crate::ports::{ClientConnection, ForwardedClient, Handover, Location, NodeTag};
use std::net::TcpStream;
use stentor_driver::{ConnId, DetachedConnection, Driver};
use stentor_session::protocols::http::MovedRequest;
use stentor_session::proxies::SocketPeer;

/// Relays a connection to another node. If that isn't possible, the connection begins anew on this core and stays here.
pub(super) fn relay(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    mut incoming: Incoming,
    node: NodeTag,
) {
    let shared = protocols.ex.shared.clone();
    let permit = shared.permit_relay(protocols.ex.options().limits.relayed_connections_max);
    if permit.is_none() {
        protocols.ex.metrics().relays_refused.add(1);
    }
    incoming.stays = true;
    let (Some(permit), Some(relay)) = (permit, &shared.initial.relay) else {
        return input::begin(conns, protocols, mail, incoming);
    };
    let Some(detached) = conns.driver.detach_plain(incoming.conn) else {
        return input::begin(conns, protocols, mail, incoming);
    };
    // The node that serves the connection counts it.
    protocols.ex.release_connection(&mut incoming.slot);
    // A simulated connection has no file descriptor.
    let Ok(fd) = detached.into_fd() else { return };
    protocols.ex.metrics().relayed.add(1);
    let MovedRequest { buffer: input, socket: SocketPeer { is_tls, is_gateway }, .. } = incoming.moved;
    permit.set_buffered(input.capacity());
    let socket = TcpStream::from(fd);
    let connection = ClientConnection { socket, peer: incoming.peer, input, is_tls, is_gateway };
    relay.relay(node, connection, permit);
}

/// Passes a connection on to the HTTP server of a worker. If that isn't possible, the connection begins anew on this core and stays
/// here.
pub(super) fn forward(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    mut incoming: Incoming,
    client: ForwardedClient,
) {
    incoming.stays = true;
    let link = protocols.ex.options().link.as_ref();
    let forward = link.and_then(|link| link.http.as_ref()).map(|(_, forward)| forward.clone());
    let forward = forward.filter(|forward| forward.has_room(client));
    let detached = forward.and_then(|forward| Some((forward, conns.driver.detach_plain(incoming.conn)?)));
    let Some((forward, detached)) = detached else {
        return input::begin(conns, protocols, mail, incoming);
    };
    // The application link has its own limit for forwarded connections.
    protocols.ex.release_connection(&mut incoming.slot);
    // A simulated connection has no file descriptor.
    let Ok(fd) = detached.into_fd() else { return };
    let MovedRequest { buffer: input, socket: SocketPeer { is_tls, is_gateway }, .. } = incoming.moved;
    let socket = TcpStream::from(fd);
    let connection = ClientConnection { socket, peer: incoming.peer, input, is_tls, is_gateway };
    forward.forward(connection, client);
}

/// Receives a connection that another node has relayed, or that couldn't be relayed.
pub(super) fn adopt(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    connection: ClientConnection,
    handover: Handover,
) {
    let ClientConnection { socket, peer, input, is_tls, is_gateway } = connection;
    if handover == Handover::Relayed {
        if !admission::has_room(conns, protocols) {
            return protocols.ex.metrics().refused.add(1);
        }
        protocols.ex.metrics().adopted.add(1);
    }
    match conns.driver.attach(DetachedConnection::from(std::os::fd::OwnedFd::from(socket))) {
        Ok(conn) => {
            let handover = Some(handover);
            let from = SocketPeer { is_tls, is_gateway };
            let moved = MovedRequest { buffer: input, handover, socket: from, ..MovedRequest::default() };
            let slot = protocols.ex.count_adopted(peer.ip());
            input::begin(conns, protocols, mail, Incoming::new(conn, peer, moved, slot));
        }
        Err(error) => tracing::warn!(%error, %peer, "a connection was lost between two nodes"),
    }
}

impl<D: Driver> Connections<D> {
    /// Continues a waiting request whose session's node is now known.
    pub(super) fn located(&mut self, conn: ConnId, location: Location) {
        let Some(index) = self.table.index_of(conn) else { return };
        let Some(http) = self.table.get_mut(index).and_then(Conn::http) else { return };
        if http.handle_location(location) {
            self.revisit.push_back(index);
        }
    }
}
