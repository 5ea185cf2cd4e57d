//! The backend of the hooks. The path of a request selects valid, invalid or slow responses.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time of a slow response: longer than the hook's `timeout`.
const SLOW: Duration = Duration::from_millis(600);
/// Time in which a busy backend handles a request.
const BUSY: Duration = Duration::from_millis(50);
/// Maximum size of the hooks' responses, which the backend exceeds on purpose.
pub(crate) const RESPONSE_BYTES_MAX: usize = 4096;
/// Maximum size of a request. A larger one ends the connection.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// Number of invalid responses so far. It selects the kind of the next one.
static BAD: AtomicUsize = AtomicUsize::new(0);

/// Starts the backend, which serves on a separate thread until the process ends. Returns its address.
pub(crate) fn start() -> anyhow::Result<SocketAddr> {
    crate::upstream::serve_on_thread(serve)
}

/// Handles one connection's requests in order.
async fn serve(mut stream: TcpStream) {
    let mut request = Vec::new();
    while let Some((path, body)) = next(&mut stream, &mut request).await {
        let answer = match path.as_str() {
            "/badly" => match BAD.fetch_add(1, Relaxed) % 7 {
                0 => response("500 Internal Server Error", ""),
                1 => response("200 OK", "{\"answers\":[{\"id\":"),
                2 => response("200 OK", "{\"answers\":[{\"id\":1,\"alow\":true}]}"),
                3 => response("200 OK", "{\"answers\":[]}"),
                4 => response("200 OK", &" ".repeat(2 * RESPONSE_BYTES_MAX)),
                5 => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec(),
                _ => response("429 Too Many Requests", ""),
            },
            // The questions of one client fail, in two ways.
            "/some" if body.contains("ask-failing") => match BAD.fetch_add(1, Relaxed) % 2 {
                0 => response("500 Internal Server Error", ""),
                _ => response("200 OK", "{\"answers\":[]}"),
            },
            "/busy" => {
                tokio::time::sleep(BUSY).await;
                response("200 OK", &answers(&body))
            }
            "/slowly" => {
                tokio::time::sleep(SLOW).await;
                response("200 OK", &answers(&body))
            }
            _ => response("200 OK", &answers(&body)),
        };
        let is_cut = answer.ends_with(b"{");
        if stream.write_all(&answer).await.is_err() || is_cut {
            return;
        }
    }
}

/// Reads the next request. Returns its path and body; `None` at the end of the connection.
async fn next(stream: &mut TcpStream, request: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        if let Some(head) = memchr::memmem::find(request, b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&request[..head]).into_owned();
            let length = text.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok()
            })?;
            let end = head + 4 + length;
            if request.len() >= end {
                let body = String::from_utf8_lossy(&request[head + 4..end]).into_owned();
                request.drain(..end);
                return Some((text.split(' ').nth(1)?.to_owned(), body));
            }
        }
        if request.len() > REQUEST_BYTES_MAX || stream.read_buf(request).await.ok()? == 0 {
            return None;
        }
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns an answer to each question: rooms whose names end with `-no` are refused, all others allowed.
fn answers(body: &str) -> String {
    let mut answers = String::from("{\"answers\":[");
    let mut questions = body.match_indices("{\"id\":").peekable();
    let mut separator = "";
    while let Some((at, start)) = questions.next() {
        let question = &body[at + start.len()..questions.peek().map_or(body.len(), |(next, _)| *next)];
        let Some((id, rest)) = question.split_once(",\"hook\":\"") else { continue };
        let answer = match rest.split('"').next() {
            Some("event") => {
                r#""ack":["hook-answer"],"join":["lobby"],"leave":["none"],"emit":[{"event":"told","data":1,"rooms":["lobby"]}]"#
            }
            Some("connect") => r#""allow":true,"user":"hooked","info":{"name":"H"},"join":["lobby"]"#,
            _ if rest.contains("-no\"") => r#""allow":false,"code":"no","message":"hook-refusal""#,
            _ => r#""allow":true,"ttl":1"#,
        };
        // Writing into a string can't fail.
        let _ = write!(answers, "{separator}{{\"id\":{id},{answer}}}");
        separator = ",";
    }
    answers + "]}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_answered() {
        let body = r#"{"version":1,"questions":[{"id":1,"hook":"subscribe","room":"a-no"},{"id":2,"hook":"publish","room":"a"}]}"#;
        assert_eq!(
            answers(body),
            r#"{"answers":[{"id":1,"allow":false,"code":"no","message":"hook-refusal"},{"id":2,"allow":true,"ttl":1}]}"#
        );
        assert_eq!(answers("{}"), r#"{"answers":[]}"#);
    }
}
