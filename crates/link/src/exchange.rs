//! The exchange of numbered frames with the peer, in both directions and across connections.
//!
//! ```text
//!            write, poll_transmit                        ack
//!  entries ───────────────────────► kept, transmitted ─────────► forgotten
//!                                     ▲        │ the connection breaks
//!                                     └────────┘ reconnect: transmitted again, if the peer hasn't received it
//!
//!           handle_frame          poll_entry, until None
//!  nothing ──────────────► arrived ───────────────────────► handled ── at most 20 ms later ──► acknowledged
//! ```
//!
//! A frame that has arrived but isn't handled is neither transmitted again nor acknowledged: if the peer crashes then, the frame
//! is among [`Exchange::kept_entries`]. So are the frames that the peer acknowledges with a frame whose entries haven't all been polled, because
//! some of their effects are missing.
//!
//! **Invariant.** `forgotten <= acknowledged by the peer <= transmitted <= last`, and `kept` has the frames after the first of them.

use crate::codec::Entry;
use crate::error::{FrameError, LinkError};
use crate::frame::{Frame, Received, Writer};
use crate::limits::{ACK_BYTES, ACK_DELAY, FRAME_BYTES};
use crate::number::{in_header, nearest};
use std::collections::VecDeque;
use std::time::Instant;

/// A frame that the peer hasn't acknowledged.
struct Kept {
    frame: Frame,
    /// The acknowledgement in its header.
    ack: u64,
}

/// Frames to the peer.
#[derive(Default)]
struct Outgoing {
    writer: Writer,
    kept: VecDeque<Kept>,
    /// Bytes of the kept frames that the peer hasn't acknowledged.
    bytes: usize,
    /// Bytes of the other kept frames.
    acked_bytes: usize,
    /// Count of the last frame that was finished.
    last: u64,
    /// Count of the last frame that isn't kept any more.
    forgotten: u64,
    /// Count of the last frame that the peer has acknowledged.
    acked: u64,
    /// Count of the last frame that was transmitted on the connection, or that the peer had received before it.
    transmitted: u64,
}

impl Outgoing {
    fn finish(&mut self, ack: u64) {
        if self.writer.has_entries() {
            self.last += 1;
            let frame = self.writer.finish(in_header(self.last), in_header(ack));
            self.bytes += frame.len();
            self.kept.push_back(Kept { frame, ack });
        }
    }

    /// The peer acknowledges frames. They are kept until [`Self::forget`].
    fn handle_ack(&mut self, number: u32) -> Result<(), LinkError> {
        let count = nearest(number, self.acked);
        if count > self.transmitted {
            return Err(LinkError::Ack { found: number, last: in_header(self.transmitted) });
        }
        // A frame that was transmitted again has an old acknowledgement.
        while self.acked < count {
            let len = self.kept[(self.acked - self.forgotten) as usize].frame.len();
            self.acked += 1;
            self.bytes -= len;
            self.acked_bytes += len;
        }
        Ok(())
    }

    /// Forgets the frames that the peer has acknowledged.
    fn forget(&mut self) {
        while self.forgotten < self.acked {
            self.forgotten += 1;
            self.acked_bytes -= self.kept.pop_front().map_or(0, |kept| kept.frame.len());
        }
    }
}

/// Frames from the peer.
struct Incoming<I> {
    /// The frame whose entries are being polled.
    current: Option<Received<I>>,
    /// Length of the current frame.
    len: usize,
    is_numbered: bool,
    /// Time of the current frame's arrival.
    at: Option<Instant>,
    /// Count of the last frame that has arrived.
    arrived: u64,
    /// Count of the last frame whose entries were all polled.
    handled: u64,
    /// Count of the last acknowledgement that was transmitted.
    acknowledged: u64,
    /// Bytes of the frames that were handled since then.
    bytes: usize,
    /// When the next acknowledgement is due. `None`: all is acknowledged.
    ack_at: Option<Instant>,
}

/// One side's view of the frames in both directions. `I` are the peer's entries, `O` its own.
pub struct Exchange<I, O> {
    incoming: Incoming<I>,
    outgoing: Outgoing,
    entry: std::marker::PhantomData<O>,
}

impl<I: Entry, O: Entry> Default for Exchange<I, O> {
    fn default() -> Self {
        Self {
            incoming: Incoming {
                current: None,
                len: 0,
                is_numbered: false,
                at: None,
                arrived: 0,
                handled: 0,
                acknowledged: 0,
                bytes: 0,
                ack_at: None,
            },
            outgoing: Outgoing::default(),
            entry: std::marker::PhantomData,
        }
    }
}

impl<I: Entry, O: Entry> Exchange<I, O> {
    /// Appends an entry. It is transmitted at the end of the turn, by [`Self::poll_transmit`].
    pub fn write(&mut self, entry: &O) {
        let out = &mut self.outgoing;
        if out.writer.len() + entry.encoded_len() > FRAME_BYTES {
            out.finish(self.incoming.handled);
        }
        out.writer.entry(entry);
    }

    /// Returns the next frame to transmit on the connection. `None`: nothing is due. Called only while there is a connection.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Frame> {
        let Self { incoming, outgoing, .. } = self;
        outgoing.finish(incoming.handled);
        let (frame, ack) = if outgoing.transmitted < outgoing.last {
            let kept = &outgoing.kept[(outgoing.transmitted - outgoing.forgotten) as usize];
            outgoing.transmitted += 1;
            (kept.frame.clone(), kept.ack)
        } else if incoming.ack_at.is_some_and(|at| at <= now) {
            (Writer::default().finish(0, in_header(incoming.handled)), incoming.handled)
        } else {
            return None;
        };
        if ack > incoming.acknowledged {
            incoming.acknowledged = ack;
            incoming.bytes = 0;
        }
        if incoming.acknowledged == incoming.handled {
            incoming.ack_at = None;
        }
        Some(frame)
    }

    /// When [`Self::poll_transmit`] has an acknowledgement to transmit.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.incoming.ack_at
    }

    /// `true` if no frame is being handled, so that the next one may be read from the connection.
    pub fn is_idle(&self) -> bool {
        self.incoming.current.is_none()
    }

    /// Takes a frame of the peer, whose entries are then polled. Panics unless [`Self::is_idle`].
    ///
    /// # Errors
    ///
    /// If the header is malformed, the number isn't the next one, or the acknowledgement is one of a frame that wasn't
    /// transmitted.
    pub fn handle_frame(&mut self, frame: bytes::Bytes, now: Instant) -> Result<(), LinkError> {
        let incoming = &mut self.incoming;
        assert!(incoming.current.is_none(), "entries of the last frame haven't been polled");
        let len = frame.len();
        let received = Received::new(frame)?;
        incoming.is_numbered = received.number != 0;
        if incoming.is_numbered {
            let expected = in_header(incoming.arrived + 1);
            if received.number != expected {
                return Err(LinkError::Number { expected, found: received.number });
            }
            incoming.arrived += 1;
            incoming.bytes += len;
        }
        self.outgoing.handle_ack(received.ack)?;
        incoming.at = Some(now);
        incoming.len = len;
        incoming.current = Some(received);
        Ok(())
    }

    /// Returns the next entry of the frame. `None`: the frame has been handled.
    ///
    /// # Errors
    ///
    /// If an entry is malformed, or isn't alone in a frame that is longer than [`FRAME_BYTES`], or is in a frame without a number but for those that begin and end a link, or the reverse.
    pub fn poll_entry(&mut self) -> Result<Option<I>, LinkError> {
        let incoming = &mut self.incoming;
        let Some(current) = &mut incoming.current else { return Ok(None) };
        if let Some(entry) = current.next() {
            let entry = entry?;
            // Small entries need many times their length, so a frame of the maximum length may have only one entry.
            if incoming.len > FRAME_BYTES && current.unread_bytes() > 0 {
                return Err(FrameError::SeveralEntries(incoming.len).into());
            }
            return match entry.is_numbered() == incoming.is_numbered {
                true => Ok(Some(entry)),
                false => Err(LinkError::Misplaced(entry.name())),
            };
        }
        incoming.current = None;
        self.outgoing.forget();
        if incoming.is_numbered {
            incoming.handled = incoming.arrived;
            if incoming.bytes >= ACK_BYTES {
                incoming.ack_at = incoming.at;
            } else {
                incoming.ack_at = incoming.ack_at.or(incoming.at.map(|at| at + ACK_DELAY));
            }
        }
        Ok(None)
    }

    /// Acknowledges the current frame as soon as it has been handled: it has a NOP.
    pub fn acknowledge_at_once(&mut self) {
        self.incoming.bytes = self.incoming.bytes.max(ACK_BYTES);
    }

    /// Number of the last frame that has arrived, for the peer: later frames must be transmitted again after a broken connection.
    pub fn received(&self) -> u32 {
        in_header(self.incoming.arrived)
    }

    /// Continues on another connection. Frames after `received`, the last one that has reached the peer, are transmitted again.
    ///
    /// # Errors
    ///
    /// If the peer can't have received a frame with this number, or has acknowledged a later one.
    pub fn reconnect(&mut self, received: u32, now: Instant) -> Result<(), LinkError> {
        let out = &mut self.outgoing;
        let count = nearest(received, out.acked);
        if count < out.acked || count > out.last {
            return Err(LinkError::Ack { found: received, last: in_header(out.last) });
        }
        out.transmitted = count;
        // Acknowledgements may have been lost with the connection.
        self.incoming.acknowledged = 0;
        self.incoming.ack_at = (self.incoming.handled > 0).then_some(now);
        Ok(())
    }

    /// Bytes of frames that the peer hasn't acknowledged, including those that haven't been transmitted.
    pub fn unacknowledged_bytes(&self) -> usize {
        let out = &self.outgoing;
        out.bytes + if out.writer.has_entries() { out.writer.len() } else { 0 }
    }

    /// Bytes of all frames that are held: those that are kept, and the one that is being handled.
    pub fn held_bytes(&self) -> usize {
        let current = self.incoming.current.as_ref().map_or(0, |_| self.incoming.len);
        self.unacknowledged_bytes() + self.outgoing.acked_bytes + current
    }

    /// Count of the frame that the last written entry is in.
    pub fn written(&self) -> u64 {
        self.outgoing.last + u64::from(self.outgoing.writer.has_entries())
    }

    /// Count of the last frame that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.outgoing.acked
    }

    /// Count of the last frame that isn't kept any more: the peer has acknowledged it with a frame whose entries have all been polled.
    pub fn forgotten(&self) -> u64 {
        self.outgoing.forgotten
    }

    /// Entries of the frames that the peer hasn't acknowledged, or with a frame that hasn't been handled. The peer may have handled some of
    /// them.
    pub fn kept_entries(&mut self) -> impl Iterator<Item = O> {
        self.outgoing.finish(self.incoming.handled);
        // The kept frames were made here, so all of them are valid.
        let frames = self.outgoing.kept.iter().map(|kept| Received::new(kept.frame.to_bytes()));
        frames.flatten().flatten().flatten()
    }

    /// As if this many frames had been exchanged in both directions. For tests of numbers that wrap around.
    #[doc(hidden)]
    pub fn start_at(&mut self, count: u64) {
        let Incoming { arrived, handled, acknowledged, .. } = &mut self.incoming;
        (*arrived, *handled, *acknowledged) = (count, count, count);
        let Outgoing { last, forgotten, acked, transmitted, .. } = &mut self.outgoing;
        (*last, *forgotten, *acked, *transmitted) = (count, count, count, count);
    }
}
