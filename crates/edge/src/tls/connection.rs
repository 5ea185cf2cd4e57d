//! A connection that speaks TLS, as the layer keeps it.

use super::session::Session;
use std::collections::VecDeque;
use std::time::Instant;
use stentor_frame::{ConnId, Frame};

/// How far a connection is.
pub(super) enum Stage {
    /// Nothing has been received.
    New,
    Handshake(Session),
    Open(Session),
}

pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) stage: Stage,
    /// When it began.
    pub(super) begun: Instant,
    /// Received bytes without the rest of their record.
    pub(super) unread: Vec<u8>,
    /// What is ours waits for the send in flight: ciphertext.
    pub(super) pending: Vec<u8>,
    /// What is the core's and isn't encrypted yet, behind `pending`.
    pub(super) backlog: Option<Box<Backlog>>,
    /// A send of the driver is in flight.
    pub(super) driver_sends: bool,
    /// A send of the core is in flight.
    pub(super) core_sends: bool,
    /// The core doesn't read from it.
    pub(super) is_paused: bool,
    /// Its handshake waits for a later turn. It isn't read from.
    pub(super) is_waiting: bool,
    /// It has got the answer of its handshake that takes long: the first one, unless that asks for another hello.
    pub(super) is_answered: bool,
    /// It has been asked for another hello.
    pub(super) asked_again: bool,
    /// The core knows that the peer has finished.
    pub(super) has_finished: bool,
    /// The near end of its pair, if it has left the core.
    pub(super) pump: Option<ConnId>,
    /// What it holds beyond its fixed size, in bytes, as the ledger has it.
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

    /// Bytes of the core that the driver hasn't got, and of ours.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.pending.len() + self.backlog.as_ref().map_or(0, |backlog| backlog.bytes)
    }

    /// Bytes held beyond its fixed size.
    pub(super) fn held_bytes(&self) -> usize {
        let owned = self.backlog.as_ref().map_or(0, |backlog| backlog.owned_bytes());
        self.unread.capacity() + self.pending.capacity() + owned
    }
}

/// Frames of which a part isn't encrypted yet.
pub(super) struct Backlog {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that are encrypted.
    offset: usize,
    /// Bytes that aren't.
    pub(super) bytes: usize,
}

impl Backlog {
    /// The vector is left empty, its capacity kept.
    pub(super) fn of(frames: &mut Vec<Frame>) -> Self {
        let frames: VecDeque<Frame> = frames.drain(..).collect();
        let bytes = frames.iter().map(Frame::len).sum();
        Self { frames, offset: 0, bytes }
    }

    /// Moves up to `bytes_max` bytes into `out`. False: a frame can't be read.
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
