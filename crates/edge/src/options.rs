//! The options of a node: its listeners, its cores, and the options of its sessions.

use crate::tls::TlsHandle;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use stentor_session::options::Options as SessionOptions;

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// The address. Port 0 selects a free port.
    pub address: SocketAddr,
    /// `true` if clients speak TLS.
    pub tls: bool,
    /// `true` if a proxy begins each connection with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), tls: false, proxy_protocol: false }
    }
}

/// Maximum number of listeners.
pub const LISTENERS_MAX: usize = 64;

stentor_ports::with_defaults! {
    /// The options of the data plane. Fields of [`Self::session`] can be named as if they were fields of this struct: `options.limits`.
    #[derive(Clone, Debug)]
    pub struct Options {
        /// The address of the first listener. Port 0 selects a free port.
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8000)),
        /// Further listeners.
        pub listeners: Vec<ListenerOptions> = Vec::new(),
        /// [`ListenerOptions::proxy_protocol`] of the first listener.
        pub proxy_protocol: bool = false,
        /// Number of cores, each with a thread. 0 selects the number of the machine's processors.
        pub cores: usize = 0,
        /// TLS certificates. With certificates, the first listener speaks TLS.
        pub tls: Option<TlsHandle> = None,
        /// Listening sockets of a service manager or another process, by the number of their listener. They are used instead of new
        /// sockets.
        pub sockets: Vec<Vec<Arc<OwnedFd>>> = Vec::new(),
        /// The options of sessions.
        pub session: SessionOptions = SessionOptions::default(),
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
