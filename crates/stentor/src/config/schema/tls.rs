//! Where clients connect.

use super::ProxyProtocol;
use crate::config::section::section;
use std::net::SocketAddr;

section! {
    /// A further address for clients, besides `server.listen`. Write one `[[listeners]]` per address.
    [listeners] Listener => (listener) {
        /// The address. Port 0 picks a free port.
        address: SocketAddr;
        /// Whether a proxy begins each connection with a header of the PROXY protocol that names the client: docs/limits.md.
        proxy_protocol: ProxyProtocol;
    }
}
