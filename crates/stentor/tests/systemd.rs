//! What systemd and Stentor tell each other, with the test in systemd's place.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// No part of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed when the test ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn start_reload_and_shutdown_are_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut text = [0; 256];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    let server = Command::new(env!("CARGO_BIN_EXE_stentor"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "1"])
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Server(server);
    let pid = Pid::from_child(&server.0);
    assert_eq!(next(), "READY=1");
    kill_process(pid, Signal::HUP).unwrap();
    let reloading = next();
    let since =
        reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading:?}"));
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(next(), "READY=1");
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}
