//! Notifies systemd about the process: sd_notify(3), without its library.
//!
//! A message is one datagram to the socket in `NOTIFY_SOCKET`. Without the variable no message is sent.

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

/// An event of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The process serves clients, or has reloaded its configuration.
    Ready,
    /// The process begins to reload. [`Notice::Ready`] follows.
    Reloading,
    /// The process begins to shut down.
    Stopping,
}

/// Notifies systemd, if systemd has started the process as `Type=notify`. When the process has begun to shut
/// down, later reloads aren't reported.
pub(crate) fn notify(notice: Notice) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    static IS_STOPPING: AtomicBool = AtomicBool::new(false);
    if IS_STOPPING.fetch_or(notice == Notice::Stopping, Ordering::SeqCst) {
        return;
    }
    if let Err(error) = send(&socket, notice) {
        tracing::warn!(%error, ?notice, "can't notify the service manager");
    }
}

fn send(socket: &OsStr, notice: Notice) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let text = match notice {
        Notice::Ready => "READY=1".to_owned(),
        Notice::Stopping => "STOPPING=1".to_owned(),
        Notice::Reloading => {
            let now = clock_gettime(ClockId::Monotonic);
            format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000)
        }
    };
    let datagram = UnixDatagram::unbound()?;
    // A service manager that doesn't read its socket must not block the server.
    datagram.set_nonblocking(true)?;
    datagram.send_to_addr(text.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abstract_sockets_are_notified() {
        let name = format!("stentor-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), Notice::Ready).unwrap();
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1");
    }
}
