//! A connection that receives messages.
//!
//! The client library would do, but keeps a list of the subscriptions (70 bytes for each) and copies each message once more.

use crate::engine::SILENCE_MAX;
use bytes::BytesMut;
use redis::aio::AsyncPushSender;
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest reply or message. A message has up to 16 MiB.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// A buffer that had to be larger than this is given up when it is empty.
const BUFFER_BYTES: usize = 64 << 10;
/// Commands that wait to be written.
const COMMANDS_MAX: usize = 16;

/// Which replies complete a command, or several.
enum Expected {
    /// So many.
    Replies(usize),
    /// One for each of so many channels, or one error for all.
    Subscriptions(usize),
    /// The first one that isn't an error.
    Success,
}

/// A command, or several, whose replies are awaited.
struct Pending {
    replies: Vec<Value>,
    expected: Expected,
    answer: oneshot::Sender<Vec<Value>>,
}

#[derive(Default)]
struct State {
    /// In the order in which they were written.
    pending: VecDeque<Pending>,
    /// Why the connection has ended.
    reason: Option<String>,
}

/// Sends commands over the connection.
#[derive(Clone)]
pub(super) struct Commands {
    queue: mpsc::Sender<(Vec<u8>, Pending)>,
    state: Arc<Mutex<State>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Commands {
    /// Sends commands at once.
    ///
    /// # Errors
    /// The connection failed, or there was no answer in time.
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        self.request(pipeline.get_packed_pipeline(), Expected::Replies(pipeline.len())).await
    }

    async fn request(&self, packed: Vec<u8>, expected: Expected) -> Result<Vec<Value>, String> {
        let (answer, answered) = oneshot::channel();
        let pending = Pending { replies: Vec::new(), expected, answer };
        let sent = timeout(SILENCE_MAX, async {
            self.queue.send((packed, pending)).await.ok()?;
            answered.await.ok()
        });
        match sent.await {
            Ok(Some(replies)) => Ok(replies),
            Ok(None) => {
                Err(locked(&self.state).reason.clone().unwrap_or_else(|| "the connection was closed".into()))
            }
            Err(_) => Err("the server doesn't answer".into()),
        }
    }

    /// Subscribes or unsubscribes; `command` says which, and to what. Returns the first reply, which may be an error for all.
    pub(super) async fn subscribe(&self, command: &str, names: &[&str]) -> Result<Option<Value>, String> {
        let packed = redis::cmd(command).arg(names).get_packed_command();
        let replies = self.request(packed, Expected::Subscriptions(names.len())).await?;
        Ok(replies.into_iter().next())
    }

    /// Subscribes to sharded channels, or unsubscribes: a command for each, as a cluster refuses those of several slots in one.
    pub(super) async fn subscribe_sharded(
        &self,
        channels: &[Arc<str>],
        is_interested: bool,
    ) -> Result<Vec<Value>, String> {
        let mut pipeline = Pipeline::new();
        for channel in channels {
            pipeline.cmd(if is_interested { "SSUBSCRIBE" } else { "SUNSUBSCRIBE" }).arg(&**channel);
        }
        if is_interested {
            return self.send(&pipeline).await;
        }
        // The server also ends subscriptions on its own, when a slot leaves it, and then refuses the command: how many replies there
        // are isn't known, but where they end.
        pipeline.cmd("PUBSUB").arg("SHARDNUMSUB");
        self.request(pipeline.get_packed_pipeline(), Expected::Success).await
    }
}

/// Serves a connection, until it ends.
pub(super) fn start<S: AsyncRead + AsyncWrite + Send + 'static>(
    stream: S,
    pushes: Arc<dyn AsyncPushSender>,
) -> (Commands, JoinHandle<()>) {
    let (queue, commands) = mpsc::channel(COMMANDS_MAX);
    let state = Arc::<Mutex<State>>::default();
    let (reader, writer) = tokio::io::split(stream);
    let shared = state.clone();
    let driver = tokio::spawn(async move {
        let reason = tokio::select! {
            reason = read(reader, &shared, &*pushes) => reason,
            reason = write(writer, commands, &shared) => reason,
        };
        let mut state = locked(&shared);
        state.reason = Some(reason);
        state.pending.clear();
    });
    (Commands { queue, state }, driver)
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut commands: mpsc::Receiver<(Vec<u8>, Pending)>,
    state: &Mutex<State>,
) -> String {
    while let Some((packed, pending)) = commands.recv().await {
        locked(state).pending.push_back(pending);
        let written = async {
            writer.write_all(&packed).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return error.to_string();
        }
    }
    // Nobody sends any more.
    std::future::pending().await
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    state: &Mutex<State>,
    pushes: &dyn AsyncPushSender,
) -> String {
    let mut buffer = BytesMut::new();
    loop {
        match frame_len(&buffer) {
            Ok(Some(len)) => {
                let Ok(value) = redis::parse_redis_value(&buffer.split_to(len)) else { return garbage() };
                if !handle(value, state, pushes) {
                    return "the connection was closed".into();
                }
                if buffer.is_empty() && buffer.capacity() > BUFFER_BYTES {
                    buffer = BytesMut::new();
                }
            }
            Ok(None) => {
                buffer.reserve(BUFFER_BYTES / 4);
                match reader.read_buf(&mut buffer).await {
                    Ok(0) => return "the connection was closed".into(),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return "the connection was closed".into();
                    }
                    Err(error) => return error.to_string(),
                }
            }
            Err(Malformed) => return garbage(),
        }
    }
}

fn garbage() -> String {
    "the server doesn't speak Redis's protocol".into()
}

/// Returns whether the connection is to go on.
fn handle(value: Value, state: &Mutex<State>, pushes: &dyn AsyncPushSender) -> bool {
    let value = match value {
        Value::Push {
            kind:
                kind @ (PushKind::Message | PushKind::PMessage | PushKind::SMessage | PushKind::SUnsubscribe),
            data,
        } => {
            return pushes.send(PushInfo { kind, data }).is_ok();
        }
        Value::Push {
            kind:
                PushKind::Subscribe
                | PushKind::PSubscribe
                | PushKind::SSubscribe
                | PushKind::Unsubscribe
                | PushKind::PUnsubscribe,
            ..
        } => Value::Okay,
        Value::Push { .. } => return true,
        reply => reply,
    };
    let mut state = locked(state);
    let Some(pending) = state.pending.front_mut() else { return true };
    let is_refusal = matches!(value, Value::ServerError(_));
    pending.replies.push(value);
    let replies = pending.replies.len();
    let is_done = match pending.expected {
        Expected::Replies(expected) => replies == expected,
        // The server refuses all channels of a command at once.
        Expected::Subscriptions(expected) => replies == expected || (is_refusal && replies == 1),
        Expected::Success => !is_refusal,
    };
    if let Some(done) = is_done.then(|| state.pending.pop_front()).flatten() {
        // The caller may have stopped waiting.
        let _ = done.answer.send(done.replies);
    }
    true
}

/// It isn't RESP.
#[derive(Debug, PartialEq)]
struct Malformed;

/// The length of the first value in a buffer. `None`: it isn't complete.
fn frame_len(buffer: &[u8]) -> Result<Option<usize>, Malformed> {
    let (mut at, mut values) = (0, 1_usize);
    while values > 0 {
        let Some(kind) = buffer.get(at) else { return Ok(None) };
        if !b"+-:,_#($=!*~>%|".contains(kind) {
            return Err(Malformed);
        }
        let rest = &buffer[at + 1..];
        let Some(end) = rest.windows(2).position(|bytes| bytes == b"\r\n") else {
            return if rest.len() > BUFFER_BYTES { Err(Malformed) } else { Ok(None) };
        };
        let number = || -> Result<usize, Malformed> {
            let number: i64 =
                std::str::from_utf8(&rest[..end]).map_err(|_| Malformed)?.parse().map_err(|_| Malformed)?;
            // -1: there is nothing.
            usize::try_from(number.max(0)).map_err(|_| Malformed)
        };
        at += 1 + end + 2;
        values -= 1;
        match kind {
            b'$' | b'=' | b'!' if &rest[..end] != b"-1" => at += number()?.saturating_add(2),
            b'*' | b'~' | b'>' => values = values.saturating_add(number()?),
            b'%' => values = values.saturating_add(number()?.saturating_mul(2)),
            b'|' => values = values.saturating_add(number()?.saturating_mul(2) + 1),
            _ => {}
        }
        if at > FRAME_BYTES_MAX || values > FRAME_BYTES_MAX {
            return Err(Malformed);
        }
    }
    Ok((at <= buffer.len()).then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_complete_at_its_last_byte() {
        for value in [
            "+OK\r\n",
            "$-1\r\n",
            "$5\r\na\r\nbc\r\n",
            "*0\r\n",
            ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n",
            "%1\r\n+a\r\n*2\r\n:1\r\n_\r\n",
            "|1\r\n+a\r\n:1\r\n=7\r\ntxt:abc\r\n",
        ] {
            for end in 0..value.len() {
                assert_eq!(frame_len(&value.as_bytes()[..end]), Ok(None), "{value:?} {end}");
            }
            let more = [value, "+next\r\n"].concat();
            assert_eq!(frame_len(more.as_bytes()), Ok(Some(value.len())), "{value:?}");
            assert!(redis::parse_redis_value(value.as_bytes()).is_ok());
        }
    }

    #[test]
    fn what_is_no_value_is_refused_before_it_is_awaited() {
        for wrong in
            ["HTTP/1.1 400", "$x\r\n", "$99999999999\r\n", "*99999999999\r\n", "%9223372036854775807\r\n"]
        {
            assert_eq!(frame_len(wrong.as_bytes()), Err(Malformed), "{wrong:?}");
        }
        assert_eq!(frame_len(&[b'+'; BUFFER_BYTES + 9]), Err(Malformed));
    }
}
