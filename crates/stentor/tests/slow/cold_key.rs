//! Many clients ask at once for a key that nobody has asked for before: the upstream gets one request.
//!
//! `STENTOR_COLD_CLIENTS` says how many, 1,500 if it isn't there; with `--nocapture` the test says how long it took. Each
//! needs a descriptor here and one in the server.

use crate::process::{PATIENCE, Running};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

const CLIENTS: usize = 1500;
/// Connections that are made at once.
const CONNECTING_MAX: usize = 100;

fn start(config: &std::path::Path) -> (Running, SocketAddr) {
    let (server, addr) = Running::ready(
        Command::new(env!("CARGO_BIN_EXE_stentor"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "2", "--config"])
            .arg(config)
            .stderr(Stdio::null()),
    );
    (server, addr.parse().unwrap())
}

/// An API that counts its requests and answers none before it is let.
async fn upstream(document: Arc<str>, requests: Arc<AtomicUsize>, open: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (document, requests, mut open) = (document.clone(), requests.clone(), open.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                assert!(head.starts_with(b"GET /match/8?full=1 HTTP/1.1\r\n"));
                requests.fetch_add(1, Ordering::SeqCst);
                open.wait_for(|open| *open).await.unwrap();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    document.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(document.as_bytes()).await.unwrap();
            });
        }
    });
    addr
}

const KEY: &str = "matchesfeed/8/matchcentre";

/// What client number `n` asks, and how the first thing that it gets begins.
fn request(n: usize) -> (String, bool) {
    let fields = "host: localhost\r\n";
    match n % 3 {
        0 => (
            format!(
                "GET /ws/{KEY} HTTP/1.1\r\n{fields}connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                 sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            ),
            true,
        ),
        1 => (format!("GET /sse/{KEY} HTTP/1.1\r\n{fields}accept: text/event-stream\r\n\r\n"), false),
        _ => (format!("GET /feed/{KEY} HTTP/1.1\r\n{fields}\r\n"), false),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_request_serves_all_subscribers_of_a_cold_key() {
    let clients = std::env::var("STENTOR_COLD_CLIENTS").ok().map_or(CLIENTS, |text| text.parse().unwrap());
    let document: Arc<str> = format!("{{\"id\":8,\"text\":\"{}\"}}", "x".repeat(5000)).into();
    let (requests, (opener, open)) = (Arc::new(AtomicUsize::new(0)), watch::channel(false));
    let api = upstream(document.clone(), requests.clone(), open).await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("stentor.toml");
    let text = format!(
        "[limits]\nrequest_timeout = \"5min\"\n\
         [[feeds]]\nname = \"centre\"\nkey = \"matchesfeed/{{id}}/matchcentre\"\n\
         url = \"http://{api}/match/{{id}}?full=1\"\npoll_interval = \"1h\"\ntimeout = \"5min\"\nread_timeout = \"5min\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let (_server, addr) = start(&config);

    let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
    let asked = Arc::new(Semaphore::new(0));
    let all: Vec<_> = (0..clients)
        .map(|n| {
            let (connecting, asked, document, addr) =
                (connecting.clone(), asked.clone(), document.clone(), addr);
            tokio::spawn(async move {
                let (request, has_handshake) = request(n);
                let place = connecting.acquire().await.unwrap();
                let mut stream = TcpStream::connect(addr).await.unwrap();
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut text = Vec::with_capacity(8192);
                while has_handshake && !text.ends_with(b"\r\n\r\n") {
                    text.push(stream.read_u8().await.unwrap());
                }
                drop(place);
                asked.add_permits(1);
                // Whatever the protocol, the document is the last thing in it but for line breaks.
                let is_whole = |text: &[u8]| text.trim_ascii_end().ends_with(document.as_bytes());
                while !is_whole(&text) {
                    let bytes = stream.read_buf(&mut text).await.unwrap();
                    assert_ne!(bytes, 0, "{}", String::from_utf8_lossy(&text));
                }
            })
        })
        .collect();
    let every = u32::try_from(clients).unwrap();
    let _all_asked =
        tokio::time::timeout(PATIENCE, asked.acquire_many(every)).await.expect("all to ask").unwrap();
    // The key is wanted by then; nobody can have it yet.
    let begun = Instant::now();
    opener.send(true).unwrap();
    for client in all {
        tokio::time::timeout(PATIENCE, client).await.expect("the document").unwrap();
    }
    println!("{clients} clients had the document {:?} after the upstream's answer", begun.elapsed());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}
