//! A core that panics is reported to the caller of the node. The library doesn't end the process.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic; clippy knows only functions marked as such.

mod harness;

use harness::Server;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use stentor_edge::{Application, Connect, Context, Envelope, Message};
use stentor_hub::SessionId;
use stentor_wire::http1::Request;

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
fn a_core_that_panics_is_reported_while_the_others_go_on() {
    let server = Server::with_app(2, Some(Arc::new(|_| Box::new(Panics))), |_| {});
    let request = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let mut stream = TcpStream::connect(server.addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let failed = server.wait_failed();
    assert_eq!(failed.to_string(), format!("core {} has panicked", failed.core));
}
