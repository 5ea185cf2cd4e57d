//! Keys that are only pushed (`[[feeds]] push = true`), through the binary: who comes first waits, over every transport,
//! and gets what a backend then pushes to the admin port. The rules are those of docs/feeds.md, "Pushing".

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No part of the test takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed when the test ends.
struct Server {
    child: Child,
    addr: String,
    admin: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FEEDS: &str = "[[feeds]]\nname = \"live\"\nkey = \"live/{id}\"\npush = true\n\
                     [[feeds]]\nname = \"api\"\nprefix = \"api/\"\nurl = \"http://127.0.0.1:9\"\n";

fn start(wait_time_max: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("stentor.toml");
    std::fs::write(&config, format!("[limits]\nwait_time_max = \"{wait_time_max}\"\n{FEEDS}")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stentor"))
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "2", "--config"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" listening ") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it doesn't start");
    }
    // What it says further mustn't fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let field = |name: &str| line.split(name).nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    Server { child, addr: field(" listen="), admin: field(" admin=") }
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request that ends its connection, which then holds the answer.
fn ask(addr: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = connect(addr);
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Status and body.
fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (head[9..12].parse().unwrap(), body.trim_end().to_owned())
}

/// A WebSocket, or a stream of events, from which pieces are read.
struct Subscriber {
    stream: BufReader<TcpStream>,
}

impl Subscriber {
    fn open(addr: &str, path: &str) -> Self {
        let mut stream = connect(addr);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Self::after_head(stream, "HTTP/1.1 101 ")
    }

    fn events(addr: &str, path: &str) -> Self {
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
    fn say(&mut self, text: &str) {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 126);
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat();
        self.stream.get_mut().write_all(&frame).unwrap();
    }

    /// The next text message, or `close CODE`. Pings are passed over.
    fn hear(&mut self) -> String {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).unwrap();
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
                0x81 => return String::from_utf8(payload).unwrap(),
                0x88 => return format!("close {}", u16::from_be_bytes([payload[0], payload[1]])),
                other => assert_eq!(other, 0x89, "a frame that nobody asked for"),
            }
        }
    }

    /// The data of the next event. In chunks of HTTP, whose lengths are passed over with all other lines.
    fn data(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "the stream has ended");
            if let Some(data) = line.strip_prefix("data:") {
                return data.trim().to_owned();
            }
        }
    }
}

fn push(server: &Server, key: &str, document: &str) -> (u16, String) {
    answer(ask(&server.admin, "PUT", &format!("/api/v1/feeds/{key}"), document))
}

/// Until all who were told that a key is lost have gone. Who asks for it before that is told the same once more.
fn until_nobody_is_subscribed(server: &Server) {
    let begun = Instant::now();
    loop {
        let (_, metrics) = answer(ask(&server.admin, "GET", "/metrics", ""));
        let topics: Vec<_> = metrics.lines().filter(|line| line.starts_with("stentor_topics{")).collect();
        assert!(!topics.is_empty(), "{metrics}");
        if topics.iter().all(|line| line.ends_with(" 0")) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{topics:?}");
        std::thread::yield_now();
    }
}

#[test]
fn who_comes_first_waits_for_what_is_pushed() {
    let server = start("5min");
    let mut client = Subscriber::open(&server.addr, "/ws");
    assert!(client.hear().starts_with("{\"type\":\"welcome\","));
    client.say(r#"{"id":1,"type":"subscribe","feed":"live/1"}"#);
    assert_eq!(client.hear(), r#"{"type":"ok","id":1}"#);
    // A key that nobody fetches and that isn't configured to be pushed.
    client.say(r#"{"id":2,"type":"subscribe","feed":"other/1"}"#);
    assert_eq!(client.hear(), r#"{"type":"ok","id":2}"#);
    let lost = client.hear();
    assert!(lost.starts_with(r#"{"type":"state","feed":"other/1","state":"lost","#), "{lost}");
    assert_eq!(answer(ask(&server.addr, "GET", "/feed/other/1", "")).0, 404);
    assert_eq!(Subscriber::open(&server.addr, "/ws/other/1").hear(), "close 4404");

    let mut raw = Subscriber::open(&server.addr, "/ws/live/1");
    let mut events = Subscriber::events(&server.addr, "/sse/live/1");
    let get = ask(&server.addr, "GET", "/feed/live/1", "");
    assert_eq!(push(&server, "live/1", r#"{ "minute": 1 }"#), (200, r#"{"changed":true}"#.into()));
    // What was heard last was of the other key: nothing of this one came before its document.
    let snapshot = client.hear();
    assert!(snapshot.starts_with(r#"{"type":"snapshot","feed":"live/1","#), "{snapshot}");
    assert!(snapshot.ends_with(r#""state":"live","data":{"minute":1}}"#), "{snapshot}");
    assert_eq!(raw.hear(), r#"{"minute":1}"#);
    assert!(events.data().contains(r#"{"minute":1}"#));
    assert_eq!(answer(get), (200, r#"{"minute":1}"#.into()));

    // The same value is no version, another is one.
    assert_eq!(push(&server, "live/1", r#"{"minute":1.0}"#), (200, r#"{"changed":false}"#.into()));
    assert_eq!(push(&server, "live/1", r#"{"minute":2}"#), (200, r#"{"changed":true}"#.into()));
    let newer = client.hear();
    assert!(newer.contains(r#""offset":2"#) && newer.contains('2'), "{newer}");
    assert_eq!(raw.hear(), r#"{"minute":2}"#);
    assert!(events.data().contains(r#"{"minute":2}"#));

    // What it is lost for lets everybody go; who comes after that waits again.
    assert_eq!(answer(ask(&server.admin, "DELETE", "/api/v1/feeds/live/1", "")).0, 200);
    let lost = client.hear();
    assert!(lost.starts_with(r#"{"type":"state","feed":"live/1","state":"lost","#), "{lost}");
    assert_eq!(raw.hear(), "close 4404");
    until_nobody_is_subscribed(&server);
    client.say(r#"{"id":3,"type":"subscribe","feed":"live/1"}"#);
    assert_eq!(client.hear(), r#"{"type":"ok","id":3}"#);
    assert_eq!(push(&server, "live/1", r#"{"minute":3}"#), (200, r#"{"changed":true}"#.into()));
    let again = client.hear();
    assert!(again.ends_with(r#""state":"live","data":{"minute":3}}"#), "{again}");

    // What is fetched can't be pushed; what is in no `[[feeds]]` can.
    let refused = push(&server, "api/1", "1");
    assert!(refused.0 == 409 && refused.1.starts_with(r#"{"code":"fetched","#), "{refused:?}");
    assert_eq!(push(&server, "other/1", "1"), (200, r#"{"changed":true}"#.into()));
    assert_eq!(answer(ask(&server.addr, "GET", "/feed/other/1", "")), (200, "1".into()));
}

#[test]
fn a_get_waits_so_long_and_no_longer() {
    let server = start("100ms");
    assert_eq!(answer(ask(&server.addr, "GET", "/feed/live/1", "")).0, 504);
}
