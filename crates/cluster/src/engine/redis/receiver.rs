//! Sends commands over a connection, and receives replies and messages.
//!
//! The client library's own connection isn't used: it keeps a list of subscriptions (70 bytes for each), copies each
//! message once more, and accepts replies of any size.

use super::meter::{Invalid, Meter, REPLY_BYTES_MAX};
use super::values::explain;
use crate::engine::SILENCE_MAX;
use crate::engine::common::explain_alert;
use bytes::BytesMut;
use parking_lot::Mutex;
use redis::aio::AsyncPushSender;
use redis::{Pipeline, PushInfo, PushKind, Value};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use stentor_ports::{Charge, Class, Ledger};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// An empty buffer larger than this is replaced.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of commands that wait to be written. Callers of further ones wait, in order.
const COMMANDS_MAX: usize = 8_192;
/// Maximum number of bytes of commands that are written at once.
const WRITE_BYTES: usize = 64 << 10;

const CLOSED: &str = "the connection was closed";

/// The answer to a command, or to several.
pub(super) struct Replies {
    pub(super) values: Vec<Value>,
    /// Charge for the replies' size.
    charge: Charge,
}

impl Replies {
    /// An answer without replies.
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        Self { values: Vec::new(), charge: Charge::new(ledger.clone(), Class::Cluster) }
    }

    /// Takes the values of other replies, and charges them to these.
    pub(super) fn take(&mut self, other: Self) -> Vec<Value> {
        self.charge.add(other.charge.bytes());
        other.values
    }
}

/// The replies that complete a command, or several.
enum Expected {
    /// This number of replies.
    Replies(usize),
    /// A reply for each channel, of which there are this many, or one error for all channels.
    Subscriptions(usize),
    /// The first reply that isn't an error.
    Success,
}

/// The receiver of replies.
enum Answer {
    Caller(oneshot::Sender<Replies>),
    Callback(Box<dyn FnOnce(Replies) + Send>),
}

impl Answer {
    fn send(self, replies: Replies) {
        match self {
            // The caller may have stopped waiting.
            Self::Caller(caller) => _ = caller.send(replies),
            Self::Callback(callback) => callback(replies),
        }
    }
}

/// A command, or several, whose replies are awaited.
struct Pending {
    replies: Replies,
    expected: Expected,
    answer: Answer,
}

#[derive(Default)]
struct State {
    /// Pending commands, in the order in which they were written.
    pending: VecDeque<Pending>,
    /// `true` while the connection's task writes, or is about to write the rest.
    is_writing: bool,
    /// Bytes that the connection's task writes before further commands.
    rest: Vec<u8>,
    /// `true` once the connection's task has ended.
    has_ended: bool,
    /// The reason for the end of the connection.
    reason: Option<String>,
}

/// Commands for the connection's task to write. Without any, it writes [`State::rest`].
type Queued = (Vec<u8>, Option<Pending>);

/// Sends commands over the connection.
#[derive(Clone)]
pub(super) struct Commands {
    queue: mpsc::Sender<Queued>,
    state: Arc<Mutex<State>>,
    ledger: Arc<Ledger>,
}

impl Commands {
    /// Sends commands at once.
    ///
    /// # Errors
    /// The connection failed, or the server didn't answer in time.
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Replies, String> {
        self.send_packed(pipeline.get_packed_pipeline(), pipeline.len()).await
    }

    /// Sends commands at once, of which there are `count`. For errors, see [`Self::send`].
    pub(super) async fn send_packed(&self, packed: Vec<u8>, count: usize) -> Result<Replies, String> {
        self.request(packed, Expected::Replies(count)).await
    }

    async fn request(&self, packed: Vec<u8>, expected: Expected) -> Result<Replies, String> {
        let (answer, answered) = oneshot::channel();
        let answer = Answer::Caller(answer);
        let pending = Pending { replies: Replies::new(&self.ledger), expected, answer };
        let sent = timeout(SILENCE_MAX, async {
            self.queue.send((packed, Some(pending))).await.ok()?;
            answered.await.ok()
        });
        match sent.await {
            Ok(Some(replies)) => Ok(replies),
            Ok(None) => Err(explain_alert(self.reason())),
            Err(_) => Err("the server doesn't answer".into()),
        }
    }

    /// Sends commands, of which there are `count`, from the calling thread, which needn't wait for the connection's task. `socket` is a
    /// second handle to the connection's socket. `answer` receives the replies; it is dropped if the connection fails.
    pub(super) fn send_here(
        &self,
        mut socket: &TcpStream,
        packed: &[u8],
        count: usize,
        answer: impl FnOnce(Replies) + Send + 'static,
    ) {
        let (replies, answer) = (Replies::new(&self.ledger), Answer::Callback(Box::new(answer)));
        let pending = Pending { replies, expected: Expected::Replies(count), answer };
        let mut state = self.state.lock();
        if state.has_ended {
            return;
        }
        state.pending.push_back(pending);
        // The connection's task reports an error.
        let written = if state.is_writing { 0 } else { socket.write(packed).unwrap_or(0) };
        if written < packed.len() {
            state.is_writing = true;
            state.rest.extend_from_slice(&packed[written..]);
            drop(state);
            // If the queue is full, the task writes the rest with the next commands.
            let _ = self.queue.try_send((Vec::new(), None));
        }
    }

    /// Subscribes or unsubscribes by this command.
    pub(super) async fn subscribe(&self, command: &str, names: &[&str]) -> Result<(), String> {
        let packed = redis::cmd(command).arg(names).get_packed_command();
        let replies = self.request(packed, Expected::Subscriptions(names.len())).await?;
        match replies.values.into_iter().next() {
            // The server refuses all names at once.
            Some(Value::ServerError(error)) => Err(explain(error)),
            _ => Ok(()),
        }
    }

    /// Subscribes to sharded channels, or unsubscribes, by a command for each: a cluster refuses several slots in one
    /// command.
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
            return Ok(self.send(&pipeline).await?.values);
        }
        // The server also ends subscriptions by itself, when a slot leaves it, and then refuses the command. So the
        // number of replies is unknown, and a last command marks their end.
        pipeline.cmd("PUBSUB").arg("SHARDNUMSUB");
        Ok(self.request(pipeline.get_packed_pipeline(), Expected::Success).await?.values)
    }

    /// The reason for the end of the connection, if it has ended.
    pub(super) fn reason(&self) -> String {
        self.state.lock().reason.clone().unwrap_or_else(|| CLOSED.into())
    }
}

/// Ends a connection on drop. Pending commands fail.
struct Ending(Arc<Mutex<State>>);

impl Drop for Ending {
    fn drop(&mut self) {
        let pending = {
            let mut state = self.0.lock();
            state.has_ended = true;
            std::mem::take(&mut state.pending)
        };
        drop(pending);
    }
}

/// Serves a connection until it ends. Without `pushes`, messages are dropped.
pub(super) fn start<S: AsyncRead + AsyncWrite + Send + 'static>(
    stream: S,
    pushes: Option<Arc<dyn AsyncPushSender>>,
    ledger: &Arc<Ledger>,
) -> (Commands, JoinHandle<()>) {
    let (queue, commands) = mpsc::channel(COMMANDS_MAX);
    let state = Arc::<Mutex<State>>::default();
    let (reader, writer) = tokio::io::split(stream);
    let ending = Ending(state.clone());
    let held = Charge::new(ledger.clone(), Class::Cluster);
    let driver = tokio::spawn(async move {
        let reason = tokio::select! {
            reason = read(reader, &ending.0, pushes.as_deref(), &held) => reason,
            reason = write(writer, commands, &ending.0) => reason,
        };
        ending.0.lock().reason = Some(reason);
    });
    (Commands { queue, state, ledger: ledger.clone() }, driver)
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut commands: mpsc::Receiver<Queued>,
    state: &Mutex<State>,
) -> String {
    // Takes bytes to write, in the order of `pending`.
    let take = |packed: &mut Vec<u8>, (more, pending): Queued| {
        let mut state = state.lock();
        state.is_writing = true;
        packed.append(&mut state.rest);
        packed.extend_from_slice(&more);
        state.pending.extend(pending);
    };
    let take_rest = || {
        let mut state = state.lock();
        state.is_writing = !state.rest.is_empty();
        std::mem::take(&mut state.rest)
    };
    while let Some(next) = commands.recv().await {
        let mut packed = Vec::new();
        take(&mut packed, next);
        while packed.len() < WRITE_BYTES
            && let Ok(more) = commands.try_recv()
        {
            take(&mut packed, more);
        }
        loop {
            let written = async {
                writer.write_all(&packed).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return error.to_string();
            }
            packed = take_rest();
            if packed.is_empty() {
                break;
            }
        }
    }
    // All senders are dropped.
    std::future::pending().await
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    state: &Mutex<State>,
    pushes: Option<&dyn AsyncPushSender>,
    held: &Charge,
) -> String {
    let (mut buffer, mut meter) = (BytesMut::new(), Meter::default());
    loop {
        match meter.len(&buffer) {
            Ok(Some(len)) => {
                let size = std::mem::take(&mut meter).size();
                let Ok(value) = redis::parse_redis_value(&buffer.split_to(len)) else {
                    return Invalid::Malformed.to_string();
                };
                if let Err(reason) = handle(value, size, state, pushes) {
                    return reason;
                }
                if buffer.is_empty() && buffer.capacity() > BUFFER_BYTES {
                    buffer = BytesMut::new();
                }
            }
            Ok(None) => {
                held.set(if buffer.len() > BUFFER_BYTES { buffer.len() } else { 0 });
                buffer.reserve(meter.awaited(&buffer).max(BUFFER_BYTES / 4));
                match reader.read_buf(&mut buffer).await {
                    Ok(0) => return CLOSED.into(),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return CLOSED.into(),
                    Err(error) => return error.to_string(),
                }
            }
            Err(invalid) => return invalid.to_string(),
        }
    }
}

/// Handles a value of this size.
///
/// # Errors
/// The reason why the connection can't continue.
fn handle(
    value: Value,
    size: usize,
    state: &Mutex<State>,
    pushes: Option<&dyn AsyncPushSender>,
) -> Result<(), String> {
    let value = match value {
        Value::Push {
            kind:
                kind @ (PushKind::Message | PushKind::PMessage | PushKind::SMessage | PushKind::SUnsubscribe),
            data,
        } => {
            let sent = pushes.map_or(Ok(()), |pushes| pushes.send(PushInfo { kind, data }));
            return sent.map_err(|_| CLOSED.into());
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
        Value::Push { .. } => return Ok(()),
        reply => reply,
    };
    let mut state = state.lock();
    let Some(pending) = state.pending.front_mut() else { return Ok(()) };
    let is_refusal = matches!(value, Value::ServerError(_));
    pending.replies.values.push(value);
    pending.replies.charge.add(size);
    if pending.replies.charge.bytes() > REPLY_BYTES_MAX {
        return Err(Invalid::TooLarge.to_string());
    }
    let replies = pending.replies.values.len();
    let is_done = match pending.expected {
        Expected::Replies(expected) => replies == expected,
        // The server refuses all channels of a command at once.
        Expected::Subscriptions(expected) => replies == expected || (is_refusal && replies == 1),
        Expected::Success => !is_refusal,
    };
    if let Some(done) = is_done.then(|| state.pending.pop_front()).flatten() {
        // A callback may send commands.
        drop(state);
        done.answer.send(done.replies);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::common::Stream;
    use std::future;
    use std::task::Poll;
    use tokio::io::duplex;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn replies_count_until_they_are_dropped_and_all_of_a_pipeline_have_a_bound() {
        let all = 100 << 20;
        let ledger = Arc::new(Ledger::new(all));
        let (stream, mut server) = duplex(1 << 20);
        let (commands, _driver) = start(stream, None, &ledger);
        let mut pipeline = Pipeline::new();
        pipeline.cmd("GET").arg("a").cmd("GET").arg("b");
        let content = "x".repeat(24 << 20);
        let reply = format!("${}\r\n{content}\r\n", content.len());
        let (replies, ()) = tokio::join!(commands.send(&pipeline), async {
            server.write_all(reply.as_bytes()).await.unwrap();
            server.write_all(b"$1\r\nx\r\n").await.unwrap();
        });
        let replies = replies.unwrap();
        assert_eq!(replies.values[0], Value::BulkString(content.clone().into()));
        assert!(!ledger.has_room(all - content.len()));
        drop(replies);

        let mut pipeline = Pipeline::new();
        for _ in 0..3 {
            pipeline.cmd("GET").arg("a");
        }
        let (replies, _) = tokio::join!(commands.send(&pipeline), async {
            for _ in 0..3 {
                server.write_all(reply.as_bytes()).await?;
            }
            io::Result::Ok(())
        });
        assert_eq!(replies.err(), Some(Invalid::TooLarge.to_string()));
        assert!(ledger.has_room(all));
    }

    #[tokio::test]
    async fn commands_of_other_threads_keep_their_order_when_the_socket_is_full() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let socket = stream.socket().unwrap();
        let (commands, _driver) = start(stream, None, &Arc::new(Ledger::new(1 << 20)));
        let (answered, mut answers) = mpsc::unbounded_channel();
        let answer = |number: usize| {
            let answered = answered.clone();
            move |_: Replies| _ = answered.send(number)
        };
        let first = vec![b'1'; 32 << 20];
        commands.send_here(&socket, &first, 1, answer(1));
        commands.send_here(&socket, b"2", 1, answer(2));
        // It is in the queue before the connection's task runs.
        let mut third = Box::pin(commands.send_packed(b"3".to_vec(), 1));
        let begun = future::poll_fn(|context| Poll::Ready(third.as_mut().poll(context))).await;
        assert!(begun.is_pending());
        let mut received = vec![0; first.len() + 2];
        server.read_exact(&mut received).await.unwrap();
        assert!(received[..first.len()] == first && received[first.len()..] == *b"23");
        // The connection is free again: the thread writes itself.
        server.write_all(b"+1\r\n+2\r\n+3\r\n").await.unwrap();
        assert!(third.await.is_ok());
        commands.send_here(&socket, b"4", 1, answer(4));
        assert!(!commands.state.lock().is_writing);
        server.read_exact(&mut received[..1]).await.unwrap();
        server.write_all(b"+4\r\n").await.unwrap();
        for number in [1, 2, 4] {
            assert_eq!(answers.recv().await, Some(number));
        }
        drop(server);
        // After the end of the connection, an answer is dropped.
        let dropped = answer(5);
        drop(answered);
        while !commands.state.lock().has_ended {
            tokio::task::yield_now().await;
        }
        commands.send_here(&socket, b"5", 1, dropped);
        assert_eq!(answers.recv().await, None);
    }
}
