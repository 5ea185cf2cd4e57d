//! The user-space memory of an idle TLS connection.

#![allow(clippy::unwrap_used)] // Tests may panic; clippy knows only functions marked as such.

#[path = "harness/mod.rs"]
mod harness;

use harness::tls::{Certificates, TlsStream, client};
use harness::{Server, Ws};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

#[global_allocator]
static ALLOCATED: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

const CLIENTS: usize = 200;
/// Maximum memory of a WebSocket over TLS (a goal of the project).
const BYTES_MAX: usize = 4_500;

/// Opens connections. Drops the client's TLS state, because it is in the same process and would be counted.
fn connect(server: &Server, is_tls: bool) -> Vec<TcpStream> {
    let config = Arc::new(client(rustls::DEFAULT_VERSIONS));
    let open = |_| {
        let tcp = TcpStream::connect(if is_tls { server.addr } else { server.addrs[1] }).unwrap();
        let kept = tcp.try_clone().unwrap();
        let handshake = stentor_wire::ws::handshake::ClientHandshake::new([7; 16], false);
        let mut request = Vec::new();
        handshake.write_request(&mut request, "localhost", "/ws", &[]);
        if is_tls {
            let mut stream = TlsStream::open(tcp, config.clone(), "localhost").unwrap();
            stream.write_all(&request).unwrap();
            drop(Ws::answered(stream, Some(&handshake)).unwrap());
        } else {
            let mut stream = tcp;
            stream.write_all(&request).unwrap();
            drop(Ws::answered(stream, Some(&handshake)).unwrap());
        }
        kept
    };
    (0..CLIENTS).map(open).collect()
}

/// Opens connections. Returns the growth of the heap per connection, in bytes, and the connections.
fn growth(server: &Server, is_tls: bool) -> (usize, Vec<TcpStream>) {
    let before = (ALLOCATED.allocated(), server.metric("sessions"));
    let clients = connect(server, is_tls);
    server.until_metric("sessions", |sessions| sessions == before.1 + CLIENTS as u64);
    ((ALLOCATED.allocated() - before.0) / CLIENTS, clients)
}

#[test]
fn an_idle_connection_stays_within_its_memory() {
    let certificates = Certificates::new(&["localhost"]);
    let server = Server::on_sockets(1, |options| {
        options.tls = Some(certificates.handle());
        let address = ([127, 0, 0, 1], 0).into();
        options.listeners = vec![stentor_edge::ListenerOptions { address, ..Default::default() }];
    });
    // The first connections fill tables and caches.
    let warm = [growth(&server, true), growth(&server, false)];
    let (plain, _plain_clients) = growth(&server, false);
    let before = server.metric("memory_bytes{tls}");
    let (tls, _tls_clients) = growth(&server, true);
    let charged = (server.metric("memory_bytes{tls}") - before) as usize / CLIENTS;
    println!("plain: {plain} bytes, TLS: {tls} bytes, of which {charged} are charged for TLS");
    assert!(tls <= BYTES_MAX, "{tls} bytes");
    let difference = tls - plain;
    assert!(charged.abs_diff(difference) <= difference / 5, "{charged} bytes charged, {difference} held");
    drop(warm);
}
