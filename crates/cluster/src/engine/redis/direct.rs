//! Publishing from the thread that has a message.
//!
//! ```text
//!  a core ── message ──► queue ── nothing waits for a reply: written by the core ──► socket
//!                          └───── otherwise: the next batch of the publisher's task ──► socket
//! ```
//!
//! A message that comes alone so wakes no other thread of the node before it is on its way. While it waits for its reply, further messages
//! collect in the queue. The reply wakes the engine's thread in any case, which then publishes them as one batch.
//!
//! **Invariant.** Messages leave in the order of the queue: the publisher's task takes the line before it takes messages, and a thread that
//! writes directly holds the lock of the line.

use super::publications::{Publications, Publish, first_refusal, take_batch};
use super::receiver::{Commands, Replies};
use crate::engine::common::Outgoing;
use parking_lot::Mutex;
use std::net::TcpStream;
use std::sync::{Arc, Weak};

/// Largest message that a core writes itself.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The use of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is no connection, it is encrypted, or the publisher's task uses it.
    #[default]
    Taken,
    /// No message waits for its reply.
    Idle,
    /// A message that was written directly waits for its reply.
    InFlight,
}

#[derive(Default)]
struct Line {
    phase: Phase,
    connection: Option<(Commands, TcpStream)>,
    /// The first refusal of this connection, until it is logged.
    refusal: Option<String>,
}

/// The messages of a node that wait for a server, and the connection that publishes them.
pub(crate) struct Direct {
    pub(crate) outgoing: Outgoing,
    pub(crate) publish: Publish,
    line: Mutex<Line>,
    this: Weak<Self>,
}

impl Direct {
    /// A queue without a connection.
    pub(crate) fn new(outgoing: Outgoing, publish: Publish) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { outgoing, publish, line: Mutex::default(), this: this.clone() })
    }

    /// Publishes the message that was appended to the queue, of this size.
    pub(crate) fn flush(&self, bytes: usize) {
        if bytes > MESSAGE_BYTES_MAX || !self.write() {
            self.outgoing.notify();
        }
    }

    /// Writes waiting messages. Returns `false` if the publisher's task must be woken for them.
    fn write(&self) -> bool {
        // Another thread writes at the moment, or handles a reply.
        let Some(mut line) = self.line.try_lock() else { return false };
        let Line { phase, connection: Some((commands, socket)), .. } = &mut *line else { return false };
        match phase {
            Phase::Taken => return false,
            // The reply leads to the next batch.
            Phase::InFlight => return true,
            Phase::Idle => {}
        }
        // Another thread has published the message.
        let Some((batch, permit)) = take_batch(&self.outgoing) else { return true };
        let mut publications = Publications::default();
        batch.iter().for_each(|(channel, payload)| self.publish.add(&mut publications, channel, payload));
        *phase = Phase::InFlight;
        let this = self.this.clone();
        commands.send_here(socket, &publications.packed, publications.count, move |replies| {
            drop(permit);
            if let Some(this) = this.upgrade() {
                this.handle_replies(replies);
            }
        });
        true
    }

    fn handle_replies(&self, replies: Replies) {
        let refusal = first_refusal(replies.values);
        let is_refused = refusal.is_some();
        {
            let mut line = self.line.lock();
            line.refusal = line.refusal.take().or(refusal);
            if line.phase == Phase::InFlight {
                line.phase = Phase::Idle;
            }
        }
        if is_refused || !self.outgoing.is_empty() {
            self.outgoing.notify();
        }
    }

    /// Sets the connection, which the publisher's task uses first. `None` when it is lost.
    pub(super) fn connect(&self, connection: Option<(Commands, TcpStream)>) {
        let before = std::mem::replace(&mut *self.line.lock(), Line { connection, ..Line::default() });
        drop(before);
    }

    /// Takes the connection for the publisher's task. Returns the first refusal of a message that was written directly.
    pub(super) fn take(&self) -> Option<String> {
        let line = &mut *self.line.lock();
        line.phase = Phase::Taken;
        line.refusal.take()
    }

    /// Lets other threads write. A message that has been added in the meantime has woken the task.
    pub(super) fn release(&self) {
        self.line.lock().phase = Phase::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Limits;
    use crate::engine::common::Stream;
    use crate::engine::redis::receiver;
    use bytes::Bytes;
    use stentor_ports::Ledger;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    fn publish(messages: &Direct, channel: &str) {
        messages.outgoing.append(channel.into(), Bytes::from_static(b"x")).unwrap();
        messages.flush(1);
    }

    #[tokio::test]
    async fn a_message_that_comes_alone_is_written_at_once_and_others_wait_for_its_reply() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let ledger = Arc::new(Ledger::new(1 << 20));
        let socket = stream.socket().unwrap();
        let (commands, _driver) = receiver::start(stream, None, &ledger);
        let outgoing = Outgoing::new(ledger, &Limits::default());
        let messages = Direct::new(outgoing, Publish { command: "PUBLISH", prefix: b":" });
        publish(&messages, "a");
        // Without a connection, the publisher's task is woken.
        messages.outgoing.added().await;
        messages.connect(Some((commands, socket)));
        messages.release();
        for channel in ["b", "c"] {
            publish(&messages, channel);
        }
        let mut received = [0; 256];
        let read = server.read(&mut received).await.unwrap();
        let command = |channel| format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\n{channel}\r\n$2\r\n:x\r\n");
        assert_eq!(str::from_utf8(&received[..read]), Ok(&*(command("a") + &command("b"))));
        assert_eq!(messages.outgoing.unsent().0, 3);
        server.write_all(b":1\r\n:1\r\n").await.unwrap();
        messages.outgoing.added().await;
        assert_eq!(messages.outgoing.unsent().0, 1);
        assert_eq!(messages.take(), None);
        let (batch, permit) = take_batch(&messages.outgoing).unwrap();
        assert_eq!(batch, [("c".to_owned(), Bytes::from_static(b"x"))]);
        drop(permit);
        // While the task has the connection, it is woken. It also gets the refusal of a message.
        publish(&messages, "d");
        messages.outgoing.added().await;
        messages.release();
        messages.flush(1);
        server.write_all(b"-NOPERM no\r\n").await.unwrap();
        messages.outgoing.added().await;
        assert!(messages.take().is_some());
        assert_eq!(messages.outgoing.unsent(), (0, 0));
    }
}
