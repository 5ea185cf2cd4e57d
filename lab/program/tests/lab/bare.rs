//! The bare loop without file descriptors, if it is installed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use stentor_lab::measure::{Server, ServerCommand};

/// A WebSocket after its handshake.
fn open(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    stream
}

/// Number of sockets in the table of each ring of a process.
fn sockets_by_ring(pid: u32) -> Vec<usize> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let infos = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    infos.filter(|info| info.contains("UserFiles:")).map(|info| info.matches("socket:[").count()).collect()
}

/// A broadcast then finds the sockets in the order in which the kernel made them.
#[test]
fn connections_fill_one_ring_after_the_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/bare");
    let program = folder.join("build/bare");
    if !program.exists() {
        eprintln!("skipped: the bare loop isn't installed");
        return;
    }
    // The program may be of an earlier source.
    assert!(Command::new(folder.join("install")).status().unwrap().success());
    let args = "--mode chat --port 0 --io direct --rings 3".split(' ').map(str::to_owned).collect();
    let command = ServerCommand { name: "bare-direct".to_owned(), program, args, core: None };
    let server = Server::start(&command).unwrap();
    let clients: Vec<TcpStream> = (0..12).map(|_| open(&server)).collect();
    let mut held = sockets_by_ring(server.pid());
    held.sort_unstable();
    assert_eq!(held, [0, 0, clients.len()]);
    server.stop().unwrap();
}
