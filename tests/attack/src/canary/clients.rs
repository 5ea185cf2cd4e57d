//! One client per protocol. Each subscribes and passes all received bytes to the board until the server ends
//! its session.

use super::{Board, FEED, ROOM};
use crate::http::{Http, WebSocket};
use crate::wire;
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// The name of each client, and `true` if it may skip versions. In the order of [`live`].
pub(super) const ALL: [(&str, bool); 9] = [
    ("stentor.v1 over WebSocket", false),
    ("feed over WebSocket", false),
    ("Socket.IO over WebSocket", false),
    ("Socket.IO over polling", false),
    ("SockJS over WebSocket", false),
    ("SockJS over xhr-polling", false),
    ("Server-Sent Events", false),
    ("long polling of a feed", true),
    ("Primus", false),
];

/// Delay after which a polling client whose connection was closed or refused opens another one, as browsers
/// do.
const RETRY_TIME: Duration = Duration::from_millis(50);
/// Maximum number of such attempts. Refused connections are no fault while the session lives.
const RETRIES_MAX: usize = 200;

/// Runs a client until the server ends its session, which is an error.
pub(super) async fn live(board: &Board, canary: usize) -> anyhow::Result<()> {
    match canary {
        0 => stentor_v1(board, canary).await,
        1 => plain(board, canary, &format!("/ws/{FEED}?policy=queue")).await,
        2 => socketio_websocket(board, canary).await,
        3 => socketio_polling(board, canary).await,
        4 => sockjs_websocket(board, canary).await,
        5 => sockjs_polling(board, canary).await,
        6 => events(board, canary).await,
        7 => long_polling(board, canary).await,
        _ => primus(board, canary).await,
    }
}

fn subscribe() -> String {
    format!(r#"{{"id":1,"type":"subscribe","room":"{ROOM}"}}"#)
}

async fn stentor_v1(board: &Board, canary: usize) -> anyhow::Result<()> {
    let mut ws = WebSocket::open(board.listen, "/ws").await?;
    ws.send(&subscribe()).await?;
    loop {
        board.see(canary, ws.next().await?.as_bytes());
    }
}

async fn plain(board: &Board, canary: usize, target: &str) -> anyhow::Result<()> {
    let mut ws = WebSocket::open(board.listen, target).await?;
    loop {
        board.see(canary, ws.next().await?.as_bytes());
    }
}

async fn primus(board: &Board, canary: usize) -> anyhow::Result<()> {
    let mut ws = WebSocket::open(board.listen, &format!("/primus/?feed={FEED}&policy=queue")).await?;
    loop {
        let text = ws.next().await?;
        if let Some(time) = text.strip_prefix("\"primus::ping::") {
            ws.send(&format!("\"primus::pong::{time}")).await?;
        }
        board.see(canary, text.as_bytes());
    }
}

async fn socketio_websocket(board: &Board, canary: usize) -> anyhow::Result<()> {
    let mut ws = WebSocket::open(board.listen, "/socket.io/?EIO=4&transport=websocket").await?;
    ws.send("40").await?;
    loop {
        let packet = ws.next().await?;
        match packet.as_str() {
            "2" => ws.send("3").await?,
            "1" | "41" => bail!("the server ended the session: {packet}"),
            packet if packet.starts_with("40") => ws.send(&join()).await?,
            packet => board.see(canary, packet.as_bytes()),
        }
    }
}

fn join() -> String {
    format!(r#"42["join","{ROOM}"]"#)
}

/// A connection that is opened again if the server refuses it or closes it between two requests.
struct Polling {
    addr: SocketAddr,
    http: Option<Http>,
}

impl Polling {
    fn new(addr: SocketAddr) -> Self {
        Self { addr, http: None }
    }

    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<(u16, Option<String>, Bytes)> {
        let mut error = None;
        for _ in 0..RETRIES_MAX {
            match self.attempt(request).await {
                // The server refuses the connection for now. The session lives on, and the request wasn't
                // handled.
                Ok((503, _, body)) => error = Some(anyhow::anyhow!("503 {}", String::from_utf8_lossy(&body))),
                Ok(answer) => return Ok(answer),
                Err(because) => error = Some(because),
            }
            self.http = None;
            tokio::time::sleep(RETRY_TIME).await;
        }
        Err(error.context("no attempt")?.context(format!("no answer in {RETRIES_MAX} attempts")))
    }

    async fn attempt(&mut self, request: &[u8]) -> anyhow::Result<(u16, Option<String>, Bytes)> {
        let http = match &mut self.http {
            Some(http) => http,
            none => none.insert(Http::connect(self.addr).await?),
        };
        let (head, body) = http.ask(request).await?;
        Ok((head.status, head.header("etag").map(str::to_owned), body))
    }

    /// Sends a request and returns the response's body. Any other status is an error.
    async fn expect(&mut self, status: u16, request: &[u8]) -> anyhow::Result<Bytes> {
        let (got, _, body) = self.ask(request).await?;
        ensure!(got == status, "{got} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}

async fn socketio_polling(board: &Board, canary: usize) -> anyhow::Result<()> {
    const TYPE: &str = "text/plain;charset=UTF-8";
    let (mut polls, mut posts) = (Polling::new(board.listen), Polling::new(board.listen));
    let target = "/socket.io/?EIO=4&transport=polling";
    let open = polls.expect(200, &wire::get(target)).await?;
    let open = String::from_utf8_lossy(&open).into_owned();
    let sid = open.split("\"sid\":\"").nth(1).and_then(|rest| rest.split('"').next()).context("no sid")?;
    let target = format!("{target}&sid={sid}");
    posts.expect(200, &wire::post(&target, TYPE, b"40")).await?;
    loop {
        let payload = polls.expect(200, &wire::get(&target)).await?;
        for packet in payload.split(|byte| *byte == 0x1e) {
            match packet {
                b"2" => drop(posts.expect(200, &wire::post(&target, TYPE, b"3")).await?),
                b"1" | b"41" => bail!("the server ended the session"),
                packet if packet.starts_with(b"40") => {
                    posts.expect(200, &wire::post(&target, TYPE, join().as_bytes())).await?;
                }
                packet => board.see(canary, packet),
            }
        }
    }
}

/// Makes a SockJS client's message: a list of strings.
fn sockjs_message() -> String {
    format!("[\"{}\"]", subscribe().replace('"', "\\\""))
}

/// Handles a SockJS frame. Returns `true` if it opens the session.
fn sockjs_frame(board: &Board, canary: usize, frame: &[u8]) -> anyhow::Result<bool> {
    ensure!(!frame.starts_with(b"c"), "the server ended the session: {}", String::from_utf8_lossy(frame));
    board.see(canary, frame);
    Ok(frame.starts_with(b"o"))
}

async fn sockjs_websocket(board: &Board, canary: usize) -> anyhow::Result<()> {
    let mut ws = WebSocket::open(board.listen, "/sockjs/000/canary-ws/websocket").await?;
    loop {
        if sockjs_frame(board, canary, ws.next().await?.as_bytes())? {
            ws.send(&sockjs_message()).await?;
        }
    }
}

async fn sockjs_polling(board: &Board, canary: usize) -> anyhow::Result<()> {
    let (mut polls, mut posts) = (Polling::new(board.listen), Polling::new(board.listen));
    let mut is_open = false;
    loop {
        let frame = polls.expect(200, &wire::post("/sockjs/000/canary-xhr/xhr", "text/plain", b"")).await?;
        if sockjs_frame(board, canary, &frame)? {
            ensure!(!is_open, "the session has ended, and another one has begun");
            is_open = true;
            let target = "/sockjs/000/canary-xhr/xhr_send";
            posts.expect(204, &wire::post(target, "text/plain", sockjs_message().as_bytes())).await?;
        }
    }
}

async fn events(board: &Board, canary: usize) -> anyhow::Result<()> {
    let mut http = Http::connect(board.listen).await?;
    http.send(&wire::get(&format!("/sse/{FEED}?policy=queue"))).await?;
    let head = http.head().await?;
    ensure!(head.status == 200, "the stream was answered {}", head.status);
    while let Some(chunk) = http.chunk().await? {
        board.see(canary, &chunk);
    }
    bail!("the stream ended");
}

async fn long_polling(board: &Board, canary: usize) -> anyhow::Result<()> {
    let mut polls = Polling::new(board.listen);
    let mut target = format!("/feed/{FEED}");
    loop {
        let (status, etag, body) = polls.ask(&wire::get(&target)).await?;
        ensure!(matches!(status, 200 | 204 | 304 | 504), "{status} {}", String::from_utf8_lossy(&body));
        board.see(canary, &body);
        if let Some(etag) = etag {
            target = format!("/feed/{FEED}?wait={}", etag.trim_matches('"'));
        }
    }
}
