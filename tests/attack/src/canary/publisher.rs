//! Publishes the numbered publications for the canaries through the admin API, and probes both ports.

use super::{Board, FEED, PACE, Probe, ROOM, lock, mark};
use crate::http::Http;
use crate::wire;
use anyhow::ensure;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Delay after which a refused publication is sent again.
const RETRY_TIME: Duration = Duration::from_millis(20);
/// Maximum time of an admin API response. The publisher then gives up the response and its connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Time from one probe to the next.
const PROBE_PACE: Duration = Duration::from_millis(200);
/// Maximum time of a probe. A slower one has failed.
const PROBE_TIME_MAX: Duration = Duration::from_secs(10);

/// Publishes to the canaries' room and feed, one number after the other.
pub(super) async fn publish(board: Arc<Board>) {
    let mut connection = None;
    let mut due = Instant::now();
    for number in 0.. {
        due += PACE;
        tokio::time::sleep_until(due.into()).await;
        lock(&board.due).push(due);
        let text = mark(number);
        let room = format!(r#"{{"room":"{ROOM}","event":"news","data":"{text}"}}"#);
        let document = format!(r#"{{"news":"{text}"}}"#);
        let put = format!(
            "PUT /api/v1/feeds/{FEED} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{document}",
            document.len()
        );
        for request in [wire::post("/api/v1/publish", "application/json", room.as_bytes()), put.into_bytes()]
        {
            while send(board.admin, &mut connection, &request).await.is_err() {
                connection = None;
                *lock(&board.retries) += 1;
                tokio::time::sleep(RETRY_TIME).await;
            }
        }
        *lock(&board.published) = number + 1;
    }
}

async fn send(admin: SocketAddr, connection: &mut Option<Http>, request: &[u8]) -> anyhow::Result<()> {
    let exchange = async {
        let http = match connection {
            Some(http) => http,
            None => connection.insert(Http::connect(admin).await?),
        };
        let (head, body) = http.ask(request).await?;
        ensure!(head.status == 200, "{} {}", head.status, String::from_utf8_lossy(&body));
        Ok(())
    };
    tokio::time::timeout(ANSWER_TIME_MAX, exchange).await?
}

/// Requests `/healthz` on new connections.
pub(super) async fn probe(board: Arc<Board>, is_admin: bool) {
    let addr = if is_admin { board.admin } else { board.listen };
    loop {
        tokio::time::sleep(PROBE_PACE).await;
        let begun = Instant::now();
        let exchange = async { Http::connect(addr).await?.ask(&wire::get("/healthz")).await };
        let answer = tokio::time::timeout(PROBE_TIME_MAX, exchange).await;
        let answered = matches!(answer, Ok(Ok((head, _))) if head.status == 200);
        lock(&board.probes).push(Probe { is_admin, took: begun.elapsed(), answered });
    }
}
