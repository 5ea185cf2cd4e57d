//! Sockets whose clients return to another node of a cluster.
//!
//! The node that has the socket gives it away, with the messages that the client has missed there, and the numbers of the broadcasts that
//! this node has had ([`Had`]). The client's new node adds the broadcasts of its own log that the former node hasn't had.
//!
//! The logs of two nodes have different orders. So a client that has returned is recovered again only if it has received all that it had
//! missed then ([`super::Brought`]).
//!
//! **Invariant.** The new node has all broadcasts that the former one has had, except those that the engine has lost, before a worker
//! gets the socket: an engine delivers in order, or within a known time. So no message arrives twice.

use super::origins::Had;
use super::{
    CLAIM_MIN, Claim, Kept, Key, Logged, Persisted, Recovery, SOCKET_BYTES_MAX, content, kept_bytes,
};
use std::time::Instant;
use stentor_ports::{LinkMessages, LinkSession};

/// A socket that a node gives to another one.
#[derive(Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) socket: Persisted,
    /// The messages that the client has missed.
    pub(crate) missed: LinkMessages,
    /// Offset of the last of them, or of the last one that the client has received.
    pub(crate) last: Box<str>,
}

impl Given {
    pub(crate) fn bytes(&self) -> usize {
        kept_bytes("", &self.socket) + content(&self.missed)
    }
}

/// The part of a claim that another node has given.
pub(super) struct Moved {
    /// The broadcasts that the client has received or that are among `missed`.
    pub(super) had: Had,
    pub(super) missed: LinkMessages,
    pub(super) last: Box<str>,
}

impl Moved {
    /// `true` if the client doesn't miss a broadcast of this node's log.
    pub(super) fn has(&self, logged: &Logged) -> bool {
        is_had(&self.had, logged)
    }

    pub(super) fn bytes(&self) -> usize {
        content(&self.missed) + self.had.bytes() + self.last.len()
    }
}

/// Returns `true` if a client from a node that has had these broadcasts doesn't miss a broadcast of this node's log: the former node has had it,
/// or it was only for sockets of this node.
fn is_had(had: &Had, logged: &Logged) -> bool {
    logged.broadcast.is_local || had.has(logged.source)
}

impl Recovery {
    /// `true` if this node has a socket, so that other nodes don't.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.sockets.contains_key(key) || self.unreported.has(key)
    }

    /// `true` while other nodes may take sockets.
    pub(crate) fn keeps_sockets(&self) -> bool {
        !(self.sockets.is_empty() && self.unreported.is_empty())
    }

    /// Gives a socket to another node, where its client shows the offset of the last message that it has received. `None`: the socket can't be
    /// recovered.
    pub(crate) fn give(&mut self, key: &Key, offset: &str, now: Instant) -> Option<Given> {
        self.handle_timeout(now);
        let (link, from) = self.find(key, offset, now)?;
        let socket = self.take(key, link)?.socket;
        let (mut missed, mut last) = (LinkMessages::new(), offset);
        for logged in self.missed(&key.0, &socket.rooms, from) {
            missed.extend(logged.broadcast.messages.iter().cloned());
            last = &logged.offset;
        }
        let last = last.into();
        Some(Given { socket, missed, last })
    }

    /// Takes a socket that another node has given. It then waits for [`Recovery::complete`]. `None`: the client has missed too much.
    pub(crate) fn bring(
        &mut self,
        session: LinkSession,
        (namespace, pid): Key,
        (given, had): (Given, Had),
        now: Instant,
    ) -> Option<&Persisted> {
        let Given { socket, missed, last } = given;
        let from = self.log.first_unknown(&had);
        let own = self.missed(&namespace, &socket.rooms, from).filter(|logged| !is_had(&had, logged));
        let bytes = own.map(|logged| content(&logged.broadcast.messages)).sum::<usize>() + content(&missed);
        if bytes > self.options.missed_bytes_max || kept_bytes(&pid, &socket) > SOCKET_BYTES_MAX {
            return None;
        }
        self.release(session, &namespace);
        let (number, until) = (self.next, now + CLAIM_MIN);
        self.next += 1;
        let kept = Some(Kept { socket, until, number });
        let claim = Claim { pid, kept, from, until, number, moved: Some(Moved { had, missed, last }) };
        let claimant = (session, namespace);
        self.add_claim(claimant.clone(), claim);
        self.added(now);
        self.claimed(&claimant)
    }
}
