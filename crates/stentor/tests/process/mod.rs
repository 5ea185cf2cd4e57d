//! The binary as a process, and clients of it over real sockets.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// No part of the test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is killed when the test ends.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Spawns a server, and waits for the address in its ready line.
    pub(crate) fn ready(command: &mut Command) -> (Self, String) {
        let mut running = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let addr = line.strip_prefix("ready http://").and_then(|rest| rest.strip_suffix('\n'));
        let addr = addr.unwrap_or_else(|| panic!("no ready line: {line:?}")).to_owned();
        (running, addr)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server, its addresses and its log.
pub(crate) struct Server {
    _process: Running,
    pub(crate) addr: String,
    pub(crate) admin: String,
    pub(crate) driver: String,
    log: Arc<(Mutex<String>, Condvar)>,
}

impl Server {
    /// Waits until so many lines of the log have all of these texts, and says how many have then.
    pub(crate) fn until_logged(&self, texts: &[&str], count: usize) -> usize {
        let found =
            |log: &str| log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count();
        let (log, grows) = &*self.log;
        let log = log.lock().unwrap();
        let (log, _) = grows.wait_timeout_while(log, PATIENCE, |log| found(log) < count).unwrap();
        assert!(found(&log) >= count, "{} lines with {texts:?} in:\n{log}", found(&log));
        found(&log)
    }
}

/// A server with this configuration.
pub(crate) fn start(configuration: &str) -> Server {
    start_by(Command::new(env!("CARGO_BIN_EXE_stentor")), configuration)
}

/// A server that may have so many descriptors.
pub(crate) fn start_limited(descriptors_max: u32, configuration: &str) -> Server {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -n {descriptors_max} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_stentor")]);
    start_by(shell, configuration)
}

fn start_by(mut command: Command, configuration: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("stentor.toml");
    std::fs::write(&config, configuration).unwrap();
    let mut child = command
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "2", "--config"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !(line.contains(" listening ") && line.contains(" driver=")) {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it doesn't start");
    }
    let lines = Arc::<(Mutex<String>, Condvar)>::default();
    let all = lines.clone();
    // What it says further mustn't fill the pipe.
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let (all, grows) = &*all;
            all.lock().unwrap().extend([&*line, "\n"]);
            grows.notify_all();
        }
    });
    let field = |name: &str| line.split(name).nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let driver = field(" driver=").trim_matches('"').to_owned();
    Server { _process: Running(child), addr: field(" listen="), admin: field(" admin="), driver, log: lines }
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request that ends its connection, which then holds the answer.
pub(crate) fn ask(addr: &str, method: &str, path: &str, body: &str) -> TcpStream {
    send_request(connect(addr), method, path, body)
}

/// The same from another address of this machine.
pub(crate) fn ask_from(from: &str, addr: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&addr.parse::<SocketAddr>().unwrap().into()).unwrap();
    send_request(socket.into(), method, path, body)
}

fn send_request(mut stream: TcpStream, method: &str, path: &str, body: &str) -> TcpStream {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Status and body.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (head[9..12].parse().unwrap(), body.trim_end().to_owned())
}

/// The value of a line of `/metrics`; -1 if it isn't there.
pub(crate) fn metric(admin: &str, line: &str) -> f64 {
    let (_, text) = answer(ask(admin, "GET", "/metrics", ""));
    let value = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
    value.unwrap_or(-1.0)
}

/// Waits until a line of `/metrics` has such a value.
pub(crate) fn until_metric(admin: &str, line: &str, holds: impl Fn(f64) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(metric(admin, line)) {
        assert!(Instant::now() < deadline, "{line} is {}", metric(admin, line));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A WebSocket, or a stream of events, from which pieces are read.
pub(crate) struct Subscriber {
    stream: BufReader<TcpStream>,
}

impl Subscriber {
    pub(crate) fn open(addr: &str, path: &str) -> Self {
        let mut stream = connect(addr);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Self::after_head(stream, "HTTP/1.1 101 ")
    }

    pub(crate) fn events(addr: &str, path: &str) -> Self {
        let mut stream = connect(addr);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        Self::after_head(stream, "HTTP/1.1 200 ")
    }

    fn after_head(stream: TcpStream, expect: &str) -> Self {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with(expect), "{head}");
        Self { stream }
    }

    /// A short text, with a mask of zeros (RFC 6455, section 5.3).
    pub(crate) fn say(&mut self, text: &str) {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 126);
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat();
        self.stream.get_mut().write_all(&frame).unwrap();
    }

    /// The next text message, or `close CODE`. Pings are passed over.
    pub(crate) fn hear(&mut self) -> String {
        self.try_hear().unwrap()
    }

    /// The same; nothing once the connection has ended.
    pub(crate) fn try_hear(&mut self) -> Option<String> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).ok()?;
            let mut length = usize::from(head[1]);
            assert!(length <= 126, "longer than this test's");
            if length == 126 {
                let mut long = [0; 2];
                self.stream.read_exact(&mut long).unwrap();
                length = usize::from(u16::from_be_bytes(long));
            }
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).unwrap();
            match head[0] {
                0x81 => return Some(String::from_utf8(payload).unwrap()),
                0x88 => return Some(format!("close {}", u16::from_be_bytes([payload[0], payload[1]]))),
                other => assert_eq!(other, 0x89, "a frame that nobody asked for"),
            }
        }
    }

    /// The data of the next event. In chunks of HTTP, whose lengths are passed over with all other lines.
    pub(crate) fn data(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "the stream has ended");
            if let Some(data) = line.strip_prefix("data:") {
                return data.trim().to_owned();
            }
        }
    }
}
