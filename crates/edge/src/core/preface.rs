//! The header of the PROXY protocol ([`stentor_wire::proxy`]), which a proxy sends before the first byte of a client, on
//! listeners that require it.
//!
//! ```text
//!  accepted ── peer not trusted ──────────────────────────────────────► closed
//!     └──────► Preface ── whole header ──► admitted: the client's address is known
//!                 └── malformed, late, the end of the stream ─────────► closed
//! ```
//!
//! No answer is sent, because it would tell a scanner which service is behind the port.

use super::table::{Conn, Links, Machine, Preface};
use super::{Connections, Mail, Protocols, admission, end};
use std::net::SocketAddr;
use stentor_driver::{ConnId, Driver};
use stentor_session::executor::Executor;
use stentor_session::protocols::http::MovedRequest;
use stentor_session::proxies::SocketPeer;
use stentor_session::refusal_log::Refusal;
use stentor_wire::proxy;

/// Longest header. With the client's certificate, HAProxy sends up to 2 kB.
const HEADER_BYTES_MAX: usize = 4_096;

impl<D: Driver> Connections<D> {
    /// Begins a connection of a listener that requires a header.
    pub(super) fn begin_preface(&mut self, ex: &mut Executor, conn: ConnId, peer: SocketAddr, listener: u8) {
        let options = ex.options();
        if !options.proxies.trusted.contains(peer.ip()) {
            count_refused_preface(ex, peer, "its address is not in proxies.trusted");
            return self.driver.close(conn);
        }
        let deadline = ex.millis().after(options.proxies.header_timeout);
        let preface = Preface { peer, listener, received: Vec::new(), deadline, links: Links::default() };
        let index = self.table.insert(conn, Machine::Preface(Box::new(preface)));
        self.arm(ex, index, deadline);
    }
}

/// Handles received bytes of a connection whose header is incomplete. Returns `false` for any other connection.
pub(super) fn receive_preface(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    mail: &mut Mail,
    index: usize,
    data: &[u8],
) -> bool {
    let Some(Conn { id, machine: Machine::Preface(preface), .. }) = conns.table.get_mut(index) else {
        return false;
    };
    let (conn, peer, listener) = (*id, preface.peer, preface.listener);
    preface.received.extend_from_slice(data);
    match proxy::parse(&preface.received, HEADER_BYTES_MAX) {
        Ok(None) => conns.weigh(&mut protocols.ex, index),
        Ok(Some(header)) => {
            let buffer = preface.received.split_off(header.bytes);
            let client = header.source.unwrap_or(peer);
            // The gateway is the socket's own peer, not the client that the peer states.
            let is_gateway = protocols.ex.options().is_gateway(peer.ip());
            let socket = SocketPeer { is_tls: false, is_gateway };
            conns.drop_connection(&mut protocols.ex, index);
            admission::admitted(
                conns,
                protocols,
                mail,
                conn,
                client,
                listener,
                MovedRequest { buffer, socket, ..MovedRequest::default() },
            );
        }
        Err(error) => refuse_preface(conns, protocols, index, &error.to_string()),
    }
    true
}

/// Closes a connection whose header is malformed or late.
pub(super) fn refuse_preface(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    index: usize,
    why: &str,
) {
    if let Some(Conn { machine: Machine::Preface(preface), .. }) = conns.table.get(index) {
        count_refused_preface(&protocols.ex, preface.peer, why);
        end::abort(conns, protocols, index);
    }
}

fn count_refused_preface(ex: &Executor, peer: SocketAddr, why: &str) {
    ex.metrics().proxy_headers_refused.add(1);
    if let Some(logged) = ex.log_refusal(Refusal::ProxyHeader, &peer.ip().to_string()) {
        let others = logged.others();
        tracing::warn!(address = %logged.value, "closed a connection without its PROXY protocol header: {why}{others}");
    }
}
