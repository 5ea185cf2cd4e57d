//! Measures the heap memory of idle clients of SockJS, SSE and Primus. There is one test, so that no other test runs in
//! this process, because memory is measured per process.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use cap::Cap;
use harness::{Http, Server, Ws};
use std::net::TcpStream;
use std::time::Duration;
use stentor_edge::Options;

const HOUR: Duration = Duration::from_secs(3600);
const CLIENTS: usize = 4_000;

/// The server's allocator, counted. The resident set is no measure: it consists of pages, and the kernel decides how many
/// stay.
#[global_allocator]
static ALLOCATOR: Cap<mimalloc::MiMalloc> = Cap::new(mimalloc::MiMalloc, usize::MAX);

fn patient(options: &mut Options) {
    options.heartbeat.interval = HOUR;
    options.limits.idle_timeout = HOUR;
    options.sockjs[0].heartbeat = HOUR;
}

/// Checks the heap memory per idle client, in bytes. The client's own side is only a file descriptor. Each client
/// receives its first messages before the next one connects, so the result is the same on a busy machine. The maxima
/// are about 10 % above the results.
fn check(what: &str, bytes_max: usize, client: impl Fn(&Server, usize) -> TcpStream) {
    let server = Server::on_sockets(1, patient);
    server.document("k", "1");
    // The first clients make tables and buffers grow.
    let warm: Vec<TcpStream> = (0..100).map(|n| client(&server, n)).collect();
    let mut clients = Vec::with_capacity(CLIENTS);
    let before = ALLOCATOR.allocated();
    clients.extend((100..100 + CLIENTS).map(|n| client(&server, n)));
    let bytes = ALLOCATOR.allocated().saturating_sub(before) / CLIENTS;
    assert!(bytes <= bytes_max, "{what}: {bytes} bytes");
    drop((warm, clients));
}

/// Sends a request, and reads the headers and the first chunks of its response.
fn begun(server: &Server, request: String, chunks: usize) -> TcpStream {
    let mut http = Http::connect(server.addr);
    http.send(request);
    http.stream_head();
    (0..chunks).for_each(|_| drop(http.next_chunk()));
    http.into_stream().into_tcp()
}

#[test]
fn idle_clients() {
    // Measured: 327 bytes on epoll, 344 on io_uring. The comments below have the same two numbers.
    check("a SockJS session on a WebSocket, subscribed", 384, |server, n| {
        let mut ws = Ws::open(server.addr, &format!("/sockjs/feed/k/0/{n}/websocket"), &[], false).unwrap();
        assert_eq!((ws.next_text(), ws.next_text()), ("o".into(), r#"a["1"]"#.into()));
        ws.stream().tcp().try_clone().unwrap()
    });
    // 567, 584.
    check("a client of Server-Sent Events", 640, |server, _| {
        begun(server, "GET /sse/k HTTP/1.1\r\nHost: a\r\n\r\n".into(), 2)
    });
    // 327, 344.
    check("a client of Primus", 384, |server, _| {
        let mut ws = Ws::open(server.addr, "/primus/?feed=k&format=raw", &[], false).unwrap();
        assert_eq!(ws.next_text(), "1");
        ws.stream().tcp().try_clone().unwrap()
    });
    // 909, 925.
    check("a SockJS session on a stream", 1_024, |server, n| {
        let target = format!("/sockjs/feed/k/0/{n}/eventsource");
        begun(server, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 3)
    });
}
