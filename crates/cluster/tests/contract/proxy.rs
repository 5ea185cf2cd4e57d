//! A connection that fails.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Forwards connections to a server. The proxy can swallow the bytes of one direction, or delay the server's bytes.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// `true`: bytes of clients (index 0) or of the server (index 1) are swallowed.
    pub(crate) swallows: Arc<[AtomicBool; 2]>,
    /// Delay of each 4 KiB that the server sends (ms).
    pub(crate) delay_ms: Arc<AtomicU64>,
    /// Number of connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
    /// Text of clients, and the text of the same length that the server receives instead.
    pub(crate) replaced: Arc<Mutex<Option<[&'static str; 2]>>>,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let swallows: Arc<[AtomicBool; 2]> = Arc::default();
        let delay_ms: Arc<AtomicU64> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let replaced: Arc<Mutex<Option<[&'static str; 2]>>> = Arc::default();
        let (shared, delay, count) = (swallows.clone(), delay_ms.clone(), connections.clone());
        let replace = replaced.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                // A new connection is never cut: only earlier connections are.
                shared.iter().for_each(|swallow| swallow.store(false, Ordering::Relaxed));
                count.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let client = client.unwrap();
                let ways = [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)];
                for (way, (mut from, mut to)) in ways.into_iter().enumerate() {
                    let (swallows, delay, replace) = (shared.clone(), delay.clone(), replace.clone());
                    std::thread::spawn(move || {
                        let mut buffer = [0; 4_096];
                        let mut is_cut = false;
                        while let Ok(length @ 1..) = from.read(&mut buffer) {
                            if way == 1 {
                                std::thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
                            }
                            let replaced = *replace.lock().unwrap();
                            if let Some([before, after]) = replaced.filter(|_| way == 0) {
                                let at = |bytes: &[u8]| {
                                    bytes.windows(before.len()).position(|part| part == before.as_bytes())
                                };
                                while let Some(at) = at(&buffer[..length]) {
                                    buffer[at..at + after.len()].copy_from_slice(after.as_bytes());
                                }
                            }
                            is_cut |= swallows[way].load(Ordering::Relaxed);
                            if !is_cut && to.write_all(&buffer[..length]).is_err() {
                                return;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self { port, swallows, delay_ms, connections, replaced }
    }
}
