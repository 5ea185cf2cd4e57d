//! The frames of a connection that are in flight, as far as the kernel has not accepted them yet.
//!
//! Invariants: a frame that has been accepted completely is removed; `bytes` is the sum of the frames'
//! lengths minus `offset`, and only 0 after the last call that [`Backlog::transmit`] makes. Frames that
//! belong to the connection alone count in the driver's meter as long as the backlog lives.

use rustix::io::Errno;
use std::collections::VecDeque;
use stentor_frame::{Charge, Frame, Meter};

/// The result of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The kernel has accepted everything.
    Done,
    /// The socket is full; an edge follows when it has room again.
    Stalled,
    /// The connection is broken.
    Failed(Errno),
}

/// Position of a transmission: the current frame, and the number of its bytes that have been accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) frame: usize,
    pub(crate) offset: usize,
}

impl Cursor {
    /// Advances by `bytes`, and past empty frames.
    pub(crate) fn advance(&mut self, frames: &[Frame], mut bytes: usize) {
        while let Some(frame) = frames.get(self.frame) {
            let left = frame.len() - self.offset;
            if bytes < left {
                self.offset += bytes;
                return;
            }
            bytes -= left;
            *self = Self { frame: self.frame + 1, offset: 0 };
        }
    }
}

/// The pending frames; see the module's documentation.
pub(crate) struct Backlog {
    frames: VecDeque<Frame>,
    offset: usize,
    bytes: usize,
    _charge: Option<Charge>,
}

/// Charges the bytes of `frames` that no other connection shares.
pub(crate) fn charge_owned<'a>(frames: impl IntoIterator<Item = &'a Frame>, owned: &Meter) -> Option<Charge> {
    let bytes = frames.into_iter().map(Frame::owned_bytes).sum();
    (bytes > 0).then(|| owned.charge(bytes))
}

impl Backlog {
    /// Makes a backlog of the rest of `frames` after `cursor`. The vector is left empty, its capacity kept.
    pub(crate) fn of(frames: &mut Vec<Frame>, cursor: Cursor, owned: &Meter) -> Self {
        Self::new(frames.drain(..).skip(cursor.frame).collect(), cursor.offset, owned)
    }

    /// Makes a backlog of `bytes[taken..]`.
    pub(crate) fn of_bytes(bytes: &[u8], taken: usize, owned: &Meter) -> Self {
        Self::new([Frame::owned(bytes[taken..].to_vec())].into(), 0, owned)
    }

    fn new(frames: VecDeque<Frame>, offset: usize, owned: &Meter) -> Self {
        let _charge = charge_owned(&frames, owned);
        let bytes = frames.iter().map(Frame::len).sum::<usize>() - offset;
        Self { frames, offset, bytes, _charge }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets `send` continue where the previous call stopped, and releases the frames that its cursor passes.
    pub(crate) fn transmit<R>(&mut self, send: impl FnOnce(&[Frame], &mut Cursor) -> R) -> R {
        let mut cursor = Cursor { frame: 0, offset: self.offset };
        // The queue is made contiguous once and only popped afterwards, so it never wraps.
        let result = send(self.frames.make_contiguous(), &mut cursor);
        let passed: usize = self.frames.drain(..cursor.frame).map(|frame| frame.len()).sum();
        self.bytes = self.bytes + self.offset - passed - cursor.offset;
        self.offset = cursor.offset;
        result
    }
}

/// A connection's send in flight, usually none. A failed send stays until the connection ends.
#[derive(Default)]
pub(crate) struct InFlight(Option<Box<(Backlog, Option<Errno>)>>);

impl InFlight {
    /// Keeps the part that a transmission hasn't sent.
    pub(crate) fn keep(&mut self, progress: Progress, backlog: impl FnOnce() -> Backlog) {
        self.0 = match progress {
            Progress::Done => return,
            Progress::Stalled => Some(Box::new((backlog(), None))),
            Progress::Failed(error) => Some(Box::new((backlog(), Some(error)))),
        };
    }

    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the number of bytes that the kernel hasn't accepted.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |send| send.0.bytes())
    }

    /// Returns the error of a failed send.
    pub(crate) fn error(&self) -> Option<Errno> {
        self.0.as_ref()?.1
    }

    /// Continues the send; returns `Done` if there is none.
    pub(crate) fn transmit(&mut self, send: impl FnOnce(&[Frame], &mut Cursor) -> Progress) -> Progress {
        let Some((backlog, error)) = self.0.as_deref_mut() else { return Progress::Done };
        let progress = match *error {
            Some(error) => Progress::Failed(error),
            None => backlog.transmit(send),
        };
        match progress {
            Progress::Done => self.0 = None,
            Progress::Stalled => {}
            Progress::Failed(failed) => *error = Some(failed),
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lens: &[usize], taken: &[usize]) {
        let mut frames: Vec<Frame> = lens.iter().map(|len| Frame::owned(vec![0; *len])).collect();
        let mut left: usize = lens.iter().sum();
        let owned = Meter::default();
        let mut backlog = Backlog::of(&mut frames, Cursor::default(), &owned);
        assert!(owned.bytes() >= left);
        assert!(frames.is_empty());
        for &bytes in taken {
            backlog.transmit(|frames, cursor| cursor.advance(frames, bytes));
            left -= bytes;
            assert_eq!(backlog.bytes(), left, "{lens:?} {taken:?}");
        }
        assert_eq!(left == 0, backlog.frames.is_empty(), "{lens:?} {taken:?}");
        drop(backlog);
        assert_eq!(owned.bytes(), 0);
    }

    #[test]
    fn a_backlog_counts_the_remaining_bytes() {
        check(&[5], &[5]);
        check(&[5], &[2, 0, 3]);
        check(&[0, 3, 0, 0, 4, 0], &[1, 1, 1, 1, 1, 1, 1]);
        check(&[0, 3, 0, 0, 4, 0], &[0, 5, 2]);
        check(&[1, 2, 3, 4], &[10]);
        check(&[1, 2, 3, 4], &[3, 4]);
    }
}
