//! Runs the binary as a process, with clients over real sockets.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum time of one step of a test.
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

    /// Waits until the process ends. Returns its exit code, `None` after a signal.
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

/// A running server, with its addresses and its log.
pub(crate) struct Server {
    process: Running,
    pub(crate) addr: String,
    pub(crate) admin: String,
    pub(crate) driver: String,
    log: Arc<(Mutex<String>, Condvar)>,
    reader: JoinHandle<()>,
    /// The folder of the server's configuration file, kept for reloads.
    _folder: TempDir,
}

impl Server {
    /// Waits until at least `count` lines of the log contain all of these texts. Returns their number.
    pub(crate) fn until_logged(&self, texts: &[&str], count: usize) -> usize {
        let found =
            |log: &str| log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count();
        let (log, grows) = &*self.log;
        let log = log.lock().unwrap();
        let (log, _) = grows.wait_timeout_while(log, PATIENCE, |log| found(log) < count).unwrap();
        assert!(found(&log) >= count, "{} lines with {texts:?} in:\n{log}", found(&log));
        found(&log)
    }

    /// Shuts the server down. Returns its log.
    pub(crate) fn end(mut self) -> String {
        self.process.signal(Signal::TERM);
        assert_eq!(self.process.end(), Some(0));
        self.reader.join().unwrap();
        std::mem::take(&mut self.log.0.lock().unwrap())
    }
}

/// Starts a server with this configuration.
pub(crate) fn start(configuration: &str) -> Server {
    start_by(Command::new(env!("CARGO_BIN_EXE_stentor")), configuration)
}

/// Starts a server with this limit of file descriptors.
pub(crate) fn start_limited(descriptors_max: u32, configuration: &str) -> Server {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -n {descriptors_max} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_stentor")]);
    start_by(shell, configuration)
}

pub(crate) fn start_by(mut command: Command, configuration: &str) -> Server {
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
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (mut begin, mut line) = (String::new(), String::new());
    while !(line.contains(" listening ") && line.contains(" driver=")) {
        line = lines.next().unwrap_or_else(|| panic!("it doesn't start: {begin}"));
        begin.extend([&*line, "\n"]);
    }
    let log = Arc::new((Mutex::new(begin), Condvar::new()));
    let all = log.clone();
    // Reads all later output, which would otherwise fill the pipe.
    let reader = std::thread::spawn(move || {
        for line in lines {
            let (all, grows) = &*all;
            all.lock().unwrap().extend([&*line, "\n"]);
            grows.notify_all();
        }
    });
    let field = |name: &str| line.split(name).nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let driver = field(" driver=").trim_matches('"').to_owned();
    let (addr, admin) = (field(" listen="), field(" admin="));
    Server { process: Running(child), addr, admin, driver, log, reader, _folder: dir }
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request with `Connection: close`. Returns the connection, from which the response can be read.
pub(crate) fn ask(addr: &str, method: &str, path: &str, body: &str) -> TcpStream {
    send_request(connect(addr), method, path, body)
}

/// Like [`ask`], from the address `from` of this machine.
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

/// Reads the response to its end. Returns status and body.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (head[9..12].parse().unwrap(), body.trim_end().to_owned())
}

pub(crate) fn status(addr: &str, path: &str) -> u16 {
    answer(ask(addr, "GET", path, "")).0
}

/// Sends a request that begins with these lines. Returns the complete response.
pub(crate) fn exchange(addr: &str, head: &str) -> String {
    let mut stream = connect(addr);
    write!(stream, "{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Runs an upstream. `respond` receives the headers of each request, and returns a status (with further
/// headers) and a body.
pub(crate) fn upstream<R: Into<String>>(
    respond: impl Fn(&str) -> (&'static str, R) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let respond = Arc::new(respond);
    let serve = |stream, respond: &dyn Fn(&str) -> (&'static str, R)| -> Option<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).ok().filter(|bytes| *bytes > 0)?;
            }
            let (status, body) = respond(&head);
            let body: String = body.into();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            TcpStream::write_all(reader.get_mut(), answer.as_bytes()).ok()?;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let respond = respond.clone();
            std::thread::spawn(move || serve(stream, &*respond));
        }
    });
    addr
}

pub(crate) fn metrics(admin: &str) -> String {
    let (status, text) = answer(ask(admin, "GET", "/metrics", ""));
    assert_eq!(status, 200, "{text}");
    text
}

/// Returns the value of a line of `/metrics`, or -1 if the line is missing.
fn value(metrics: &str, line: &str) -> f64 {
    metrics.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok()).unwrap_or(-1.0)
}

pub(crate) fn metric(admin: &str, line: &str) -> f64 {
    value(&metrics(admin), line)
}

/// Returns the sum of all lines of a metric, such as those of all cores.
pub(crate) fn sum(metrics: &str, name: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    let values: Vec<u64> = samples.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(!values.is_empty(), "no {name}: {metrics}");
    values.iter().sum()
}

/// Waits until `/metrics` fulfils a condition. Returns its text.
pub(crate) fn until_metrics(admin: &str, holds: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = metrics(admin);
        if holds(&text) {
            return text;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a line of `/metrics` has a value that fulfils a condition.
pub(crate) fn until_metric(admin: &str, line: &str, holds: impl Fn(f64) -> bool) {
    until_metrics(admin, |text| holds(value(text, line)));
}

/// A client with a WebSocket or an SSE stream.
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

    /// Sends a short text, with a mask of zeros (RFC 6455, section 5.3).
    pub(crate) fn send_text(&mut self, text: &str) {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 126);
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat();
        self.stream.get_mut().write_all(&frame).unwrap();
    }

    /// Returns the next text message, or `close CODE`. Skips pings.
    pub(crate) fn receive(&mut self) -> String {
        self.try_receive().unwrap()
    }

    /// Returns the next text message; `None` once the connection has ended.
    pub(crate) fn try_receive(&mut self) -> Option<String> {
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

    /// Returns the data of the next event. Skips all other lines, including the lengths of HTTP chunks.
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
