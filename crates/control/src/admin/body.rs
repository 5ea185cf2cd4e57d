//! Parts of requests: media types, and bodies, which are read within a maximum of bytes and time.

use super::{HEAD_BYTES_MAX, Refusal, State, reason};
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use stentor_ports::{Charge, Class, Ledger};
use tokio::time::{Instant, timeout_at};

/// After an error, the rest of a body is read and discarded up to this size, so that the client, which may
/// not read before it has sent everything, receives the response.
const DISCARD_BYTES_MAX: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);
/// A body of at most this size, in bytes, is read even if memory is short, because a command may free memory.
const SMALL_BYTES: usize = 16 << 10;

/// Returns the media type without parameters, in lower case; empty if the header is missing.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A long body arrives in pieces of this size. A block of more than 84 KiB lies in a 4 MiB page of mimalloc,
/// and each thread keeps such a page for each size. So 250 unfinished bodies that grew by doubling left 16 MB
/// behind until their threads were busy again.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of a body, charged to the ledger until they are dropped.
pub(super) struct Held {
    /// Full pieces of the body. `bytes` follows them.
    pieces: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    bytes_max: usize,
    too_long: fn(usize) -> Refusal,
    ledger: Arc<Ledger>,
    charge: Charge,
}

impl Held {
    /// Makes an empty buffer for at most `bytes_max` bytes. `too_long` makes the refusal of a larger body.
    pub(super) fn new(ledger: &Arc<Ledger>, bytes_max: usize, too_long: fn(usize) -> Refusal) -> Self {
        let charge = Charge::new(ledger.clone(), Class::Bodies);
        let (pieces, bytes) = Default::default();
        Self { pieces, bytes, bytes_max, too_long, ledger: ledger.clone(), charge }
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.iter().chain([&self.bytes]).map(Vec::len).sum()
    }

    /// Joins the pieces. Returns all bytes.
    pub(super) fn whole(&mut self) -> &[u8] {
        if !self.pieces.is_empty() {
            let mut whole = Vec::with_capacity(self.len());
            self.charge.add(whole.capacity());
            self.pieces.push(std::mem::take(&mut self.bytes));
            let mut freed = 0;
            for piece in std::mem::take(&mut self.pieces) {
                whole.extend_from_slice(&piece);
                freed += piece.capacity();
            }
            self.charge.subtract(freed);
            self.bytes = whole;
        }
        &self.bytes
    }

    /// Refuses `bytes` if they exceed the maximum together with the held bytes.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let is_within = bytes.len() <= self.bytes_max - self.len();
        if is_within { Ok(()) } else { Err((self.too_long)(self.bytes_max)) }
    }

    pub(super) fn extend(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        self.check(bytes)?;
        while !bytes.is_empty() {
            if self.bytes.len() == self.piece_bytes() {
                self.pieces.push(std::mem::take(&mut self.bytes));
            }
            let part;
            (part, bytes) = bytes.split_at(bytes.len().min(self.piece_bytes() - self.bytes.len()));
            let (len, capacity) = (self.bytes.len() + part.len(), self.bytes.capacity());
            if len > capacity {
                // The charge precedes the allocation.
                let grown = len.max((2 * capacity).min(PIECE_BYTES).min(self.bytes_max));
                self.hold(grown - capacity)?;
                self.bytes.reserve_exact(grown - self.bytes.len());
            }
            self.bytes.extend_from_slice(part);
        }
        Ok(())
    }

    /// Returns the size at which the last piece is full. It is more than [`PIECE_BYTES`] if the piece uses
    /// the memory of an earlier body that was joined.
    fn piece_bytes(&self) -> usize {
        self.bytes.capacity().max(PIECE_BYTES)
    }

    /// Charges this many more bytes. Refuses them if memory is short, unless the body stays within
    /// [`SMALL_BYTES`].
    fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        let is_small = self.charge.bytes() + bytes <= SMALL_BYTES;
        // A body larger than `SMALL_BYTES` makes the connection's read buffer grow to `HEAD_BYTES_MAX`, which
        // is charged once.
        let is_first = !is_small && self.charge.bytes() <= SMALL_BYTES;
        let bytes = bytes + if is_first { HEAD_BYTES_MAX } else { 0 };
        if !is_small && !self.ledger.has_room_for_input(bytes) {
            let message = "memory is short (limits.memory_bytes_max); try again later";
            return Err(Refusal::new(reason::MEMORY, message));
        }
        self.charge.add(bytes);
        Ok(())
    }

    /// Charges the bytes again, for a copy of them.
    pub(super) fn hold_copy(&self) -> Result<(), Refusal> {
        self.hold(self.len())
    }

    /// Removes the bytes, after a call of [`Self::whole`]. Keeps the memory for further bytes.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the bytes and their charge, which must live as long as the bytes.
    pub(super) fn into_parts(mut self) -> (Vec<u8>, Charge) {
        self.whole();
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

/// Reads and discards the rest of a refused body, so that the client receives the response.
pub(super) async fn discard(mut body: Body, refusal: &Refusal) {
    // The client was too slow, so the server doesn't wait for it again.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::publish::too_long;

    #[test]
    fn a_body_is_gathered_in_pieces_and_charged() {
        let ledger = Arc::new(Ledger::new(usize::MAX));
        let lens =
            [0, 1, SMALL_BYTES, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES, 300_000];
        for (len, chunk) in lens.into_iter().flat_map(|len| [(len, 1000), (len, 16 << 10), (len, 250_000)]) {
            let body: Vec<u8> = (0..len).map(|at| (at ^ (at >> 8)) as u8).collect();
            let mut held = Held::new(&ledger, len, too_long);
            let check = |held: &Held| {
                let blocks = held.pieces.iter().chain([&held.bytes]).map(Vec::capacity);
                let buffer = if len > SMALL_BYTES { HEAD_BYTES_MAX } else { 0 };
                assert_eq!(held.charge.bytes(), blocks.sum::<usize>() + buffer, "{len} by {chunk}");
            };
            for part in body.chunks(chunk) {
                held.extend(part).unwrap();
                assert!(held.pieces.iter().chain([&held.bytes]).all(|piece| piece.capacity() <= PIECE_BYTES));
            }
            check(&held);
            assert!(held.extend(&[0]).is_err());
            assert!(held.whole() == body, "{len} by {chunk}");
            check(&held);
            // Adds the next line to the same memory.
            held.clear();
            held.extend(&body).unwrap();
            assert!(held.pieces.is_empty() && held.whole() == body, "{len} by {chunk}");
            check(&held);
        }
    }
}
