//! Tests the peak memory of the process for small inputs that could cause large allocations. There is one test, so that
//! no other test runs in this process.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::ws::frame;
use harness::{HOUR, Http, Server, Ws, meet};
use std::time::Duration;
use stentor_edge::{App, Options, StaticRoute};
use stentor_wire::ws::{Deflater, Opcode};

const MB: usize = 1 << 20;

/// A field of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Opens clients with `open` and runs `act` on them. Checks that the process meanwhile grows by less than `most` bytes,
/// and that the server frees all resources after the clients have disconnected.
fn check<C>(
    what: &str,
    most: usize,
    set: impl FnOnce(&mut Options),
    open: impl FnOnce(&Server) -> C,
    act: impl FnOnce(&Server, &mut C),
) {
    let server = Server::on_sockets(1, |options| {
        options.heartbeat.interval = HOUR;
        options.limits.close_timeout = HOUR;
        options.limits.idle_timeout = HOUR;
        options.app = App::Echo;
        set(options);
    });
    let mut clients = open(&server);
    // 5 resets the peak (proc_pid_clear_refs(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    act(&server, &mut clients);
    let peak = status("VmHWM:").saturating_sub(before);
    assert!(peak < most, "{what}: {peak}");
    drop(clients);
    server.check_empty();
}

/// Waits until the server reads no further input of the test's clients.
fn until_it_rests(server: &Server) {
    let checks_bytes = 20 * harness::request("GET", "/healthz", "").len() as u64;
    let mut last = (0, 0);
    loop {
        (0..20).for_each(|_| server.check_serves());
        let now = (server.metric("messages_received"), server.metric("received_bytes"));
        if now.0 == last.0 && now.1 == last.1 + checks_bytes {
            return;
        }
        last = now;
    }
}

#[test]
fn little_input_never_takes_much_memory() {
    // The first run makes the memory of threads, allocator and kernel caches grow.
    check("warm", usize::MAX, |_| {}, |_| (), |server, ()| server.check_serves());

    let page = |options: &mut Options| {
        let body = vec![b'p'; MB].into();
        options.routes = vec![StaticRoute { path: "/".into(), content_type: "text/html".into(), body }];
    };
    check("1,600 requests in one read, each for 1 MB", 16 * MB, page, Server::http, |server, http| {
        http.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1600));
        until_it_rests(server);
    });

    // 60 messages in one read, each 1 MB when inflated.
    let payload = Deflater::new(9).deflate(&vec![b'x'; 1_000_000], 15).to_vec();
    let burst = frame(Opcode::Binary, &payload, true, true).repeat(60);
    assert!(burst.len() < 64 * 1024);
    let deflating = |server: &Server| Ws::open(server.addr, "/ws", &[], true).unwrap();
    check(
        "inflated messages, echoed to a client that doesn't read",
        24 * MB,
        |_| {},
        deflating,
        |server, ws| {
            ws.send_raw(&burst);
            until_it_rests(server);
        },
    );
    let chat = |options: &mut Options| {
        options.app = App::Chat;
        options.limits.close_timeout = Duration::from_millis(10);
    };
    let members = |server: &Server| {
        let mut others: Vec<Ws> = (0..2).map(|_| server.ws("/ws")).collect();
        meet(&mut others, |ws, text| ws.send_text(text), Ws::next_text);
        (deflating(server), others)
    };
    check("inflated messages to a room that doesn't read", 40 * MB, chat, members, |server, (speaker, _)| {
        speaker.send_raw(&burst);
        until_it_rests(server);
    });

    // CVE-2026-48779, on 50 connections.
    let fragments = frame(Opcode::Continuation, b"x", false, false).repeat(2000);
    let fifty = |server: &Server| -> Vec<Ws> { (0..50).map(|_| server.ws("/ws")).collect() };
    check(
        "100,000 fragments of a byte",
        8 * MB,
        |_| {},
        fifty,
        |server, clients| {
            for ws in clients {
                ws.send_frame(Opcode::Text, b"x", false, false);
                ws.send_raw(&fragments);
            }
            until_it_rests(server);
        },
    );

    // CVE-2022-35922, CVE-2016-10542.
    let large = |options: &mut Options| options.limits.message_bytes_max = 64 * MB;
    check("sizes that are only declared", 8 * MB, large, fifty, |server, clients| {
        for ws in clients {
            ws.send_raw(&[0x82, 0xff, 0, 0, 0, 0, 0x03, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5]);
        }
        until_it_rests(server);
    });

    let subscribers = |server: &Server| -> Vec<Ws> {
        server.document("k", "0");
        (0..50).map(|_| server.ws("/ws/k")).collect()
    };
    check(
        "300 versions that nobody reads",
        24 * MB,
        |_| {},
        subscribers,
        |server, _| {
            for n in 0..300 {
                server.document("k", &format!("\"{n}{}\"", "x".repeat(165_000)));
                server.until_metric("inbox_messages", |waiting| waiting == 0);
            }
            let frames = server.metric("memory_bytes{frames}") as usize;
            assert!(frames < 24 * MB, "{frames} bytes of frames");
        },
    );

    // Idle connections keep no memory of their large requests.
    let filler = format!("X: {}\r\n", "y".repeat(15_000));
    let none = |_: &Server| Vec::new();
    check(
        "idle connections",
        5 * MB,
        |_| {},
        none,
        |server, clients: &mut Vec<Http>| {
            for _ in 0..500 {
                let mut http = server.http();
                http.send(format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{filler}"));
                http.send("\r\n");
                assert_eq!(http.response().status, 200);
                clients.push(http);
            }
        },
    );
}
