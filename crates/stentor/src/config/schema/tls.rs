//! Where clients connect, and TLS.

use super::ProxyProtocol;
use crate::config::section::section;
use std::net::SocketAddr;

section! {
    /// A certificate for TLS (docs/tls.md). Write one `[[tls]]` per certificate. A client gets the first certificate with the name
    /// that it asks for (SNI), or else the first of all. With a certificate, the port of `server.listen` speaks TLS only; a
    /// `[[listeners]]` can speak plain HTTP.
    [tls] Certificate => (certificate) {
        /// File with the PEM certificate and those that lead to a root, in this order, as `fullchain.pem` of certbot.
        certificate: String;
        /// File with the PEM private key, without a password: RSA, ECDSA P-256 or P-384, or Ed25519.
        key: String;
    }
}

section! {
    /// The certificate of the admin port, which then speaks TLS only: docs/tls.md. Without it, the port speaks plain HTTP.
    [admin_tls] AdminTls => (admin_certificate) {
        /// File with the PEM certificate and those that lead to a root, in this order.
        certificate: String;
        /// File with the PEM private key, without a password.
        key: String;
    }
}

section! {
    /// A further address for clients, besides `server.listen`. Write one `[[listeners]]` per address.
    [listeners] Listener => (listener) {
        /// The address. Port 0 picks a free port.
        address: SocketAddr, [restart];
        /// Whether clients speak TLS at this address. It needs a `[[tls]]`.
        tls: bool, [restart];
        /// Whether a proxy begins each connection with a header of the PROXY protocol that names the client: docs/limits.md.
        proxy_protocol: ProxyProtocol, [restart];
    }
}
