//! The options of a node: where clients connect, with which threads; and those of the sessions.

use crate::tls::TlsHandle;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use stentor_session::options::Options as SessionOptions;

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// The address. Port 0 picks one.
    pub address: SocketAddr,
    /// Whether clients speak TLS here.
    pub tls: bool,
    /// Whether a proxy begins each connection with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), tls: false, proxy_protocol: false }
    }
}

/// Maximum number of listeners.
pub const LISTENERS_MAX: usize = 64;

/// The options of the data plane. Fields of [`Self::session`] can be named as if they were fields of this struct: `options.limits`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where clients connect: the first listener. Port 0 picks one.
    pub listen: SocketAddr,
    /// Further addresses where clients connect.
    pub listeners: Vec<ListenerOptions>,
    /// [`ListenerOptions::proxy_protocol`] of the first listener.
    pub proxy_protocol: bool,
    /// Threads of the data plane; 0 means as many as the machine has processors.
    pub cores: usize,
    /// The certificates. With them, the first listener speaks TLS.
    pub tls: Option<TlsHandle>,
    /// Sockets that listen already, by the number of their listener, in place of new ones: those of a service manager or another
    /// process.
    pub sockets: Vec<Vec<Arc<OwnedFd>>>,
    /// The options of sessions.
    pub session: SessionOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8000)),
            listeners: Vec::new(),
            proxy_protocol: false,
            cores: 0,
            tls: None,
            sockets: Vec::new(),
            session: SessionOptions::default(),
        }
    }
}

impl Options {
    /// All listeners, in the order of their numbers in [`stentor_driver::Event::Accepted`].
    pub fn all_listeners(&self) -> Vec<ListenerOptions> {
        let first = ListenerOptions {
            address: self.listen,
            tls: self.tls.is_some(),
            proxy_protocol: self.proxy_protocol,
        };
        std::iter::once(first).chain(self.listeners.iter().cloned()).collect()
    }
}

impl Deref for Options {
    type Target = SessionOptions;

    fn deref(&self) -> &SessionOptions {
        &self.session
    }
}

impl DerefMut for Options {
    fn deref_mut(&mut self) -> &mut SessionOptions {
        &mut self.session
    }
}
