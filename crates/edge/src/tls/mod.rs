//! TLS between the driver and the protocols (RFC 8446, RFC 5246), by rustls.
//!
//! ```text
//!  driver ── ciphertext ──► layer ── session ──► plaintext ──► core
//!         ◄── ciphertext ──       ◄── encrypt ── frames ──────
//! ```
//!
//! The layer is a driver on top of a driver ([`layer`]), so neither the core nor the protocols know whether a connection is
//! encrypted. [`session`] is the only file that names rustls' connection: it takes bytes, and writes plaintext and bytes into
//! buffers of the caller. [`certificates`] and [`tickets`] are shared by all cores and can be replaced while the server runs.
//!
//! Deliberately left out: client certificates, early data (a request could be replayed), HTTP/2, the kernel's TLS, versions
//! below 1.2, and renegotiation, which rustls refuses.

mod certificates;
mod connection;
mod connections;
mod der;
mod layer;
mod pump;
mod session;
mod tickets;

pub use certificates::{CertificateFiles, PreparedTls, TlsError, TlsHandle, TlsOptions};
pub(crate) use connections::TlsSettings;
pub(crate) use layer::TlsLayer;
