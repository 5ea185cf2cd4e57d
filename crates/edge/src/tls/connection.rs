//! The layer's state of a connection that speaks TLS.

use super::session::Session;
use std::collections::VecDeque;
use std::time::Instant;
use stentor_frame::{ConnId, Frame};

/// The stage of a connection.
pub(super) enum Stage {
    /// No data has been received.
    New,
    Handshake(Session),
    Open(Session),
}

pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) stage: Stage,
    /// The time at which the connection began.
    pub(super) begun: Instant,
    /// Received bytes of an incomplete record.
    pub(super) unread: Vec<u8>,
    /// Ciphertext of the layer that waits for the send in flight.
    pub(super) pending: Vec<u8>,
    /// Frames of the core that aren't encrypted yet. They follow `pending`.
    pub(super) backlog: Option<Box<Backlog>>,
    /// `true` while a send of the driver is in flight.
    pub(super) driver_sends: bool,
    /// `true` while a send of the core is in flight.
    pub(super) core_sends: bool,
    /// `true` if the core has paused the connection.
    pub(super) is_paused: bool,
    /// `true` if the handshake waits for a later turn. The connection isn't read from.
    pub(super) is_waiting: bool,
    /// `true` if the server has sent the expensive answer of the handshake: the first one, unless that requests another
    /// ClientHello.
    pub(super) is_answered: bool,
    /// `true` if another ClientHello was requested.
    pub(super) asked_again: bool,
    /// `true` if the core was notified that the peer has finished.
    pub(super) has_finished: bool,
    /// The near end of the connection's socket pair, if the connection has left the core.
    pub(super) pump: Option<ConnId>,
    /// Charged bytes that the connection holds besides its fixed size.
    pub(super) charged: usize,
}

impl Connection {
    pub(super) fn new(id: ConnId, begun: Instant) -> Self {
        Self {
            id,
            stage: Stage::New,
            begun,
            unread: Vec::new(),
            pending: Vec::new(),
            backlog: None,
            driver_sends: false,
            core_sends: false,
            is_paused: false,
            is_waiting: false,
            is_answered: false,
            asked_again: false,
            has_finished: false,
            pump: None,
            charged: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Bytes that the driver hasn't received yet: of the core and of the layer.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.pending.len() + self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
    }

    /// Bytes that the connection holds besides its fixed size.
    pub(super) fn held_bytes(&self) -> usize {
        let owned = self.backlog.as_ref().map_or(0, |backlog| backlog.owned_bytes());
        self.unread.capacity() + self.pending.capacity() + owned
    }
}

/// Frames that aren't completely encrypted.
pub(super) struct Backlog {
    frames: VecDeque<Frame>,
    /// Number of encrypted bytes of the first frame.
    offset: usize,
    /// Number of bytes that aren't encrypted.
    pub(super) bytes: usize,
}

impl Backlog {
    /// Takes the frames out of a vector, which keeps its capacity.
    pub(super) fn of(frames: &mut Vec<Frame>) -> Self {
        let frames: VecDeque<Frame> = frames.drain(..).collect();
        let bytes = frames.iter().map(Frame::len).sum();
        Self { frames, offset: 0, bytes }
    }

    /// Moves up to `bytes_max` bytes into `out`. Returns `false` if a frame can't be read.
    pub(super) fn take(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        while out.len() < bytes_max
            && let Some(frame) = self.frames.front()
        {
            let end = frame.len().min(self.offset + bytes_max - out.len());
            if !frame.copy_range(self.offset..end, out) {
                return false;
            }
            self.bytes -= end - self.offset;
            self.offset = end;
            if end == frame.len() {
                self.frames.pop_front();
                self.offset = 0;
            }
        }
        true
    }

    fn owned_bytes(&self) -> usize {
        self.frames.iter().map(Frame::owned_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_frame::{FILE_FRAME_BYTES_MIN, Meter};

    #[test]
    fn a_backlog_returns_its_frames_in_pieces() {
        let file: Vec<u8> = (0..FILE_FRAME_BYTES_MIN + 5).map(|at| at as u8).collect();
        let parts = [b"abc".to_vec(), Vec::new(), file.clone(), b"de".to_vec()];
        for piece_bytes in [1, 2, 7, 1000, FILE_FRAME_BYTES_MIN, 1 << 20] {
            let mut frames = vec![
                Frame::owned(parts[0].clone()),
                Frame::from_static(b""),
                Frame::shared(&[&file], &Meter::default()),
                Frame::from_static(b"de"),
            ];
            let mut backlog = Backlog::of(&mut frames);
            assert!(frames.is_empty());
            let mut all = Vec::new();
            while backlog.bytes > 0 {
                let mut piece = Vec::new();
                assert!(backlog.take(piece_bytes, &mut piece));
                assert!(!piece.is_empty() && piece.len() <= piece_bytes);
                all.extend(piece);
                assert_eq!(all.len() + backlog.bytes, parts.concat().len());
            }
            assert!(all == parts.concat(), "{piece_bytes}");
        }
    }
}
