//! Addresses for clients, and TLS.

use super::ProxyProtocol;
use crate::config::section::section;
use std::net::SocketAddr;

section! {
    /// A certificate for TLS (docs/tls.md). Write one `[[tls]]` per certificate. A client gets the first
    /// certificate with the name that it requests (SNI), otherwise the first of all. With a certificate, the
    /// port of `server.listen` only accepts TLS; a `[[listeners]]` can accept plain HTTP.
    [tls] Certificate => (certificate) {
        /// File with the PEM certificate and its intermediate certificates, in this order, like
        /// `fullchain.pem` of certbot.
        certificate: String;
        /// File with the PEM private key, without a password: RSA, ECDSA P-256 or P-384, or Ed25519.
        key: String;
    }
}

section! {
    /// The certificate of the admin port, which then only accepts TLS: docs/tls.md. Without it, the port uses
    /// plain HTTP.
    [admin_tls] AdminTls => (admin_certificate) {
        /// File with the PEM certificate and its intermediate certificates, in this order.
        certificate: String;
        /// File with the PEM private key, without a password.
        key: String;
    }
}

section! {
    /// A further address for clients, in addition to `server.listen`. Write one `[[listeners]]` per address.
    [listeners] Listener => (listener) {
        /// The address. Port 0 picks a free port.
        address: SocketAddr, [restart];
        /// Whether this address uses TLS. Requires a `[[tls]]`.
        tls: bool, [restart];
        /// Whether each connection begins with a header of the PROXY protocol, in which a proxy states the
        /// client's address: docs/limits.md.
        proxy_protocol: ProxyProtocol, [restart];
    }
}
