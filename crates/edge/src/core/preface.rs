//! What a proxy sends before the first byte of a client: the header of the PROXY protocol ([`stentor_wire::proxy`]), on
//! listeners that demand it.
//!
//! ```text
//!  accepted ── peer not trusted ──────────────────────────────────────► closed
//!     └──────► Preface ── whole header ──► admitted: the client's address is known
//!                 └── malformed, late, the end of the stream ─────────► closed
//! ```
//!
//! No answer is sent: it would tell a scanner what is behind the port.

use super::Core;
use super::table::{Conn, Links, Machine, Preface};
use crate::protocols::http::MovedRequest;
use crate::refusal_log::Refusal;
use std::net::SocketAddr;
use stentor_driver::{ConnId, Driver};
use stentor_wire::proxy;

/// Longest header. With the client's certificate, HAProxy sends up to 2 kB.
const HEADER_BYTES_MAX: usize = 4_096;

impl<D: Driver> Core<D> {
    /// A connection begins on a listener that demands a header.
    pub(super) fn begin_preface(&mut self, conn: ConnId, peer: SocketAddr, listener: u8) {
        let options = self.ex.options();
        if !options.proxies.trusted.contains(peer.ip()) {
            self.count_refused_preface(peer, "its address is not in proxies.trusted");
            return self.driver.close(conn);
        }
        let deadline = self.ex.millis().after(options.proxies.header_timeout);
        let preface = Preface { peer, listener, received: Vec::new(), deadline, links: Links::default() };
        let index = self.table.insert(conn, Machine::Preface(Box::new(preface)));
        self.arm(index, deadline);
    }

    /// Handles what arrived on a connection whose header hasn't all arrived. Returns whether it is one.
    pub(super) fn receive_preface(&mut self, index: usize, data: &[u8]) -> bool {
        let Some(Conn { id, machine: Machine::Preface(preface), .. }) = self.table.get_mut(index) else {
            return false;
        };
        let (conn, peer, listener) = (*id, preface.peer, preface.listener);
        preface.received.extend_from_slice(data);
        match proxy::parse(&preface.received, HEADER_BYTES_MAX) {
            Ok(None) => self.weigh(index),
            Ok(Some(header)) => {
                let buffer = preface.received.split_off(header.bytes);
                let client = header.source.unwrap_or(peer);
                self.drop_connection(index);
                self.admitted(conn, client, listener, MovedRequest { buffer, ..MovedRequest::default() });
            }
            Err(error) => self.refuse_preface(index, &error.to_string()),
        }
        true
    }

    /// Closes a connection whose header is malformed or late.
    pub(super) fn refuse_preface(&mut self, index: usize, why: &str) {
        if let Some(Conn { machine: Machine::Preface(preface), .. }) = self.table.get(index) {
            self.count_refused_preface(preface.peer, why);
            self.abort(index);
        }
    }

    fn count_refused_preface(&mut self, peer: SocketAddr, why: &str) {
        self.ex.metrics().proxy_headers_refused.add(1);
        if let Some(logged) = self.ex.log_refusal(Refusal::ProxyHeader, &peer.ip().to_string()) {
            let others = logged.others();
            tracing::warn!(address = %logged.value, "closed a connection without its PROXY protocol header: {why}{others}");
        }
    }
}
