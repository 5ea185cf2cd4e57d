//! A core that panics ends the process, so that nobody is left with a server of which a part answers.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::{PATIENCE, Server};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use stentor_edge::{Application, Connect, Context, Envelope, Message};
use stentor_hub::SessionId;
use stentor_wire::http1::Request;

/// Set in the process that is to end.
const ENDS: &str = "STENTOR_TEST_ENDS";

struct Panics;

impl Application for Panics {
    fn connect(&mut self, _: &mut Context<'_>, _: &Request<'_>) -> Connect {
        panic!("on purpose")
    }
    fn opened(&mut self, _: &mut Context<'_>, _: SessionId, _: Envelope) {}
    fn message(&mut self, _: &mut Context<'_>, _: SessionId, _: Message<'_>) {}
    fn closed(&mut self, _: &mut Context<'_>, _: SessionId) {}
    fn timer(&mut self, _: &mut Context<'_>, _: u64) {}
}

#[test]
fn a_core_that_panics_ends_the_process() {
    if std::env::var_os(ENDS).is_some() {
        return end();
    }
    let name = "a_core_that_panics_ends_the_process";
    let said = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ENDS, "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(101), "{stderr}");
    // A failing test has that code, too.
    assert!(stderr.contains("thread 'core-") && stderr.contains("on purpose"), "{stderr}");
}

/// Leaves with another code than a panic if nothing else ends the process.
fn end() {
    let server = Server::with_app(2, Some(Arc::new(|_| Box::new(Panics))), |_| {});
    let request = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let asked = TcpStream::connect(server.addr)
        .and_then(|mut stream| stream.write_all(request.as_bytes()).map(|()| stream));
    if asked.is_ok() {
        std::thread::park_timeout(PATIENCE);
    }
    std::process::exit(3);
}
