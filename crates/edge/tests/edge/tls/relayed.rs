//! Connections for another node, whose TLS stays here.

use super::{open, with_tls};
use crate::harness::tls::{TlsStream, client};
use crate::harness::{PATIENCE, Server, read, until};
use rustls::DEFAULT_VERSIONS;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use stentor_ports::{
    ClientConnection, Done, Drain, Handover, Location, NodeTag, Relay, RelayPermit, SessionName,
};

/// A relay for which all sessions are on another node. The test acts as that node.
#[derive(Debug)]
struct Elsewhere(Mutex<mpsc::Sender<(ClientConnection, RelayPermit)>>);

impl Relay for Elsewhere {
    fn reaches(&self, _: NodeTag) -> bool {
        true
    }

    fn relay(&self, _: NodeTag, connection: ClientConnection, permit: RelayPermit) {
        self.0.lock().unwrap().send((connection, permit)).unwrap();
    }

    fn find(&self, node: NodeTag, done: Done<Location>) {
        done.answer(Ok(Location::Node(node)));
    }

    fn locate(&self, _: SessionName<'_>, _: bool, done: Done<Location>) {
        done.answer(Ok(Location::Node(NodeTag(2))));
    }
}

const REQUEST: &[u8] = b"POST /sockjs/000/abc/xhr HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

type Relayed = mpsc::Receiver<(ClientConnection, RelayPermit)>;

fn relaying_server() -> (Server, Relayed) {
    let (relayed, connections) = mpsc::channel();
    let set = with_tls(|options| {
        options.node_tag = Some(NodeTag(1));
        options.relay = Some(Arc::new(Elsewhere(Mutex::new(relayed))));
    });
    (Server::on_sockets(1, set), connections)
}

/// Sends a request. Returns the client's side of the connection, and the connection that the other node receives.
fn relayed(server: &Server, connections: &Relayed) -> (TlsStream, ClientConnection, RelayPermit) {
    let mut stream = open(server.addr, client(DEFAULT_VERSIONS));
    stream.write_all(REQUEST).unwrap();
    let (connection, permit) = connections.recv_timeout(PATIENCE).unwrap();
    assert_eq!((&connection.input[..], connection.is_tls), (REQUEST, true));
    (stream, connection, permit)
}

/// The TLS keys stay on this node, so the other node receives plaintext.
#[test]
fn a_connection_for_another_node_keeps_its_tls_here() {
    const BODY_BYTES: usize = 3_000_000;
    let (server, connections) = relaying_server();
    let request = || {
        let (stream, connection, permit) = relayed(&server, &connections);
        connection.socket.set_nonblocking(false).unwrap();
        (stream, connection, permit)
    };
    // More bytes than the sockets hold, in both directions.
    let (mut stream, connection, _permit) = request();
    let other_node = std::thread::spawn(move || {
        let mut socket = connection.socket;
        let mut upload = vec![0; BODY_BYTES];
        socket.read_exact(&mut upload).unwrap();
        assert!(upload.iter().all(|byte| *byte == b'u'));
        write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n").unwrap();
        socket.write_all(&vec![b'd'; BODY_BYTES]).unwrap();
    });
    stream.write_all(&vec![b'u'; BODY_BYTES]).unwrap();
    let mut answer = Vec::new();
    // The client receives close_notify, although the other node only closes.
    rustls::Stream::new(&mut stream.session, &mut stream.stream).read_to_end(&mut answer).unwrap();
    other_node.join().unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(&[b'd'; BODY_BYTES]));
    // When a client disconnects, the other node's connection ends.
    let (stream, mut connection, _permit) = request();
    drop(stream);
    assert_eq!(read(&mut connection.socket, &mut [0]).unwrap(), 0);
    drop(connection);
    // This node serves a connection that the other node returns.
    let (mut stream, connection, _permit) = request();
    connection.socket.set_nonblocking(true).unwrap();
    server.plane().adopt(connection, Handover::Returned);
    let mut answer = [0; 1024];
    let bytes = read(&mut stream, &mut answer).unwrap();
    assert!(answer[..bytes].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer[..bytes]));
    drop(stream);
    server.until_metric("memory_bytes{tls}", |bytes| bytes == 0);
    server.until_metric("connections", |connections| connections == 0);
}

/// The clients' sessions stay on the other node, and the clients can reconnect to it directly.
#[test]
fn connections_for_another_node_end_evenly_when_this_one_drains() {
    let (server, connections) = relaying_server();
    let mut clients: Vec<_> = (0..20).map(|_| relayed(&server, &connections)).collect();
    let (hour, window) = (Duration::from_secs(3600), Duration::from_secs(20));
    server.plane().drain(Drain { delay: Duration::ZERO, window, timeout: hour, ..Drain::default() });
    // One connection ends per second.
    let mut open = 20;
    until("the first one to end", || {
        let sockets = clients.iter_mut().map(|(_, connection, _)| &mut connection.socket);
        open = sockets.filter_map(|socket| socket.read(&mut [0]).err()).count();
        open < 20
    });
    assert!(open > 10, "many end at once");
    // A second drain cuts the window short.
    server.drain(Duration::from_secs(1));
    for (stream, connection, _permit) in &mut clients {
        // The stream ends with a close_notify. Otherwise, rustls would return an error.
        rustls::Stream::new(&mut stream.session, &mut stream.stream).read_to_end(&mut Vec::new()).unwrap();
        connection.socket.set_nonblocking(false).unwrap();
        assert_eq!(read(&mut connection.socket, &mut [0]).unwrap(), 0);
    }
    drop(clients);
    server.join();
}
