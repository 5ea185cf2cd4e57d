//! Parts of requests: bodies, read within bounds of bytes and time, media types and percent-encoded texts.

use super::{Refusal, reason};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// After an error the rest of a body is read and thrown away within these bounds, so that the client, which may
/// not read before it has sent all, gets to see the answer.
const DISCARD_BYTES_MAX: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The media type without parameters, in lower case; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body; `None` if it has more than `bytes_max` bytes.
pub(super) async fn read_whole(
    body: &mut Body,
    bytes_max: usize,
    timeout: Duration,
) -> Result<Option<Vec<u8>>, Refusal> {
    let deadline = Instant::now() + timeout;
    let mut whole = Vec::new();
    while let Some(chunk) = next_chunk(body, deadline).await? {
        if whole.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(Some(whole))
}

pub(super) async fn next_chunk(body: &mut Body, deadline: Instant) -> Result<Option<Bytes>, Refusal> {
    loop {
        match timeout_at(deadline, body.frame()).await {
            Err(_) => {
                let message = "the body took too long to arrive (admin_limits.body_timeout)";
                return Err(Refusal::new(reason::TIMEOUT, message));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(error))) => {
                return Err(Refusal::new(reason::BODY, format!("the body ended early: {error}")));
            }
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Reads the rest of a body that was refused, so that its sender gets to see why.
pub(super) async fn discard(mut body: Body, refusal: &Refusal) {
    // A slow client is not waited for again.
    if refusal.reason == reason::TIMEOUT {
        return;
    }
    let deadline = Instant::now() + DISCARD_TIMEOUT;
    let mut discarded = 0;
    while let Ok(Some(chunk)) = next_chunk(&mut body, deadline).await {
        discarded += chunk.len();
        if discarded > DISCARD_BYTES_MAX {
            return;
        }
    }
}

/// Decodes percent escapes (RFC 3986, 2.1). `None` if one is broken, or the result isn't UTF-8.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        let digits = Some(digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
