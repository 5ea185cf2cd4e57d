//! Tests of Stentor with the test in systemd's place: notifications and socket activation.

use crate::process::{self, PATIENCE, Running, Subscriber, answer};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

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
        .env("STENTOR_SERVER_DRAIN_DELAY", "3s")
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Running(server);
    assert_eq!(next(), "READY=1");
    server.signal(Signal::HUP);
    let reloading = next();
    let since =
        reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading:?}"));
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(next(), "READY=1");
    server.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1");
    // While the process drains, it reloads without notifying systemd that it is ready.
    server.signal(Signal::HUP);
    assert_eq!(server.end(), Some(0));
    manager.set_nonblocking(true).unwrap();
    let further = manager.recv(&mut [0; 256]).map_err(|error| error.kind());
    assert_eq!(further, Err(std::io::ErrorKind::WouldBlock));
}

/// Starts a server with these open sockets, as systemd passes them (`LISTEN_FDS`: descriptors 3, 4, …).
fn activated(sockets: &[(&str, &TcpListener)], cores: &str) -> Running {
    let mut script = String::new();
    for (at, (_, socket)) in sockets.iter().enumerate() {
        fcntl_setfd(socket, FdFlags::empty()).unwrap();
        // First moves the sockets to high numbers, because a socket may have the target number of another
        // one.
        script = format!("exec {}<&{}; {script} exec {}<&{};", 50 + at, socket.as_raw_fd(), 3 + at, 50 + at);
    }
    let names = sockets.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(":");
    script += "export LISTEN_PID=$$; exec \"$0\" \"$@\"";
    let server = Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_stentor"), "serve", "--cores", cores])
        // These addresses aren't used, because the sockets have theirs.
        .args(["--listen", "127.0.0.1:1", "--admin", "127.0.0.1:2"])
        .env("LISTEN_FDS", sockets.len().to_string())
        .env("LISTEN_FDNAMES", names)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    for (_, socket) in sockets {
        fcntl_setfd(socket, FdFlags::CLOEXEC).unwrap();
    }
    Running(server.unwrap())
}

/// Sends a request. It waits in the socket's accept queue until a process accepts the connection.
fn ask(socket: &TcpListener, path: &str) -> TcpStream {
    process::ask(&socket.local_addr().unwrap().to_string(), "GET", path, "")
}

#[test]
fn sockets_of_systemd_are_served_and_their_queues_outlive_a_restart() {
    let [clients, admin] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    for cores in ["1", "2"] {
        // Both requests wait until the server has started.
        let early = [ask(&clients, "/healthz"), ask(&admin, "/metrics")];
        let mut server = activated(&[("admin", &admin), ("stentor.socket", &clients)], cores);
        for stream in early {
            assert_eq!(answer(stream).0, 200, "{cores} cores");
        }
        server.signal(Signal::TERM);
        assert_eq!(server.end(), Some(0));
    }
}

/// While the old process drains, new connections aren't refused, but wait for the next process.
#[test]
fn connections_wait_while_a_process_on_sockets_of_systemd_drains() {
    let clients = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = activated(&[("stentor.socket", &clients)], "2");
    // The WebSocket stays open for up to 5 s, the drain window.
    let _stream = Subscriber::open(&clients.local_addr().unwrap().to_string(), "/ws");
    server.signal(Signal::TERM);
    // Loops until no process accepts connections.
    let waiting = loop {
        let stream = ask(&clients, "/readyz");
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        match stream.peek(&mut [0]) {
            Ok(_) => assert!(server.0.try_wait().unwrap().is_none(), "it accepts until its end"),
            Err(_) => break stream,
        }
    };
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(server.end(), Some(0));
    let _next = activated(&[("stentor.socket", &clients)], "1");
    assert_eq!(answer(waiting).0, 200);
}

#[test]
fn more_sockets_than_listeners_are_an_error() {
    let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let mut server = activated(&[("a", &one), ("b", &other)], "1");
    let mut errors = String::new();
    server.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(errors.contains("LISTEN_FDS: 2 sockets for clients"), "{errors}");
    assert_eq!(server.end(), Some(1));
}
