//! Many clients request a never-fetched key at the same time: the upstream gets one request.
//!
//! `STENTOR_COLD_CLIENTS` sets the number of clients, 1,500 by default. With `--nocapture`, the test prints
//! the elapsed time. Each client needs a file descriptor in the test and one in the server.

use crate::process::{self, PATIENCE, upstream};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const CLIENTS: usize = 1500;
/// Maximum number of connections that are established at the same time.
const CONNECTING_MAX: usize = 100;

const KEY: &str = "matchesfeed/8/matchcentre";

/// Returns the request of client number `n`, and the expected start of its first response.
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
    // The API counts its requests. It responds only after `opener` is dropped.
    let (requests, (opener, open)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
    let (count, body, open) = (requests.clone(), document.clone(), Mutex::new(open));
    let api = upstream(move |head| {
        assert!(head.starts_with("GET /match/8?full=1 HTTP/1.1\r\n"));
        count.fetch_add(1, Ordering::SeqCst);
        let _ = open.lock().unwrap().recv();
        ("200 OK\r\nContent-Type: application/json", body.to_string())
    });
    let server = process::start(&format!(
        "[limits]\nrequest_timeout = \"5min\"\n\
         [[feeds]]\nname = \"centre\"\nkey = \"matchesfeed/{{id}}/matchcentre\"\n\
         url = \"http://{api}/match/{{id}}?full=1\"\npoll_interval = \"1h\"\ntimeout = \"5min\"\nread_timeout = \"5min\"\n"
    ));
    let addr: SocketAddr = server.addr.parse().unwrap();

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
                // In each protocol, only line breaks follow the document.
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
    // All clients have requested the key now, and no client can have its document yet.
    let begun = Instant::now();
    drop(opener);
    for client in all {
        tokio::time::timeout(PATIENCE, client).await.expect("the document").unwrap();
    }
    println!("{clients} clients had the document {:?} after the upstream's answer", begun.elapsed());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}
