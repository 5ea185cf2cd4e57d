//! Tests of a new process that takes over the listening sockets while clients connect.

use crate::process::{PATIENCE, Running, status};
use crate::redis_server;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Pause between the connections of a thread. It bounds the number of connections.
const PAUSE: Duration = Duration::from_millis(2);

fn free_address() -> String {
    format!("127.0.0.1:{}", redis_server::free_port())
}

struct Place {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    listen: String,
    admin: String,
    drain_window: &'static str,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("takeover");
        Self { _dir: dir, socket, listen: free_address(), admin: free_address(), drain_window: "1s" }
    }

    fn command(&self, cores: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
        command
            .args(["serve", "--listen", &self.listen, "--admin", &self.admin, "--cores", cores])
            .env("STENTOR_SERVER_TAKEOVER_SOCKET", &self.socket)
            .env("STENTOR_SERVER_DRAIN_WINDOW", self.drain_window)
            .stderr(Stdio::piped());
        command
    }

    /// Starts a server. Waits until it accepts clients and its takeover socket exists.
    fn start(&self, cores: &str) -> Running {
        let (mut server, addr) = Running::ready(&mut self.command(cores));
        assert_eq!(addr, self.listen);
        let mut log = BufReader::new(server.0.stderr.as_mut().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("a new process can take over")), "its log ended");
        server
    }

    /// Requests a Socket.IO session, which a draining process refuses. Returns the status.
    fn ask(&self) -> u16 {
        status(&self.listen, "/socket.io/?EIO=4&transport=polling")
    }
}

/// Waits until the process has drained, and asserts the exit code 0.
fn assert_drained(mut server: Running) {
    assert_eq!(server.end(), Some(0));
}

#[test]
fn no_connection_of_a_storm_is_refused_or_reset() {
    let place = Arc::new(Place::new());
    let mut running = place.start("2");
    let (answered, answers) = mpsc::channel();
    let storm: Vec<_> = (0..4)
        .map(|_| {
            let (over, is_over) = mpsc::channel::<()>();
            let (place, answered) = (place.clone(), answered.clone());
            let connect = move || {
                while is_over.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                    assert_eq!(place.ask(), 200);
                    answered.send(()).unwrap();
                }
            };
            (over, std::thread::spawn(connect))
        })
        .collect();
    let wait = |connections| (0..connections).for_each(|_| answers.recv_timeout(PATIENCE).unwrap());
    // The new process has more cores than there are sockets, then fewer, then as many.
    for cores in ["3", "1", "2"] {
        wait(200);
        let next = place.start(cores);
        assert_drained(std::mem::replace(&mut running, next));
        assert_eq!(status(&place.admin, "/healthz"), 200);
    }
    wait(200);
    for (over, thread) in storm {
        drop(over);
        thread.join().unwrap();
    }
}

#[test]
fn the_running_server_goes_on_if_the_new_one_fails_or_sends_garbage() {
    let place = Place::new();
    let mut running = place.start("2");
    assert_eq!(std::fs::metadata(&place.socket).unwrap().mode() & 0o777, 0o600);

    // Plays a new process that sends these bytes and then ends without a confirmation. Returns the bytes that
    // it received.
    let asks = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&place.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // If the running process leaves data unread, the read fails with a reset.
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    assert_eq!(asks(b"stentor takeover 9\n"), b"");
    assert_eq!(asks(&[0; 4096]), b"");
    assert_eq!(asks(b""), b"");
    // The new process receives two sockets for clients (`c`) and one for the admin port (`a`). Then it ends,
    // or confirms with an invalid byte.
    assert_eq!(asks(b"stentor takeover 2\n"), b"cca.");
    assert_eq!(asks(b"stentor takeover 2\nx"), b"cca.");

    // The new process has another admin address, which is in use, so it fails after it has received the
    // sockets.
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = used.local_addr().unwrap().to_string();
    let mut failing = Command::new(env!("CARGO_BIN_EXE_stentor"));
    failing.args(["serve", "--listen", &place.listen, "--admin", &admin]);
    failing.env("STENTOR_SERVER_TAKEOVER_SOCKET", &place.socket).stderr(Stdio::null());
    assert_eq!(failing.status().unwrap().code(), Some(1));

    for _ in 0..50 {
        assert_eq!(place.ask(), 200);
    }
    assert!(running.0.try_wait().unwrap().is_none());
    // Afterwards, the running process hands over to a working process.
    let next = place.start("1");
    assert_drained(running);
    next.signal(Signal::TERM);
    assert_drained(next);
}

/// The new process ends after its confirmation and before it is ready. In the second case, it has already
/// bound its own takeover socket at the path.
#[test]
fn the_running_server_listens_again_if_the_new_one_ends_before_it_is_ready() {
    let place = Place::new();
    let mut running = place.start("2");
    for publishes in [false, true] {
        let mut stream = UnixStream::connect(&place.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"stentor takeover 2\n").unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"cca.");
        stream.write_all(b"!").unwrap();
        stream.read_exact(&mut answer[..1]).unwrap();
        assert_eq!(answer[0], b'!');
        // Connections to both ports wait in the accept queues, since no process accepts them.
        let waiting = [(&place.listen, "/readyz"), (&place.admin, "/healthz")].map(|(addr, target)| {
            let mut waiting = TcpStream::connect(addr).unwrap();
            waiting.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(waiting, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
            waiting
        });
        if publishes {
            std::fs::remove_file(&place.socket).unwrap();
            drop(std::os::unix::net::UnixListener::bind(&place.socket).unwrap());
        }
        drop(stream);
        for mut waiting in waiting {
            let mut answer = String::new();
            waiting.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        for _ in 0..50 {
            assert_eq!(place.ask(), 200);
        }
    }
    assert!(running.0.try_wait().unwrap().is_none());
    // The running process hasn't begun to drain. It hands over to a working process.
    let next = place.start("1");
    assert_drained(running);
    next.signal(Signal::TERM);
    assert_drained(next);
}

#[test]
fn a_server_that_drains_hands_over_and_drains_on() {
    let place = Place { drain_window: "4s", ..Place::new() };
    let mut running = place.start("2");
    // The session keeps the process running until the session's slot in the drain window.
    assert_eq!(place.ask(), 200);
    let mut admin = TcpStream::connect(&place.admin).unwrap();
    admin.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    admin.write_all(request).unwrap();
    assert!(admin.read(&mut [0; 4096]).unwrap() > 0);

    running.signal(Signal::TERM);
    while status(&place.admin, "/readyz") == 200 {}
    let next = place.start("1");
    assert_eq!(place.ask(), 200);
    // The next process has the admin API now, so the old process closes its admin connections.
    assert_eq!(admin.read(&mut [0]).unwrap(), 0);
    assert!(running.0.try_wait().unwrap().is_none(), "it drains on");
    assert_drained(running);
    drop(next);
}

#[test]
#[allow(clippy::print_stderr, reason = "prints the reason for skipping")]
fn a_process_of_another_user_gets_no_sockets() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let place = Place::new();
    let _running = place.start("1");
    open_to_everybody(&place.socket);
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); \
                  s.sendall(b'stentor takeover 2\\n'); print(len(s.recv(100)))";
    let other = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script])
        .arg(&place.socket)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&other.stdout);
    let failed = String::from_utf8_lossy(&other.stderr);
    assert!(
        said == "0\n" || failed.contains("ConnectionReset") || failed.contains("BrokenPipe"),
        "{said} {failed}"
    );
    assert_eq!(place.ask(), 200);
}

/// Makes the socket accessible to all users, so that only the check of the peer's credentials can refuse a
/// process.
fn open_to_everybody(socket: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(socket, permissions.clone()).unwrap();
    std::fs::set_permissions(socket.parent().unwrap(), permissions).unwrap();
}
