//! A gate on counts, which a busy machine doesn't change. Each count is the server's work for a scripted trace,
//! compared with the count in `counts.toml`. No time is measured.
//!
//! - **instructions** per connection and per delivery, counted by valgrind's cachegrind (virtual machines often have no
//!   hardware counters). Each is the difference of two runs, one with more of it, so start and end cancel out. The counts
//!   repeat to less than a percent, also in an unoptimised build, which `cargo test` has. They don't show the speed of a
//!   release, but they show a loop too many.
//! - **system calls** per delivery, counted by strace.
//! - **private bytes** per idle connection, user space.
//!
//! A trace is in lock-step: the next message is sent when all clients have the last one, so no messages are merged.
//! Counts whose tool is missing are skipped with a message. `STENTOR_COUNTS=update` writes the baseline again. The
//! commit must explain the change.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::fakes::stentor;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use stentor_lab::measure::{CallCounter, ProcessMemory, Server, ServerCommand};

const CLIENTS: usize = 20;
const PAYLOAD: [u8; 100] = [b'x'; 100];
/// Number of connections whose memory is counted. With this number, neither pages matter nor the reserve of an
/// allocator, which varies by a megabyte.
const IDLE: usize = 12_000;
/// Maximum number of counts. Other activity on a machine only adds to a count, so the smallest of several is the most
/// accurate, both for a figure and for the part that is subtracted. More counts are taken only if needed.
const TRIES: usize = 6;

/// A figure in the baseline, and the share by which a new figure may exceed it. A smaller figure passes, but the
/// baseline should follow.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Count {
    count: f64,
    tolerance: f64,
}

fn baseline() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/counts.toml")
}

/// Compares a figure with the baseline, or writes it there. The figure is the second count minus the first one, divided
/// by `per`. Counts that don't grow are no figure: they are taken again, and in the end fail the test.
fn judge(name: &str, tolerance: f64, per: usize, before_and_after: impl Fn() -> (f64, f64)) {
    static WRITING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let known = || {
        let text = fs::read_to_string(baseline()).unwrap_or_default();
        let known: BTreeMap<String, Count> = toml::from_str(&text).unwrap();
        (text, known)
    };
    let mut least = (f64::INFINITY, f64::INFINITY);
    let mut count_again = || {
        let (before, after) = before_and_after();
        if after > before {
            least = (least.0.min(before), least.1.min(after));
        } else {
            eprintln!("{name}: left out, the count fell from {before} to {after}");
        }
        if least.1.is_finite() { (least.1 - least.0) / per as f64 } else { f64::INFINITY }
    };
    if std::env::var("STENTOR_COUNTS").is_ok_and(|what| what == "update") {
        let mut count = count_again();
        for _ in 1..TRIES {
            count = count_again();
        }
        assert!(count.is_finite(), "{name}: all counts fell");
        let _one_at_a_time = WRITING.lock().unwrap();
        let (text, mut known) = known();
        let comments = text.lines().take_while(|line| line.starts_with('#') || line.is_empty());
        let comments: String = comments.map(|line| format!("{line}\n")).collect();
        known.insert(name.to_owned(), Count { count: (count * 100.0).round() / 100.0, tolerance });
        fs::write(baseline(), comments + &toml::to_string(&known).unwrap()).unwrap();
        return;
    }
    let (_, mut known) = known();
    let was = known.remove(name).unwrap_or_else(|| panic!("{name} isn't in {}", baseline().display()));
    let most = was.count * (1.0 + was.tolerance);
    let mut count = count_again();
    for _ in 1..TRIES {
        if count <= most {
            break;
        }
        count = count_again();
    }
    let change = (count / was.count - 1.0) * 100.0;
    eprintln!("{name}: {count:.2}, {change:+.1} % of {:.2}", was.count);
    assert!(
        count <= most,
        "{name}: {count:.2} instead of {:.2}: {change:+.1} %, of which {:.0} % are let pass",
        was.count,
        was.tolerance * 100.0
    );
}

fn is_installed(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: {tool} isn't installed, or doesn't run");
    }
    there
}

/// Starts Stentor with the `chat` application. `words` is the command that precedes the server's arguments.
fn start(words: &[&str]) -> Server {
    let serve =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "1", "--app", "chat"];
    let words: Vec<&str> = words.iter().copied().chain(serve).chain(["--driver", "epoll"]).collect();
    Server::start(&ServerCommand {
        name: "stentor".into(),
        program: words[0].into(),
        args: words[1..].iter().map(|word| (*word).to_owned()).collect(),
        core: None,
    })
    .unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    stream
}

/// Each client in turn publishes `messages` messages. All clients receive each message before the next one is sent.
fn publish(clients: &mut [TcpStream], messages: usize) {
    let head = [0x81, 0x80 | PAYLOAD.len() as u8, 0, 0, 0, 0];
    let frame = [&head[..], &PAYLOAD].concat();
    for nth in 0..messages {
        let sender = nth % clients.len();
        clients[sender].write_all(&frame).unwrap();
        for client in &mut *clients {
            let mut received = [0; PAYLOAD.len() + 2];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received[2..], PAYLOAD);
        }
    }
}

/// Number of instructions of a server's whole run: `passers_by` clients come and go, and `messages` messages are
/// published to the others.
fn instructions(stentor: &Path, passers_by: usize, messages: usize) -> f64 {
    let log =
        std::env::temp_dir().join(format!("stentor-counts-{}-{passers_by}-{messages}", std::process::id()));
    let log_file = format!("--log-file={}", log.display());
    let counted = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];
    let words = [&["valgrind"], &counted[..], &[&log_file, stentor.to_str().unwrap()]].concat();
    let server = start(&words);
    for _ in 0..passers_by {
        drop(connect(server.address()));
    }
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(server.address())).collect();
    publish(&mut clients, messages);
    drop(clients);
    server.stop().unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let _ = fs::remove_file(&log);
    let line = text.lines().find(|line| line.contains("I   refs:")).unwrap_or_else(|| panic!("{text}"));
    line.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn instructions_per_connection_and_delivery() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("skipped: the baseline is of x86-64");
        return;
    }
    let Some(stentor) = stentor() else { return };
    if !is_installed("valgrind") {
        return;
    }
    let both = |less: (usize, usize), more: (usize, usize)| {
        let run = |(passers_by, messages)| {
            let stentor = stentor.clone();
            thread::spawn(move || instructions(&stentor, passers_by, messages))
        };
        let (less, more) = (run(less), run(more));
        (less.join().unwrap(), more.join().unwrap())
    };
    judge("instructions_per_delivery", 0.05, 100 * CLIENTS, || both((10, 20), (10, 120)));
    judge("instructions_per_connection", 0.10, 50, || both((10, 20), (60, 20)));
}

#[test]
fn calls_per_delivery() {
    let Some(stentor) = stentor() else { return };
    if CallCounter::attach(&[start(&[stentor.to_str().unwrap()]).pid()]).is_err() {
        eprintln!("skipped: strace isn't installed, or may not trace");
        return;
    }
    let messages = 50;
    judge("calls_per_delivery", 0.05, messages * CLIENTS, || {
        let server = start(&[stentor.to_str().unwrap()]);
        let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(server.address())).collect();
        publish(&mut clients, CLIENTS);
        let counter = CallCounter::attach(&[server.pid()]).unwrap();
        publish(&mut clients, messages);
        let calls: u64 = counter.stop().unwrap().by_name.values().sum();
        (0.0, calls as f64)
    });
}

#[test]
fn bytes_per_idle_connection() {
    let Some(stentor) = stentor() else { return };
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    if getrlimit(Resource::Nofile).current.is_some_and(|most| most < 3 * IDLE as u64 / 2) {
        eprintln!("skipped: too few descriptors are allowed");
        return;
    }
    judge("bytes_per_connection", 0.25, IDLE, || {
        // Connecting all clients may take so long that pings would find them dead.
        let server = start(&["env", "STENTOR_HEARTBEAT_INTERVAL=1h", stentor.to_str().unwrap()]);
        let private = || ProcessMemory::of_process(server.pid()).unwrap().private_bytes as f64;
        // These connections let the server allocate the memory that it needs only once.
        let mut clients: Vec<TcpStream> = (0..IDLE / 10).map(|_| connect(server.address())).collect();
        let before = private();
        clients.extend((0..IDLE).map(|_| connect(server.address())));
        (before, private())
    });
}
