//! Properties of sockets that the cores of a node share: listeners, certificates, and whether the kernel has memory for more
//! connections.

use crate::options::{ListenerOptions, Options};
use crate::tls::TlsHandle;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Properties of a node's listeners.
pub(crate) struct Listeners {
    /// The listeners, by their numbers.
    pub(crate) all: Vec<ListenerOptions>,
    pub(crate) tls: Option<TlsHandle>,
    kernel_is_full: AtomicBool,
}

impl Listeners {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            all: options.all_listeners(),
            tls: options.tls.clone(),
            kernel_is_full: AtomicBool::new(false),
        }
    }

    /// Returns the times at which the certificates expire, since 1970, with their files.
    pub(crate) fn expiries(&self) -> Vec<(PathBuf, Duration)> {
        self.tls.iter().flat_map(TlsHandle::expiries).collect()
    }

    /// Returns `true` if the kernel is short of memory for sockets.
    pub(crate) fn kernel_is_full(&self) -> bool {
        self.kernel_is_full.load(Ordering::Relaxed)
    }

    /// Compares TCP memory with the pressure threshold (the middle value of `net.ipv4.tcp_mem`). New connections are
    /// refused from this value on, before the kernel drops packets. Reads files, so it may block.
    pub(crate) fn look_at_kernel_memory(&self) {
        let used = std::fs::read_to_string("/proc/net/sockstat").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("TCP:"))?;
            let mut words = line.split_whitespace().skip_while(|word| *word != "mem");
            words.nth(1)?.parse::<u64>().ok()
        });
        let pressure = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mem")
            .ok()
            .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        if let (Some(used), Some(pressure)) = (used, pressure) {
            let full = used >= pressure;
            if full && !self.kernel_is_full.swap(full, Ordering::Relaxed) {
                tracing::warn!(
                    used_pages = used,
                    pressure_pages = pressure,
                    "the kernel is short of memory for sockets; new connections are refused until it has some \
                     (net.ipv4.tcp_mem)"
                );
            }
            self.kernel_is_full.store(full, Ordering::Relaxed);
        }
    }
}
