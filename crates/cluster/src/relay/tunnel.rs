//! Carries the bytes of a connection both ways until both sides have ended.
//!
//! The buffer holds bytes that one side hasn't accepted, at most [`CHUNK_BYTES`] in each direction. A direction with
//! waiting bytes isn't read, so each side's flow control reaches the other. An idle tunnel holds no buffer.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Maximum number of bytes read at once.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// Time without progress after which a side that accepts no waiting bytes is considered gone. The same time as for an
/// answer of a node (`limits.idle_timeout`).
pub(super) const STALL_MAX: Duration = Duration::from_secs(75);
/// Time to wait for the client to close after the last bytes for it have been sent, and for the owner after the
/// client's last bytes.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// One direction of a tunnel.
#[derive(Default)]
struct Flow {
    pending: Vec<u8>,
    /// Number of bytes of `pending` that have been accepted.
    taken: usize,
    /// `true` if the source has ended.
    ended: bool,
    /// `true` if the destination has been notified of the end.
    finished: bool,
}

/// The result of a step of a [`Flow`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Bytes, or an end, have been moved.
    Moved,
    /// The source has ended with an error.
    BrokenOff,
    /// The destination accepts no more bytes.
    NotTaken,
}

/// The connection to the node that has the session was lost before that node ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnerLost;

/// The answer to a request whose owner is lost before its answer began. Without an answer, a proxy would consider this
/// node dead as well: nginx sends it no requests for 10 s after a broken connection.
const NOT_ANSWERED: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The owner's interim response before a request's body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The request of a tunnel, and its answer. There is one of each, because the owner ends the connection afterwards. A
/// request that the client sends once the answer has begun can't be answered, because its answer would become a part of
/// the first one.
#[derive(Default)]
struct Exchange {
    has_request: bool,
    has_answer: bool,
}

impl Exchange {
    fn sent(&mut self) {
        self.has_request = true;
    }

    fn received(&mut self, bytes: &[u8]) {
        self.has_answer |= bytes != CONTINUE;
    }

    /// Returns `true` if the client waits for the beginning of the answer.
    fn awaits_answer(&self) -> bool {
        self.has_request && !self.has_answer
    }
}

impl Flow {
    fn waiting_bytes(&self) -> usize {
        self.pending.len() - self.taken
    }

    /// Moves some bytes. `seen` receives the bytes that the source sends.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        from: Pin<&mut impl AsyncRead>,
        mut to: Pin<&mut impl AsyncWrite>,
        seen: impl FnOnce(&[u8]),
    ) -> Poll<Step> {
        if self.waiting_bytes() > 0 {
            let Ok(taken @ 1..) = ready!(to.poll_write(cx, &self.pending[self.taken..])) else {
                return Poll::Ready(Step::NotTaken);
            };
            self.taken += taken;
            if self.waiting_bytes() == 0 {
                (self.pending, self.taken) = (Vec::new(), 0);
            }
            return Poll::Ready(Step::Moved);
        }
        if self.ended {
            // If the shutdown fails, the destination has already ended.
            let _ = ready!(to.poll_shutdown(cx));
            self.finished = true;
            return Poll::Ready(Step::Moved);
        }
        let mut storage = [MaybeUninit::uninit(); CHUNK_BYTES];
        let mut chunk = ReadBuf::uninit(&mut storage);
        if ready!(from.poll_read(cx, &mut chunk)).is_err() {
            return Poll::Ready(Step::BrokenOff);
        }
        let bytes = chunk.filled();
        if bytes.is_empty() {
            self.ended = true;
        } else {
            seen(bytes);
            let taken = match to.as_mut().poll_write(cx, bytes) {
                Poll::Ready(Ok(taken)) => taken,
                Poll::Ready(Err(_)) => return Poll::Ready(Step::NotTaken),
                Poll::Pending => 0,
            };
            self.pending.extend_from_slice(&bytes[taken..]);
        }
        Poll::Ready(Step::Moved)
    }
}

/// Moves bytes until both sides have ended, or `gone` fails. `input` was already read from the client. `buffered`
/// receives the number of waiting bytes, whenever it changes.
///
/// # Errors
/// The owner has ended with an error, or has accepted nothing for [`STALL_MAX`]. If the client does so, it is gone,
/// which is no error.
pub(super) async fn run(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut owner: impl AsyncRead + AsyncWrite + Unpin,
    input: Vec<u8>,
    mut gone: watch::Receiver<()>,
    buffered: impl Fn(usize),
) -> Result<(), OwnerLost> {
    let (mut up, mut down) = (Flow { pending: input, ..Flow::default() }, Flow::default());
    let mut exchange = Exchange { has_request: !up.pending.is_empty(), has_answer: false };
    let mut held = up.pending.len();
    // Time at which bytes must have been moved.
    let mut deadline: Option<Pin<Box<Sleep>>> = None;
    let carry = std::future::poll_fn(|cx| {
        let mut moved = false;
        loop {
            let mut progressed = false;
            if !up.finished
                && let Poll::Ready(step) =
                    up.poll_step(cx, Pin::new(&mut client), Pin::new(&mut owner), |_| exchange.sent())
            {
                match step {
                    Step::Moved => {}
                    Step::BrokenOff => return Poll::Ready(Ok(())),
                    // The owner may have answered before it stopped reading.
                    Step::NotTaken => (up.pending, up.taken, up.finished) = (Vec::new(), 0, true),
                }
                progressed = true;
            }
            if !down.finished
                && let Poll::Ready(step) =
                    down.poll_step(cx, Pin::new(&mut owner), Pin::new(&mut client), |bytes| {
                        exchange.received(bytes);
                    })
            {
                match step {
                    Step::Moved if down.ended && exchange.awaits_answer() && !up.ended => {
                        return Poll::Ready(Err(OwnerLost));
                    }
                    Step::Moved => {}
                    Step::BrokenOff => return Poll::Ready(Err(OwnerLost)),
                    Step::NotTaken => return Poll::Ready(Ok(())),
                }
                progressed = true;
            }
            if !progressed {
                break;
            }
            moved = true;
        }
        if up.finished && down.finished {
            return Poll::Ready(Ok(()));
        }
        let now_held = up.waiting_bytes() + down.waiting_bytes();
        if now_held != held {
            held = now_held;
            buffered(held);
        }
        let time = if up.finished || down.finished {
            Some(LINGER)
        } else if held > 0 {
            Some(STALL_MAX)
        } else {
            None
        };
        match time {
            None => deadline = None,
            Some(time) if moved || deadline.is_none() => {
                deadline = Some(Box::pin(sleep_until(Instant::now() + time)));
            }
            Some(_) => {}
        }
        if let Some(deadline) = &mut deadline {
            ready!(deadline.as_mut().poll(cx));
            let is_owner_stalled = !up.finished && !down.finished && up.waiting_bytes() > 0;
            return Poll::Ready(if is_owner_stalled { Err(OwnerLost) } else { Ok(()) });
        }
        Poll::Pending
    });
    let ended = tokio::select! {
        ended = carry => ended,
        _ = gone.changed() => Err(OwnerLost),
    };
    if ended.is_err() && exchange.awaits_answer() {
        let answer = async {
            client.write_all(NOT_ANSWERED).await?;
            client.shutdown().await
        };
        // A client that accepts no bytes counts as disconnected.
        let _ = timeout(LINGER, answer).await;
    }
    ended
}
