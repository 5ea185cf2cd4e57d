//! The connections of a core that wait for answers.
//!
//! **Invariants.** A question in `open` is among the questions of its connection, and has no answer. A connection in
//! `decided` has waited, and has no open question.

use super::open::Open;
use super::{Asked, Deferred, Feeds};
use crate::identity::ClientId;
use crate::ports::Denial;
use std::collections::{BTreeMap, VecDeque};
use stentor_frame::ConnId;
use stentor_hub::SessionId;

/// The questions of a connection, open or answered.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) questions: Vec<Deferred>,
    /// Feeds to which a session is subscribed when all decisions have arrived.
    pub(super) feeds: Option<(SessionId, Feeds)>,
    /// The client whose messages wait on this connection.
    client: Option<ClientId>,
    /// Other connections with messages of this client. They wait for this connection.
    others: Vec<ConnId>,
    /// `true` if this connection waits for another connection of its client.
    follows: bool,
}

impl Waiting {
    fn is_open(&self) -> bool {
        self.follows || self.questions.iter().any(|question| question.answer.is_none())
    }
}

#[derive(Default)]
pub(crate) struct WaitingConnections {
    /// The connection that asked each open question.
    pub(super) open: Open,
    pub(super) by_conn: BTreeMap<ConnId, Waiting>,
    /// The connection on which the messages of each client wait.
    clients: BTreeMap<ClientId, ConnId>,
    /// Connections whose questions have all been answered.
    pub(super) decided: VecDeque<ConnId>,
}

impl WaitingConnections {
    /// Adds an open question of a connection.
    pub(super) fn push(&mut self, conn: ConnId, question: Deferred) {
        self.open.insert(question.number, conn, matches!(question.asked, Asked::Worker));
        self.by_conn.entry(conn).or_default().questions.push(question);
    }

    /// An open question.
    pub(super) fn question(&self, number: u64) -> Option<&Deferred> {
        let waiting = self.by_conn.get(self.open.get(&number)?)?;
        waiting.questions.iter().find(|question| question.number == number)
    }

    /// An open question.
    pub(super) fn question_mut(&mut self, number: u64) -> Option<&mut Deferred> {
        let waiting = self.by_conn.get_mut(self.open.get(&number)?)?;
        waiting.questions.iter_mut().find(|question| question.number == number)
    }

    /// Records the answer to a question. Returns `false` if the question isn't open.
    pub(super) fn answer(&mut self, number: u64, answer: Result<(), Denial>) -> bool {
        let Some(conn) = self.open.remove(&number) else { return false };
        let Some(waiting) = self.by_conn.get_mut(&conn) else { return true };
        if let Some(question) = waiting.questions.iter_mut().find(|question| question.number == number) {
            question.answer = Some(answer);
        }
        if !waiting.is_open() {
            self.decided.push_back(conn);
        }
        true
    }

    /// Removes a connection. The connections that waited for it continue. Returns its questions, of which some may be in `open`.
    pub(super) fn remove(&mut self, conn: ConnId) -> Vec<Deferred> {
        let Some(waiting) = self.by_conn.remove(&conn) else { return Vec::new() };
        if let Some(client) = waiting.client
            && self.clients.get(&client) == Some(&conn)
        {
            self.clients.remove(&client);
        }
        for other in waiting.others {
            if self.by_conn.remove(&other).is_some() {
                self.decided.push_back(other);
            }
        }
        waiting.questions
    }

    /// Returns `true` if a question exists, open or answered.
    pub(crate) fn knows(&self, number: u64) -> bool {
        self.by_conn.values().flat_map(|waiting| &waiting.questions).any(|question| question.number == number)
    }

    /// Returns `true` if a connection waits for a decision.
    #[inline]
    pub(crate) fn is_waiting(&self, conn: ConnId) -> bool {
        !self.by_conn.is_empty() && self.by_conn.get(&conn).is_some_and(Waiting::is_open)
    }

    /// Keeps feeds with a connection, to which a session is subscribed when all answers have arrived. Until then, other
    /// connections of `client` wait.
    pub(crate) fn keep_feeds(
        &mut self,
        conn: ConnId,
        session: SessionId,
        feeds: Feeds,
        client: Option<ClientId>,
    ) {
        if let Some(waiting) = self.by_conn.get_mut(&conn) {
            waiting.feeds = Some((session, feeds));
        }
        client.into_iter().for_each(|client| self.hold_client(conn, client));
    }

    /// Takes the feeds that wait on a connection.
    pub(crate) fn take_feeds(&mut self, conn: ConnId) -> Option<(SessionId, Feeds)> {
        self.by_conn.get_mut(&conn)?.feeds.take()
    }

    /// Records that messages of a client wait on a connection.
    pub(crate) fn hold_client(&mut self, conn: ConnId, client: ClientId) {
        if let Some(waiting) = self.by_conn.get_mut(&conn) {
            waiting.client = Some(client);
            self.clients.entry(client).or_insert(conn);
        }
    }

    /// The client whose messages wait on a connection.
    pub(crate) fn client_held_by(&self, conn: ConnId) -> Option<ClientId> {
        self.by_conn.get(&conn)?.client
    }

    /// Returns `true` if earlier messages of a client wait on another connection than `conn`. If so, `conn` waits for that one.
    #[inline]
    pub(crate) fn waits_for_earlier(&mut self, conn: ConnId, client: ClientId) -> bool {
        !self.clients.is_empty() && self.follow(conn, client)
    }

    fn follow(&mut self, conn: ConnId, client: ClientId) -> bool {
        let Some(first) = self.clients.get(&client).copied() else { return false };
        if conn == first {
            return false;
        }
        if let Some(waiting) = self.by_conn.get_mut(&first)
            && !waiting.others.contains(&conn)
        {
            waiting.others.push(conn);
        }
        self.by_conn.entry(conn).or_default().follows = true;
        true
    }

    /// The next connection whose questions have all been answered.
    pub(crate) fn poll_decided(&mut self) -> Option<ConnId> {
        self.decided.pop_front()
    }
}
