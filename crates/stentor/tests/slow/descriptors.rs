//! Tests a server whose file descriptors or connections are used up by an attacker's silent connections.

use crate::process::{PATIENCE, Server, Subscriber, metrics, start_limited, sum, upstream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of connections that the attacker holds.
const HELD: usize = 600;
/// Number of rounds of requests during the attack, one to each port.
const ROUNDS: usize = 20;
/// Maximum of the median response time. On an idle machine, it is 100 ms.
const HALF_WITHIN: Duration = Duration::from_secs(2);

fn metric(server: &Server, name: &str) -> u64 {
    sum(&metrics(&server.admin), name)
}

/// Returns the status of a request. Repeats the request if the server evicts the connection before it has
/// received the request.
fn status(addr: &str) -> u16 {
    let request = || {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        line.get(9..12).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::UnexpectedEof.into())
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match request() {
            Ok(status) => return status,
            Err::<u16, std::io::Error>(error) => assert!(Instant::now() < until, "no answer: {error}"),
        }
    }
}

/// Opens connections and sends nothing. At [`HELD`] connections, closes the oldest one for each new one.
fn attack(addr: &str, ends: &AtomicBool) {
    let mut held = VecDeque::new();
    while !ends.load(Ordering::Relaxed) {
        if let Ok(stream) = TcpStream::connect(addr) {
            held.push_back(stream);
        }
        if held.len() > HELD {
            held.pop_front();
        }
    }
}

/// Ends the attack when dropped, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Checks that clients are served during the attack. `evicts` is `true` if the server can accept them only by
/// evicting connections.
fn check(driver: &str, descriptors_max: u32, connections_max: usize, evicts: bool) {
    // The upstream returns a different document each time.
    let version = AtomicU64::new(0);
    let api = upstream(move |_| ("200 OK", version.fetch_add(1, Ordering::Relaxed).to_string()));
    let server = start_limited(
        descriptors_max,
        &format!(
            "[server]\ndriver = \"{driver}\"\n[limits]\nconnections_max = {connections_max}\n\
             [[feeds]]\nname = \"n\"\nprefix = \"n/\"\nurl = \"http://{api}\"\npoll_interval = \"100ms\"\n"
        ),
    );
    let mut running = Subscriber::events(&server.addr, "/sse/n/1");
    running.data();
    let ends = AtomicBool::new(false);
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| attack(&server.addr, &ends));
        let _ends = Ends(&ends);
        let begun = Instant::now();
        while evicts && metric(&server, "stentor_connections_evicted_total") == 0 {
            assert!(begun.elapsed() < PATIENCE, "{driver}: nothing is evicted");
        }
        let mut timed = |work: &mut dyn FnMut()| {
            let begun = Instant::now();
            work();
            took.push(begun.elapsed());
        };
        for _ in 0..ROUNDS {
            for addr in [&server.addr, &server.admin] {
                timed(&mut || assert_eq!(status(addr), 200));
            }
            running.data();
        }
    });
    took.sort();
    let (half, most) = (took[took.len() / 2], took[took.len() - 1]);
    eprintln!("{driver}, {descriptors_max} descriptors: half within {half:?}, all within {most:?}");
    assert!(half < HALF_WITHIN, "{driver}: {took:?}");
    assert_eq!(metric(&server, "stentor_connections_evicted_total") > 0, evicts);
    let open = metric(&server, "process_open_fds");
    assert!(open < descriptors_max.into(), "{open}");
}

#[test]
fn silent_connections_are_evicted_for_active_ones() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    check("epoll", 300, 1_000_000, true);
    check("epoll", 4096, 300, true);
    // Without io_uring on this machine, `auto` is epoll again.
    check("auto", 4096, 300, true);
}

/// With io_uring, connections use direct descriptors, which don't count towards the limit of file
/// descriptors.
#[test]
fn io_uring_evicts_no_connection() {
    let server = start_limited(300, "[server]\ndriver = \"auto\"\n");
    if server.driver != "io_uring" {
        return;
    }
    let clients: Vec<_> = (0..500).map(|_| Subscriber::open(&server.addr, "/ws")).collect();
    let evicts_none = metric(&server, "stentor_connections_evicted_total");
    assert_eq!((clients.len(), evicts_none), (500, 0));
}
