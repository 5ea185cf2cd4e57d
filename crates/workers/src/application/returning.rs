//! Clients that return: to the node that has their socket, or to another node of a cluster, which asks the others for it.

use super::{Applications, id_of, to_cores, to_worker};
use crate::known::can_be_kept;
use crate::recovery::{Given, Had, Key, Persisted, Report, detach};
use crate::searches::{Asker, Finished};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Instant;
use stentor_link::{Json, Messages, NodeEntry, ServerEntry};
use stentor_ports::LinkSession;

/// Maximum length of an answer to another node, in bytes. A client that needs a longer one isn't recovered.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Size of the messages that wait for the engine above which this node gives no further sockets to other nodes. The answers to one message
/// could otherwise have 1,000 times its size, and the node that asks would drop them, and broadcasts with them.
const WAITING_BYTES_MAX: usize = 2 << 20;

/// The socket in TAKEN.
#[derive(Serialize, Deserialize)]
struct Taken<'a> {
    sid: String,
    rooms: Vec<Box<str>>,
    #[serde(borrow)]
    data: &'a RawValue,
    last: String,
    had: Report,
}

/// Reads the answer of a node. `None`: it is malformed.
fn read_taken(socket: &Json, missed: Messages, node: u64) -> Option<(Given, Had)> {
    let Taken { sid, rooms, data, last, had } = serde_json::from_str(socket.as_str()).ok()?;
    let data = Json::new(data.get()).filter(can_be_kept)?;
    let mut missed = to_cores(missed);
    detach(&mut missed);
    let socket = Persisted { id: sid.into(), rooms, data, brought: None };
    Some((Given { socket, missed, last: last.into() }, Had::read(&had, node)))
}

impl Applications {
    /// A worker has written RESTORE: a client of the session shows a private id, and an offset. Another node may have the socket.
    pub(super) fn restore(
        &mut self,
        app: usize,
        (link, session, request): (u32, LinkSession, u32),
        key: Key,
        offset: &str,
        now: Instant,
    ) {
        let recovery = &mut self.recoveries[app];
        let can_answer = self.applications[app].link(link).is_some_and(|link| link.has_room_for_answers());
        let socket = if can_answer { recovery.claim(session, key.clone(), offset, now) } else { None };
        let socket = socket.and_then(Persisted::restored);
        let is_elsewhere = socket.is_none() && can_answer && !recovery.has(&key);
        if !(is_elsewhere && self.search(app, (session, request), key, offset, now)) {
            self.answer_restore(app, link, request, socket, now);
        }
    }

    /// Asks the other nodes for a socket. Returns `false` if there is none to ask.
    fn search(
        &mut self,
        app: usize,
        (session, request): (LinkSession, u32),
        key: Key,
        offset: &str,
        now: Instant,
    ) -> bool {
        let Some(nodes) = &mut self.nodes else { return false };
        let Some(owner) = self.applications[app].known_by(id_of(session)) else { return false };
        let (namespace, pid) = ((*key.0).into(), key.1.clone());
        let asker = Asker { app, session, owner, request, key };
        if !self.sessions.may_search(session) {
            return false;
        }
        let Ok(request) = self.searches.begin(asker, offset, nodes.neighbors(app), now) else { return false };
        nodes.write(app, None, &NodeEntry::Take { request, namespace, pid, offset: offset.into() });
        true
    }

    /// Writes RESTORED.
    fn answer_restore(&mut self, app: usize, link: u32, request: u32, socket: Option<Json>, now: Instant) {
        if socket.is_none() {
            self.recoveries[app].count_failed();
        }
        let Some(socket) = socket.or_else(|| Json::new("null")) else { return };
        self.applications[app].write_to_link(link, &ServerEntry::Restored { request, socket }, now);
    }

    /// Another node asks for a socket whose client has returned there.
    pub(super) fn handle_take(
        &mut self,
        app: usize,
        (node, request): (u64, u32),
        key: &Key,
        offset: &str,
        now: Instant,
    ) {
        let Some(nodes) = &mut self.nodes else { return };
        let recovery = &mut self.recoveries[app];
        let has_room = nodes.outgoing_bytes() <= WAITING_BYTES_MAX;
        let given = if has_room { recovery.give(key, offset, now) } else { None };
        let given = given.filter(|given| given.missed.len() <= u16::MAX.into());
        let taken = given.and_then(|Given { socket: Persisted { id, rooms, data, .. }, missed, last }| {
            let (data, had) = (serde_json::from_str(data.as_str()).ok()?, recovery.origins.report(node));
            let text =
                serde_json::to_string(&Taken { sid: id.into(), rooms, data, last: last.into(), had }).ok()?;
            Some(NodeEntry::Taken { request, socket: Json::new(text)?, missed: to_worker(missed) })
        });
        let none = || {
            let (socket, missed) = (Json::new("null")?, Messages::new());
            Some(NodeEntry::Taken { request, socket, missed })
        };
        let answer = taken.filter(|taken| stentor_link::Entry::encoded_len(taken) <= ANSWER_BYTES_MAX);
        if let Some(answer) = answer.or_else(none) {
            nodes.write(app, Some(node), &answer);
        }
    }

    /// Another node has answered. Returns `false` if the answer is malformed.
    pub(super) fn handle_taken(
        &mut self,
        app: usize,
        (node, request): (u64, u32),
        socket: &Json,
        missed: Messages,
        now: Instant,
    ) -> bool {
        if self.searches.app_of(request, node) != Some(app) {
            // The answer is late: the client has a new session.
            return true;
        }
        let found = if socket.as_str() == "null" { None } else { read_taken(socket, missed, node) };
        let is_valid = found.is_some() || socket.as_str() == "null";
        match (found, &self.nodes) {
            (Some(found), Some(nodes)) => {
                // Until then, broadcasts that the other node has had may be on their way to this one.
                let until = now + nodes.delay_max();
                let finished = self.searches.handle_found(request, found, until);
                self.finish_searches(finished, now);
                self.handle_searches(now);
            }
            _ => {
                let finished = self.searches.handle_none(request, node);
                self.finish_searches(finished, now);
            }
        }
        is_valid
    }

    /// Finishes the questions that are due.
    pub(super) fn handle_searches(&mut self, now: Instant) {
        let finished = self.searches.handle_timeout(now);
        self.finish_searches(finished, now);
    }

    /// Answers the workers whose questions are finished.
    pub(super) fn finish_searches(&mut self, finished: impl IntoIterator<Item = Finished>, now: Instant) {
        for (Asker { app, session, owner, request, key }, found) in finished {
            let application = &self.applications[app];
            // Otherwise the session has ended, or another worker has it.
            if application.known_by(id_of(session)) == Some(owner) {
                let can_answer = application.link(owner.0).is_some_and(|link| link.has_room_for_answers());
                let found = found.filter(|_| can_answer);
                let socket = found.and_then(|found| self.recoveries[app].bring(session, key, found, now));
                let socket = socket.and_then(Persisted::restored);
                self.answer_restore(app, owner.0, request, socket, now);
                self.act(app, now);
            }
        }
    }
}
