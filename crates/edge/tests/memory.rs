//! How much memory the whole process takes at its peak, where little input could ask for much. One test, so
//! that nothing else runs in this process.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::ws::frame;
use harness::{Http, Server, Ws, meet};
use std::time::Duration;
use stentor_edge::{App, Options, StaticRoute};
use stentor_wire::ws::{Deflater, Opcode};

const HOUR: Duration = Duration::from_secs(3600);
const MB: usize = 1 << 20;

/// A figure of /proc/self/status in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// The most that the process grows by while `f` runs.
fn growth(f: impl FnOnce()) -> usize {
    // 5: the peak begins anew (proc_pid_clear_refs(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    f();
    status("VmHWM:").saturating_sub(before)
}

fn patient(options: &mut Options) {
    options.heartbeat.interval = HOUR;
    options.limits.close_timeout = HOUR;
    options.limits.idle_timeout = HOUR;
}

/// Waits until the server has done all it does without us: it has read something and reads no more.
fn until_it_rests(server: &Server) {
    let mut last = (0, 0);
    loop {
        (0..20).for_each(|_| server.check_serves());
        let now = (server.metric("messages_received"), server.metric("received_bytes"));
        // Each of the requests for /healthz is 34 bytes.
        if now.0 == last.0 && now.1 == last.1 + 20 * 34 {
            return;
        }
        last = now;
    }
}

#[test]
fn little_input_never_takes_much_memory() {
    // Warm: threads, allocator, kernel's caches.
    Server::on_sockets(1, patient).check_serves();

    // 1,600 requests in one read, each for a page of 1 MB.
    let server = Server::on_sockets(1, |options| {
        patient(options);
        let body = vec![b'p'; MB].into();
        options.routes = vec![StaticRoute { path: "/".into(), content_type: "text/html".into(), body }];
    });
    let mut http = server.http();
    let peak = growth(|| {
        http.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1600));
        until_it_rests(&server);
    });
    assert!(peak < 16 * MB, "pipelined requests: {peak}");
    drop(http);
    server.check_empty();
    drop(server);

    // 64 messages in one read, each of 1 MB once inflated; an echo that nobody reads.
    let server = Server::on_sockets(1, |options| {
        patient(options);
        options.app = App::Echo;
    });
    let mut ws = Ws::open(server.addr, "/ws", &[], true).unwrap();
    let payload = Deflater::new(9).deflate(&vec![b'x'; 1_000_000], 15).to_vec();
    let burst = frame(Opcode::Binary, &payload, true, true).repeat(60);
    assert!(burst.len() < 64 * 1024);
    let peak = growth(|| {
        ws.send_raw(&burst);
        until_it_rests(&server);
    });
    assert!(peak < 24 * MB, "inflated echoes: {peak}");
    drop(ws);
    server.check_empty();
    drop(server);

    // The same to a room whose other member doesn't read.
    let server = Server::on_sockets(1, |options| {
        patient(options);
        options.app = App::Chat;
        options.limits.close_timeout = Duration::from_millis(10);
    });
    let mut clients: Vec<Ws> = (0..2).map(|_| server.ws("/ws")).collect();
    meet(&mut clients, |ws, text| ws.send_text(text), Ws::next_text);
    let mut speaker = Ws::open(server.addr, "/ws", &[], true).unwrap();
    let peak = growth(|| {
        speaker.send_raw(&burst);
        until_it_rests(&server);
    });
    assert!(peak < 40 * MB, "inflated publications: {peak}");
    drop((speaker, clients));
    server.check_empty();
    drop(server);

    // CVE-2026-48779: fragments of a byte each, on many connections.
    let server = Server::on_sockets(1, |options| {
        patient(options);
        options.app = App::Echo;
    });
    let fragments = frame(Opcode::Continuation, b"x", false, false).repeat(2000);
    let mut clients: Vec<Ws> = (0..50).map(|_| server.ws("/ws")).collect();
    let peak = growth(|| {
        for ws in &mut clients {
            ws.send_frame(Opcode::Text, b"x", false, false);
            ws.send_raw(&fragments);
        }
        until_it_rests(&server);
    });
    assert!(peak < 8 * MB, "100,000 fragments of a byte: {peak}");
    drop(clients);
    server.check_empty();
    drop(server);

    // CVE-2022-35922, CVE-2016-10542: sizes that are only declared.
    let server = Server::on_sockets(1, |options| {
        patient(options);
        options.app = App::Echo;
        options.limits.message_bytes_max = 64 * MB;
    });
    let mut clients: Vec<Ws> = (0..50).map(|_| server.ws("/ws")).collect();
    let peak = growth(|| {
        for ws in &mut clients {
            ws.send_raw(&[0x82, 0xff, 0, 0, 0, 0, 0x03, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5]);
        }
        until_it_rests(&server);
    });
    assert!(peak < 8 * MB, "declared sizes: {peak}");
    drop(clients);
    server.check_empty();
    drop(server);

    // 300 versions of a document for clients that never read.
    let server = Server::on_sockets(1, patient);
    server.document("k", "0");
    let clients: Vec<Ws> = (0..50).map(|_| server.ws("/ws/k")).collect();
    let peak = growth(|| {
        for n in 0..300 {
            server.document("k", &format!("\"{n}{}\"", "x".repeat(165_000)));
            server.until_metric("inbox_messages", |waiting| waiting == 0);
        }
    });
    assert!(peak < 24 * MB, "versions that nobody reads: {peak}");
    let frames = server.metric("memory_bytes{frames}") as usize;
    assert!(frames < 24 * MB, "{frames} bytes of frames");
    drop(clients);
    drop(server);

    // Idle connections that have had a large request each own nothing of it.
    let server = Server::on_sockets(1, patient);
    let filler = format!("X: {}\r\n", "y".repeat(15_000));
    let mut clients: Vec<Http> = Vec::new();
    let peak = growth(|| {
        for _ in 0..500 {
            let mut http = server.http();
            http.send(format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{filler}"));
            http.send("\r\n");
            assert_eq!(http.response().status, 200);
            clients.push(http);
        }
    });
    assert!(peak < 5 * MB, "idle connections: {peak}");
}
