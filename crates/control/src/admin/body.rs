//! Parts of requests: bodies, read within bounds of bytes and time, media types and percent-encoded texts.

use super::{HEAD_BYTES_MAX, Refusal, State, reason};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use stentor_edge::{Charge, Class, Ledger};
use tokio::time::{Instant, timeout_at};

/// After an error the rest of a body is read and thrown away within these bounds, so that the client, which may
/// not read before it has sent all, gets to see the answer.
const DISCARD_BYTES_MAX: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);
/// A body of this size is read even if memory is short: a command may be what relieves the server.
const SMALL_BYTES: usize = 16 << 10;

/// The media type without parameters, in lower case; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Bytes of a body, charged to the ledger until they are dropped.
pub(super) struct Held {
    bytes: Vec<u8>,
    bytes_max: usize,
    too_long: fn(usize) -> Refusal,
    ledger: Arc<Ledger>,
    charge: Charge,
}

impl Held {
    /// No bytes yet, and at most `bytes_max`; `too_long` makes the refusal of more.
    pub(super) fn new(ledger: &Arc<Ledger>, bytes_max: usize, too_long: fn(usize) -> Refusal) -> Self {
        let charge = Charge::new(ledger.clone(), Class::Bodies);
        Self { bytes: Vec::new(), bytes_max, too_long, ledger: ledger.clone(), charge }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Refuses bytes that would exceed the maximum together with those held.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let is_within = bytes.len() <= self.bytes_max - self.bytes.len();
        if is_within { Ok(()) } else { Err((self.too_long)(self.bytes_max)) }
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.check(bytes)?;
        let (len, capacity) = (self.bytes.len() + bytes.len(), self.bytes.capacity());
        if len > capacity {
            // Charged before it is allocated.
            let grown = len.max((2 * capacity).min(self.bytes_max));
            self.hold(grown - capacity)?;
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Charges so many bytes more.
    fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        let is_small = self.charge.bytes() + bytes <= SMALL_BYTES;
        // The buffer that the connection reads a larger body with grows to this size.
        let is_first = !is_small && self.charge.bytes() <= SMALL_BYTES;
        let bytes = bytes + if is_first { HEAD_BYTES_MAX } else { 0 };
        if !is_small && !self.ledger.has_room_for_input(bytes) {
            let message = "memory is short (limits.memory_bytes_max); try again later";
            return Err(Refusal::new(reason::MEMORY, message));
        }
        self.charge.add(bytes);
        Ok(())
    }

    /// Charges a copy of the bytes as well.
    pub(super) fn hold_copy(&self) -> Result<(), Refusal> {
        self.hold(self.bytes.len())
    }

    /// Removes the bytes. Memory for further ones stays.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The bytes, and their charge, to be kept as long as they are.
    pub(super) fn into_parts(self) -> (Vec<u8>, Charge) {
        (self.bytes, self.charge)
    }
}

/// Reads a body of at most `bytes_max` bytes.
pub(super) async fn read_whole(
    state: &State,
    body: &mut Body,
    bytes_max: usize,
    too_long: fn(usize) -> Refusal,
) -> Result<Held, Refusal> {
    let deadline = Instant::now() + state.options.load().body_timeout;
    let mut whole = Held::new(&state.ledger, bytes_max, too_long);
    while let Some(chunk) = next_chunk(body, deadline).await? {
        whole.extend(&chunk)?;
    }
    Ok(whole)
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
