//! Attacks that are checked by the server's answer, not by its load: S6, S10 and A12 of the table in
//! docs/attacks.md.

use crate::http::{Http, WebSocket};
use crate::server::Server;
use crate::token::{USER, VALID, sign};
use crate::wire;
use anyhow::{Context, bail, ensure};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The lines of `[limits]` that these attacks need.
pub(crate) const LIMITS: &str = "message_timeout = \"2s\"";
/// Maximum time until a packet with missing attachments ends its session: `message_timeout`, plus time for a
/// busy machine.
const ATTACHMENTS_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum time of a check.
const CHECK_TIME_MAX: Duration = Duration::from_secs(45);

const PACKET: &str = r#"451-["x",{"_placeholder":true,"num":0}]"#;

/// The name and result of each check.
pub(crate) type Results = Vec<(&'static str, anyhow::Result<()>)>;

/// Runs all checks.
pub(crate) fn run(server: &Server) -> anyhow::Result<Results> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (listen, admin) = (server.listen, server.admin);
    Ok(runtime.block_on(async {
        let (websocket, polled, html, private) = tokio::join!(
            timeout(CHECK_TIME_MAX, missing_attachments(listen)),
            timeout(CHECK_TIME_MAX, missing_attachments_polled(listen)),
            timeout(CHECK_TIME_MAX, html_document(listen, admin)),
            timeout(CHECK_TIME_MAX, private_document(listen, admin)),
        );
        let in_time = |result: Result<anyhow::Result<()>, _>| match result {
            Ok(result) => result,
            Err(tokio::time::error::Elapsed { .. }) => bail!("no end after {CHECK_TIME_MAX:?}"),
        };
        vec![
            ("S6, attachments that never come, over WebSocket", in_time(websocket)),
            ("S6, attachments that never come, polled", in_time(polled)),
            ("S10, HTML from an upstream", in_time(html)),
            ("A12, a private feed in caches", in_time(private)),
        ]
    }))
}

fn ended_in_time(begun: Instant) -> anyhow::Result<()> {
    let took = begun.elapsed();
    ensure!(took <= ATTACHMENTS_TIME_MAX, "the session ends after {:.1} s", took.as_secs_f64());
    Ok(())
}

async fn missing_attachments(listen: SocketAddr) -> anyhow::Result<()> {
    let mut ws = WebSocket::open(listen, "/socket.io/?EIO=4&transport=websocket").await?;
    ws.send("40").await?;
    ws.send(PACKET).await?;
    let begun = Instant::now();
    while let Ok(packet) = ws.next().await {
        if packet == "2" {
            ws.send("3").await?;
        }
    }
    ended_in_time(begun)
}

async fn missing_attachments_polled(listen: SocketAddr) -> anyhow::Result<()> {
    const TYPE: &str = "text/plain;charset=UTF-8";
    let target = "/socket.io/?EIO=4&transport=polling";
    let (mut polls, mut posts) = (Http::connect(listen).await?, Http::connect(listen).await?);
    let (_, open) = polls.ask(&wire::get(target)).await?;
    let open = String::from_utf8_lossy(&open).into_owned();
    let sid = open.split("\"sid\":\"").nth(1).and_then(|rest| rest.split('"').next()).context("no sid")?;
    let target = format!("{target}&sid={sid}");
    posts.ask(&wire::post(&target, TYPE, format!("40\x1e{PACKET}").as_bytes())).await?;
    let begun = Instant::now();
    while let Ok((head, payload)) = polls.ask(&wire::get(&target)).await {
        if head.status != 200 || &payload[..] == b"1" {
            break;
        }
        if &payload[..] == b"2" {
            posts.ask(&wire::post(&target, TYPE, b"3")).await?;
        }
    }
    ended_in_time(begun)
}

/// Checks that no cache may store a document that requires a token.
async fn private_document(listen: SocketAddr, admin: SocketAddr) -> anyhow::Result<()> {
    let put = "PUT /api/v1/feeds/pushed/private HTTP/1.1\r\nHost: localhost\r\n\
               Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let (head, _) = Http::connect(admin).await?.ask(put.as_bytes()).await?;
    ensure!(head.status == 200, "the document was refused: {}", head.status);
    let get = format!(
        "GET /feed/pushed/private HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        sign(USER, VALID)
    );
    let (head, _) = Http::connect(listen).await?.ask(get.as_bytes()).await?;
    ensure!(head.status == 200, "the document was answered {}", head.status);
    let [control, vary] =
        ["cache-control", "vary"].map(|name| head.values(name).collect::<Vec<_>>().join(", "));
    ensure!(control.contains("private"), "its Cache-Control is {control}");
    ensure!(vary.contains("Authorization"), "its Vary is {vary}");
    Ok(())
}

/// Checks that a script in an upstream's document can't run in the server's origin.
async fn html_document(listen: SocketAddr, admin: SocketAddr) -> anyhow::Result<()> {
    let html = "<script>alert(1)</script>";
    let put = format!(
        "PUT /api/v1/feeds/canary/html HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/html\r\n\
         Content-Length: {}\r\n\r\n{html}",
        html.len()
    );
    let (head, _) = Http::connect(admin).await?.ask(put.as_bytes()).await?;
    ensure!(head.status == 200, "the document was refused: {}", head.status);
    let (head, body) = Http::connect(listen).await?.ask(&wire::get("/feed/canary/html")).await?;
    ensure!(head.status == 200 && body == html.as_bytes(), "the document was answered {}", head.status);
    let policy = head.header("content-security-policy").unwrap_or("none");
    ensure!(policy.contains("sandbox"), "its Content-Security-Policy is {policy}");
    Ok(())
}
