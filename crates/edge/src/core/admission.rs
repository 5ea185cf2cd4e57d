//! New connections and the limits of their addresses.
//!
//! A connection above a limit isn't closed at once: its first request is answered with 429, so that its client knows why and
//! when to return. Only so many wait for their request at a time, and not for long; others are closed.

use super::{Core, Incoming};
use crate::limits::{LimitReached, Slot};
use crate::ports::network_of;
use crate::protocols::http::MovedRequest;
use crate::refusal_log::Refusal;
use std::net::SocketAddr;
use std::time::Duration;
use stentor_driver::{ConnId, Driver};

/// Connections above a limit that wait for their request, per core.
const REFUSED_MAX: usize = 256;
/// How long they do.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(2);
/// Sessions of a core below which the share of an address means nothing.
const SHARE_SESSIONS_MIN: usize = 100;
/// Sessions that are looked at for it.
const SHARE_SAMPLES_MAX: usize = 1_024;
/// Time between two warnings about it.
const SHARE_WARNING_INTERVAL: Duration = Duration::from_secs(600);

impl<D: Driver> Core<D> {
    /// A connection of this client begins, with what was read of it, unless its address or the node has reached a limit.
    pub(super) fn admitted(&mut self, conn: ConnId, peer: SocketAddr, listener: u8, moved: MovedRequest) {
        let (slot, reached) = match self.ex.count_connection(peer.ip()) {
            Ok(slot) => (slot, None),
            Err(reached) => (Slot::NONE, Some(reached)),
        };
        let begins_tls = self.ex.options().is_tls(listener);
        let incoming = Incoming { conn, peer, moved, slot, begins_tls };
        match (reached, self.ex.shared.much_less_loaded_than(self.ex.context.core)) {
            (Some(reached), _) => self.refuse_connection(incoming, reached),
            (None, Some(core)) => self.hand_over(incoming, core),
            (None, None) => self.begin_http(incoming, false),
        }
    }

    /// Looks whether most sessions come from one address: a proxy, probably, that isn't known to be one.
    pub(super) fn mind_addresses(&mut self) {
        let is_many = self.ex.hub.sessions() >= SHARE_SESSIONS_MIN;
        let most = if is_many { self.ex.hub.majority_source(SHARE_SAMPLES_MAX) } else { None };
        self.ex.metrics().address_share.set(most.map_or(0, |(_, percent)| u64::from(percent)));
        let now = self.ex.context.now;
        let is_due =
            self.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= SHARE_WARNING_INTERVAL);
        if let (Some((source, percent)), true, 0) = (most, is_due, self.ex.context.core) {
            self.warned_at = Some(now);
            let address = network_of(source);
            tracing::warn!(
                "{percent} % of the sessions come from {address}: if that is a proxy, clients share its limits; add its address to \
                 [proxies] trusted, and let it send X-Forwarded-For or the PROXY protocol (docs/limits.md)"
            );
        }
    }

    fn refuse_connection(&mut self, incoming: Incoming, reached: LimitReached) {
        self.ex.metrics().connections_limited.add(1);
        if let Some(logged) = self.ex.log_refusal(Refusal::Limit, &incoming.peer.ip().to_string()) {
            let (LimitReached { key, .. }, others) = (reached, logged.others());
            tracing::warn!(address = %logged.value, "refused a connection: {key} is reached{others}");
        }
        let now = self.ex.millis();
        while self.refused.front().is_some_and(|until| !now.is_before(*until)) {
            self.refused.pop_front();
        }
        // A handshake would cost more than the refusal saves.
        if incoming.begins_tls || self.refused.len() >= REFUSED_MAX {
            return self.driver.close(incoming.conn);
        }
        let deadline = now.after(REFUSED_TIMEOUT);
        self.refused.push_back(deadline);
        self.begin_refused(incoming, reached, deadline);
    }
}
