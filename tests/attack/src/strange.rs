//! A proxy of Redis that forwards replies until a node loads a feed whose name selects a strange reply.

use crate::upstream::serve_on_thread;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time for which earlier replies still pass.
const PASSING_TIME: Duration = Duration::from_millis(20);
/// Size at which an endless reply ends, so that a server that reads all of it leaves memory to others.
const ENDLESS_BYTES: usize = 600 << 20;
/// Size of a reply within a node's limit: larger than any value that a node stores under a key.
const WITHIN_BYTES: usize = 60 << 20;

/// An answer to a node that loads a feed.
struct Reply {
    begin: String,
    repeated: &'static [u8],
    /// Number of repetitions of `repeated`.
    times: usize,
}

/// The kinds of replies. A feed's name begins with `cold/` and the kind.
pub(crate) const LARGE: [&str; 2] = ["value", "within"];
pub(crate) const ENDLESS: [&str; 4] = ["list", "line", "replies", "nested"];

/// Returns the strange reply to a request. Only the Redis script that loads a feed names the feed's log.
fn reply(request: &[u8]) -> Option<Reply> {
    let is_in = |text: &[u8]| memchr::memmem::find(request, text).is_some();
    let mut kinds = LARGE.iter().chain(&ENDLESS);
    let kind = kinds.find(|kind| is_in(format!("{{feed:cold/{kind}-").as_bytes()) && is_in(b"}:log"))?;
    let (begin, repeated, times): (_, &[u8], _) = match *kind {
        "value" => ("$300000000\r\n".to_owned(), b"x", 300_000_000),
        "within" => (format!("${WITHIN_BYTES}\r\n"), b"x", WITHIN_BYTES),
        "list" => ("*2147483647\r\n".to_owned(), b":1\r\n", ENDLESS_BYTES / 4),
        "line" => ("+".to_owned(), b"x", ENDLESS_BYTES),
        "replies" => (String::new(), b":1\r\n", ENDLESS_BYTES / 4),
        _ => (String::new(), b"*1\r\n", ENDLESS_BYTES / 4),
    };
    Some(Reply { begin, repeated, times })
}

/// Starts the proxy of a real Redis. Returns the proxy's address.
pub(crate) fn start(real: SocketAddr) -> anyhow::Result<SocketAddr> {
    serve_on_thread(move |node| async move {
        // An error ends the connection like a regular end.
        let _ = serve(node, real).await;
    })
}

async fn serve(node: TcpStream, real: SocketAddr) -> std::io::Result<()> {
    let real = TcpStream::connect(real).await?;
    for stream in [&node, &real] {
        stream.set_nodelay(true)?;
    }
    let ((mut replies, mut out), (mut requests, mut back)) = (real.into_split(), node.into_split());
    let strange = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let request = match requests.read(&mut buffer).await? {
                0 => return Ok(None),
                n => &buffer[..n],
            };
            if let Some(reply) = reply(request) {
                tokio::time::sleep(PASSING_TIME).await;
                return std::io::Result::Ok(Some(reply));
            }
            out.write_all(request).await?;
        }
    };
    let reply = tokio::select! {
        strange = strange => strange?,
        copied = tokio::io::copy(&mut replies, &mut back) => return copied.map(drop),
    };
    let Some(Reply { begin, repeated, times }) = reply else { return Ok(()) };
    back.write_all(begin.as_bytes()).await?;
    let part = repeated.repeat(10_000);
    for _ in 0..times / 10_000 {
        back.write_all(&part).await?;
    }
    back.write_all(&repeated.repeat(times % 10_000)).await?;
    back.write_all(b"\r\n").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_feed_that_is_loaded_has_a_strange_reply() {
        let check = |request: &[u8], expect: Option<usize>| {
            let times = reply(request).map(|reply| reply.times);
            assert_eq!(times, expect, "{:?}", String::from_utf8_lossy(request));
        };
        check(b"EVALSHA f 2 stentor:{feed:cold/value-1} stentor:{feed:cold/value-1}:log", Some(300_000_000));
        check(b"SUBSCRIBE stentor:{feed:cold/value-1}", None);
        check(b"EVALSHA f 2 stentor:{feed:cold/probe-1} stentor:{feed:cold/probe-1}:log", None);
    }
}
