//! New connections and the limits of their addresses.
//!
//! A connection above a limit isn't closed at once. Its first request is answered with 429, so that its client learns
//! the reason and when to reconnect. The number of connections that wait for this request is bounded, and so is the
//! time. Further connections above a limit are closed at once.

use super::{Connections, Incoming, Mail, Protocols, Upkeep, eviction, handover, input};
use crate::ledger::Pressure;
use crate::ports::{Lifecycle as _, network_of};
use std::net::SocketAddr;
use std::time::Duration;
use stentor_driver::{ConnId, Driver};
use stentor_session::executor::Executor;
use stentor_session::limits::{LimitReached, Slot};
use stentor_session::protocols::http::MovedRequest;
use stentor_session::proxies::SocketPeer;
use stentor_session::refusal_log::Refusal;

/// Connections above a limit that wait for their request, per core.
const REFUSED_MAX: usize = 256;
/// Time for which a connection above a limit waits for its request.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum number of sessions on a core for a warning about the share of one address.
const SHARE_SESSIONS_MIN: usize = 100;
/// Maximum number of sessions that are sampled to find this share.
const SHARE_SAMPLES_MAX: usize = 1_024;
/// Minimum time between two warnings about one address with most sessions.
const SHARE_WARNING_INTERVAL: Duration = Duration::from_secs(600);

/// Returns `true` if the node can serve one more connection.
pub(super) fn has_room(conns: &mut Connections<impl Driver>, protocols: &mut Protocols) -> bool {
    // The accepted connection is already counted.
    let has_room = protocols.ex.shared.connections() <= conns.connections_max(&protocols.ex);
    let is_refused = conns.listeners.kernel_is_full() || protocols.ex.ledger().pressure() > Pressure::None;
    !is_refused && (has_room || eviction::evict(conns, protocols))
}

/// Handles a connection that the driver has accepted.
pub(super) fn accepted(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    conn: ConnId,
    peer: SocketAddr,
    socket: u8,
) {
    // A core may have several sockets of each listener (`node::Inherited`).
    let listener = (usize::from(socket) % conns.listeners.all.len()) as u8;
    conns.record_load(&protocols.ex);
    if !has_room(conns, protocols) {
        protocols.ex.metrics().refused.add(1);
        conns.driver.close(conn);
        return;
    }
    protocols.ex.metrics().accepted.add(1);
    if conns.listeners.all[usize::from(listener)].proxy_protocol {
        return conns.begin_preface(&mut protocols.ex, conn, peer, listener);
    }
    let is_gateway = protocols.ex.options().is_gateway(peer.ip());
    let socket = SocketPeer { is_tls: false, is_gateway };
    let moved = MovedRequest { socket, ..MovedRequest::default() };
    admitted(conns, protocols, mail, conn, peer, listener, moved);
}

/// Begins a client's connection with the bytes that were read from it, unless its address or the node has reached a limit.
pub(super) fn admitted(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    conn: ConnId,
    peer: SocketAddr,
    listener: u8,
    moved: MovedRequest,
) {
    let (slot, reached) = match protocols.ex.count_connection(peer.ip()) {
        Ok(slot) => (slot, None),
        Err(reached) => (Slot::NONE, Some(reached)),
    };
    let begins_tls = conns.listeners.all[usize::from(listener)].tls;
    let incoming = Incoming { begins_tls, ..Incoming::new(conn, peer, moved, slot) };
    match (reached, protocols.ex.shared.much_less_loaded_than(protocols.ex.core())) {
        (Some(reached), _) => refuse_connection(conns, protocols, mail, incoming, reached),
        (None, Some(core)) => handover::hand_over(conns, protocols, mail, incoming, core),
        (None, None) => input::begin(conns, protocols, mail, incoming),
    }
}

impl Upkeep {
    /// Warns if most sessions come from one address, which is probably a proxy that isn't configured as one.
    pub(super) fn check_addresses(&mut self, ex: &mut Executor) {
        let is_many = ex.hub.sessions() >= SHARE_SESSIONS_MIN;
        let most = if is_many { ex.hub.majority_source(SHARE_SAMPLES_MAX) } else { None };
        ex.metrics().address_share.set(most.map_or(0, |(_, percent)| u64::from(percent)));
        let now = ex.now();
        let is_due =
            self.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= SHARE_WARNING_INTERVAL);
        if let (Some((source, percent)), true, 0) = (most, is_due, ex.core()) {
            self.warned_at = Some(now);
            let address = network_of(source);
            tracing::warn!(
                "{percent} % of the sessions come from {address}: if that is a proxy, clients share its limits; add its address to \
                 [proxies] trusted, and let it send X-Forwarded-For or the PROXY protocol (docs/limits.md)"
            );
        }
    }
}

fn refuse_connection(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    mut incoming: Incoming,
    reached: LimitReached,
) {
    protocols.ex.metrics().connections_limited.add(1);
    if let Some(logged) = protocols.ex.log_refusal(Refusal::Limit, &incoming.peer.ip().to_string()) {
        let (LimitReached { key, .. }, others) = (reached, logged.others());
        tracing::warn!(address = %logged.value, "refused a connection: {key} is reached{others}");
    }
    let now = protocols.ex.millis();
    while conns.refused.front().is_some_and(|until| !now.is_before(*until)) {
        conns.refused.pop_front();
    }
    // A TLS handshake would cost more than the refusal saves.
    if incoming.begins_tls || conns.refused.len() >= REFUSED_MAX {
        return conns.driver.close(incoming.conn);
    }
    let deadline = now.after(REFUSED_TIMEOUT);
    conns.refused.push_back(deadline);
    incoming.refusal = Some((reached, deadline));
    input::begin(conns, protocols, mail, incoming);
}
