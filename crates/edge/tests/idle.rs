//! Checks that a server uses no processor time while all its clients wait, in any state. There is one test, so that no
//! other test runs in this process.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::ws::frame;
use harness::{Http, PATIENCE, Server, Ws};
use std::io::Write;
use std::time::{Duration, Instant};
use stentor_edge::{App, StaticRoute};
use stentor_wire::ws::{Deflater, Opcode};

const HOUR: Duration = Duration::from_secs(3600);

/// Processor time that this process has used, in clock ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits until the process has finished its work, and checks that it then uses almost no processor time.
fn check_rests(what: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = ticks();
        std::thread::sleep(Duration::from_millis(200));
        let busy = ticks() - before;
        // One quiet interval shows that no thread spins.
        if busy <= 2 {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {busy} of 20 ticks");
    }
}

#[test]
fn waiting_clients_cost_nothing() {
    for app in [App::Echo, App::Chat] {
        let server = Server::on_sockets(3, |options| {
            options.app = app;
            options.limits.request_timeout = HOUR;
            options.limits.close_timeout = HOUR;
            options.limits.header_timeout = HOUR;
            let body = vec![b'x'; 16 << 20].into();
            options.routes =
                vec![StaticRoute { path: "/huge".into(), content_type: "text/plain".into(), body }];
        });
        check_rests("no clients");
        let idle: Vec<Ws> = (0..10).map(|_| server.ws("/ws")).collect();
        // A client with an unfinished message, and one with an unfinished request.
        let mut begun = server.ws("/ws");
        begun.send_raw(&frame(Opcode::Text, b"never", true, false)[..7]);
        let mut head = server.http();
        head.send("GET / HT");
        // Requests for missing documents, each followed by more requests than the server reads.
        let mut waiting: Vec<Http> = (0..6).map(|_| server.http()).collect();
        for (n, http) in waiting.iter_mut().enumerate() {
            http.send(format!("GET /feed/{n} HTTP/1.1\r\nHost: a\r\n\r\n"));
            http.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
        }
        // One of these clients has finished sending.
        waiting[0].finish_sending();
        // Clients that don't read their responses, and clients that don't read echoed messages, with further input
        // waiting.
        let mut unread: Vec<Http> = (0..3).map(|_| server.http()).collect();
        for http in &mut unread {
            http.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
        }
        unread[1].finish_sending();
        let mut last = server.http();
        last.send("GET /huge HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        last.finish_sending();
        let payload = Deflater::new(9).deflate(&vec![b'x'; 1_000_000], 15).to_vec();
        let mut deaf: Vec<Ws> = (0..3).map(|_| Ws::open(server.addr, "/ws", &[], true).unwrap()).collect();
        for ws in &mut deaf {
            ws.stream().tcp().set_nonblocking(true).unwrap();
            let burst = frame(Opcode::Text, &payload, true, true).repeat(50);
            let _ = ws.stream().tcp().write(&burst);
        }
        check_rests("clients that wait in all ways");
        server.drain(HOUR);
        check_rests("a node that drains");
        drop((idle, begun, head, waiting, unread, last, deaf));
        server.drain(Duration::ZERO);
        server.join();
    }
}
