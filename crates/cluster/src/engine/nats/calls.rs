//! Requests to the server, and commands that are written as soon as possible.

use super::protocol::{self, Incoming};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use tokio::sync::{Notify, oneshot};

#[derive(Default)]
struct State {
    /// Number of the connection. Requests of earlier connections are lost.
    connection: u64,
    commands: VecDeque<Vec<u8>>,
    /// `true` if one of the commands is a report.
    has_report: bool,
    answers: HashMap<u64, oneshot::Sender<Incoming>>,
    pongs: VecDeque<oneshot::Sender<()>>,
    drawn: u64,
}

/// Commands to be written, and requests without an answer. Bounded by the permits of the node's requests.
pub(super) struct Calls {
    state: Mutex<State>,
    /// Prefix of the subjects of the server's answers.
    pub(super) inbox: String,
    /// Notified when commands wait to be written.
    pub(super) added: Notify,
}

impl Calls {
    pub(super) fn new(inbox: String) -> Self {
        Self { state: Mutex::default(), inbox, added: Notify::new() }
    }

    /// Drops pending requests, because the connection is lost or a new one begins. Returns the number of the next
    /// connection.
    pub(super) fn begin(&self) -> u64 {
        let state = &mut *self.state.lock();
        *state = State { connection: state.connection + 1, drawn: state.drawn, ..State::default() };
        state.connection
    }

    /// Queues a command for the current connection.
    pub(super) fn command(&self, command: impl Into<Vec<u8>>) {
        self.state.lock().commands.push_back(command.into());
        self.added.notify_one();
    }

    /// Queues a report about this node, unless one waits already. That one is published after all questions so far.
    pub(super) fn report(&self, command: Vec<u8>) {
        let state = &mut *self.state.lock();
        if !std::mem::replace(&mut state.has_report, true) {
            state.commands.push_back(command);
            self.added.notify_one();
        }
    }

    /// Makes a request on a connection. Its answer never comes if the connection is lost.
    pub(super) fn call(
        &self,
        connection: u64,
        subject: &str,
        headers: &str,
        payload: &[&[u8]],
    ) -> oneshot::Receiver<Incoming> {
        let (sender, receiver) = oneshot::channel();
        let state = &mut *self.state.lock();
        if state.connection == connection {
            state.drawn += 1;
            let mut command = Vec::new();
            let inbox = format!("{}.{}", self.inbox, state.drawn);
            protocol::publish(&mut command, subject, &inbox, headers, payload);
            state.commands.push_back(command);
            // Removes the requests of callers that have stopped waiting.
            if state.answers.len() >= 1_024 && state.drawn.is_multiple_of(1_024) {
                state.answers.retain(|_, answer| !answer.is_closed());
            }
            state.answers.insert(state.drawn, sender);
            self.added.notify_one();
        }
        receiver
    }

    /// Waits until the server has carried out all commands written before.
    pub(super) fn ping(&self, connection: u64) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let state = &mut *self.state.lock();
        if state.connection == connection {
            state.commands.push_back(b"PING\r\n".into());
            state.pongs.push_back(sender);
            self.added.notify_one();
        }
        receiver
    }

    /// Appends commands until `to` has about `bytes_max` bytes.
    pub(super) fn take(&self, to: &mut Vec<u8>, bytes_max: usize) {
        let mut state = self.state.lock();
        // A report that stays in the queue doesn't suppress another one.
        state.has_report = false;
        while to.len() < bytes_max
            && let Some(command) = state.commands.pop_front()
        {
            to.extend_from_slice(&command);
        }
    }

    pub(super) fn handle_pong(&self) {
        let pong = self.state.lock().pongs.pop_front();
        // The caller may have stopped waiting.
        let _ = pong.map(|pong| pong.send(()));
    }

    pub(super) fn handle_answer(&self, message: Incoming) {
        let id = message.subject.rsplit_once('.').and_then(|(_, id)| id.parse::<u64>().ok());
        let answer = id.and_then(|id| self.state.lock().answers.remove(&id));
        let _ = answer.map(|answer| answer.send(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_questions_are_answered_by_one_report() {
        let calls = Calls::new(String::new());
        let written = || {
            let mut written = Vec::new();
            calls.take(&mut written, 1_024);
            String::from_utf8_lossy(&written).into_owned()
        };
        calls.command("PONG,");
        (0..1_000).for_each(|_| calls.report(b"report,".into()));
        assert_eq!(written(), "PONG,report,");
        // A later question may come from a node that hasn't received the first report.
        calls.report(b"again,".into());
        assert_eq!(written(), "again,");
    }
}
