//! Requests for paths that aren't Stentor's, and an HTTP server of a worker.

use crate::rig::Rig;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use stentor_link::WorkerEntry;
use stentor_ports::{ClientConnection, Forward, ForwardedClient};
use stentor_workers::{AppOptions, ForwardOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CLIENT: ForwardedClient =
    ForwardedClient { ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), is_secure: true };
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn options() -> ForwardOptions {
    ForwardOptions {
        connections_max: 4,
        grace: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        hidden_headers: ["remote-user", "X-Proxy-Secret"].map(Box::from).into(),
    }
}

struct Stage {
    rig: Rig,
    forward: Arc<dyn Forward>,
    /// The HTTP server of a worker.
    server: TcpListener,
}

impl Stage {
    async fn new(http: ForwardOptions) -> Self {
        let rig = Rig::with(AppOptions { http: Some(http), ..AppOptions::default() });
        let (_, forward) = rig.workers.http().unwrap();
        Self { rig, forward, server: TcpListener::bind(LOCAL).await.unwrap() }
    }

    /// A worker that has this HTTP server.
    async fn start(&self) -> crate::rig::Worker {
        let mut worker = self.rig.connect("app=chat", None).await;
        let port = self.server.local_addr().unwrap().port();
        worker.hello("a", None, &format!(r#","http":{port}"#)).await;
        worker.welcome().await;
        worker
    }

    /// A client whose request has left its core. `input`: the bytes that the core has read.
    async fn client(&self, input: &str) -> TcpStream {
        let listener = TcpListener::bind(LOCAL).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, peer) = listener.accept().await.unwrap();
        let socket = socket.into_std().unwrap();
        let connection =
            ClientConnection { socket, peer, input: input.into(), is_tls: false, is_gateway: false };
        self.forward.clone().forward(connection, CLIENT);
        client
    }

    /// The next connection of the worker's HTTP server, and the headers of its request.
    async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.server.accept().await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        (stream, head)
    }
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        text.push(char::from(stream.read_u8().await.unwrap()));
    }
    text
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_request_is_passed_on_without_headers_of_the_hop() {
    let stage = Stage::new(options()).await;
    let _worker = stage.start().await;
    let request = "POST /orders?a=b HTTP/1.1\r\nHost: shop.test\r\nX-Own: 1\r\nConnection: x-hop\r\nX-Hop: 1\r\n\
        X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: evil\r\nX-Real-IP: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\
        Remote-User: eve\r\nRemote_User: eve\r\nX-Proxy-Secret: s\r\nContent-Length: 5\r\n\r\nhe";
    let mut client = stage.client(request).await;
    let (mut worker, head) = stage.accept().await;
    assert!(head.starts_with("POST /orders?a=b HTTP/1.1\r\n"), "{head}");
    let mut headers: Vec<String> =
        head.lines().skip(1).filter(|line| !line.is_empty()).map(str::to_lowercase).collect();
    headers.sort();
    let expect = [
        "content-length: 5",
        "host: shop.test",
        "x-forwarded-for: 192.0.2.7",
        "x-forwarded-proto: https",
        "x-own: 1",
    ];
    assert_eq!(headers, expect);
    client.write_all(b"llo").await.unwrap();
    assert_eq!(read_until(&mut worker, "hello").await, "hello");
    let answer =
        "HTTP/1.1 201 Created\r\nX-Own: 2\r\nKeep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n\r\n";
    worker.write_all(format!("{answer}3\r\nabc\r\n0\r\n\r\n").as_bytes()).await.unwrap();
    let answer = rest(&mut client).await.to_lowercase();
    assert!(
        answer.starts_with("http/1.1 201 created\r\n") && answer.ends_with("3\r\nabc\r\n0\r\n\r\n"),
        "{answer}"
    );
    assert!(answer.contains("connection: close\r\n") && !answer.contains("keep-alive"), "{answer}");
    assert_eq!(stage.rig.metric("link_http_requests", &[]), 1);
}

#[tokio::test]
async fn a_websocket_is_carried_in_both_directions() {
    let stage = Stage::new(options()).await;
    let _worker = stage.start().await;
    let request =
        "GET /other HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut client = stage.client(request).await;
    let (mut worker, head) = stage.accept().await;
    let head = head.to_lowercase();
    assert!(head.contains("upgrade: websocket\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
    let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi";
    worker.write_all(answer).await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.to_lowercase().contains("upgrade: websocket\r\n"),
        "{head}"
    );
    assert_eq!(read_until(&mut client, "hi").await, "hi");
    client.write_all(b"ho").await.unwrap();
    assert_eq!(read_until(&mut worker, "ho").await, "ho");
    assert_eq!(stage.rig.metric("link_http_connections", &[]), 1);
    drop(worker);
    assert_eq!(rest(&mut client).await, "");
    drop(client);
    while stage.rig.metric("link_http_connections", &[]) > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_waits_for_a_worker() {
    let stage = Stage::new(options()).await;
    let mut client = stage.client("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // A worker announces its port later, when its server listens.
    let (mut worker, _) = stage.rig.start("a").await;
    let port = stage.server.local_addr().unwrap().port();
    let config = crate::rig::json(&format!(r#"{{"asks":false,"http":{port}}}"#));
    worker.write(&[WorkerEntry::Config { config }]).await;
    let (mut server, _) = stage.accept().await;
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    assert!(rest(&mut client).await.ends_with("\r\n\r\nok"));
}

#[tokio::test]
async fn people_learn_why_no_worker_answers() {
    let stage = Stage::new(ForwardOptions { grace: Duration::ZERO, ..options() }).await;
    let ask = async || {
        let mut client = stage.client("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = rest(&mut client).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    };
    let expect = |status: &str, body: &str| (status.to_owned(), format!("{body}\n"));
    assert_eq!(ask().await, expect("503", "no worker of the application has an HTTP server now"));
    let worker = stage.start().await;
    let ended = async { drop(stage.accept().await) };
    let (answer, ()) = tokio::join!(ask(), ended);
    assert_eq!(answer, expect("502", "the application's HTTP server hasn't answered"));
    let Stage { rig, forward, server } = stage;
    let stage = Stage { rig, forward, server: TcpListener::bind(LOCAL).await.unwrap() };
    drop(server);
    let mut client = stage.client("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(rest(&mut client).await.ends_with("the application's HTTP server can't be reached\n"));
    assert_eq!(stage.rig.metric("link_http_requests_failed", &[]), 3);
    drop(worker);
}

#[tokio::test]
async fn connections_are_bounded_in_all_and_by_address() {
    let stage = Stage::new(options()).await;
    assert!(stage.forward.has_room(CLIENT));
    let before = stage.rig.held_bytes();
    let client = stage.client("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let other = ForwardedClient { ip: Ipv4Addr::new(192, 0, 2, 8).into(), ..CLIENT };
    assert!(!stage.forward.has_room(CLIENT) && stage.forward.has_room(other));
    assert!(stage.rig.held_bytes() > before);
    assert_eq!(stage.rig.metric("link_http_connections_refused", &[]), 1);
    drop(client);
    while !stage.forward.has_room(CLIENT) {
        tokio::task::yield_now().await;
    }
}
