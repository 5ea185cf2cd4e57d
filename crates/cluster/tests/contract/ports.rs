//! Free ports for servers that a test starts.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::{fs, io::Write, path::Path};

const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 20_000;

/// A free port that is given to no other test. Test programs run side by side, and a server opens its port only later,
/// so a file reserves the port for a test; `tests/clients/proxies.mjs` does the same. The kernel gives none of these
/// ports to an outgoing connection: it takes those from 32,768 on (ip(7)).
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() * 97 % u32::from(PORTS)).unwrap();
    let claims = std::env::temp_dir().join("stentor-test-ports");
    fs::create_dir_all(&claims).unwrap();
    loop {
        let port = FIRST_PORT + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if is_claimed(&claims.join(port.to_string())) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns `true` if the file now belongs to this process. Removes the file of an ended process for the next attempt.
fn is_claimed(file: &Path) -> bool {
    if let Ok(mut created) = fs::File::create_new(file) {
        return created.write_all(std::process::id().to_string().as_bytes()).is_ok();
    }
    if fs::read_to_string(file).is_ok_and(|owner| !Path::new("/proc").join(owner).exists()) {
        _ = fs::remove_file(file);
    }
    false
}
