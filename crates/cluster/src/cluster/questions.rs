//! Questions to other nodes, and the answers to theirs.

use super::Cluster;
use crate::NodeId;
use crate::calls::receiver_for;
use crate::clock;
use crate::engine::Channel;
use crate::finish::Finish;
use crate::frame::{AnswerError, Answered, Frame, Question};
use crate::metrics::count;
use crate::surveys::Surveyed;
use crate::tasks::{command, done};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_ports::{Acknowledged, LocalNode, PublicId};

impl Cluster {
    /// Asks other nodes: those in `to`, or all if `to` is `None`. `answer` is this node's own answer.
    pub(crate) fn survey(
        &self,
        to: Option<&BTreeSet<NodeId>>,
        question: Question,
        answer: Answered,
        finish: Finish,
    ) {
        let (nodes, id) = {
            let state = &mut *self.state.lock();
            let others = state.registry.others().map(|(node, _)| node);
            let nodes: BTreeSet<NodeId> =
                others.filter(|node| to.is_none_or(|to| to.contains(node))).collect();
            let asked = nodes.iter().copied().chain([self.node()]);
            let id = if nodes.is_empty() { None } else { state.surveys.begin(clock::now(), asked) };
            (nodes, id)
        };
        let Some(id) = id else {
            if !nodes.is_empty() {
                count(&self.counters.surveys.refused);
            }
            // The nodes that aren't asked, because too many questions wait, count as missing.
            let result = Surveyed { answers: vec![answer], missing: nodes };
            return finish.answer(result, |node| self.name_of(node));
        };
        count(&self.counters.surveys.begun);
        {
            let state = &mut *self.state.lock();
            state.surveys.handle_answer(clock::now(), id, self.node(), Some(answer));
            state.finishes.insert(id, finish);
        }
        let frame = Frame::Question { id, question };
        let is_lost = |channel| self.send(channel, &frame).is_err();
        let unasked: Vec<NodeId> = match to {
            None if is_lost(Channel::Nodes) => nodes.into_iter().collect(),
            None => Vec::new(),
            Some(_) => nodes.into_iter().filter(|node| is_lost(Channel::Node(*node))).collect(),
        };
        if !unasked.is_empty() {
            let surveys = &mut self.state.lock().surveys;
            unasked.into_iter().for_each(|node| surveys.handle_answer(clock::now(), id, node, None));
        }
        self.surveyed.notify_one();
    }

    /// The other nodes that have given these ids to sessions. Empty if the issuer of one of them isn't alive, or is unknown.
    pub(crate) fn issuers_of(&self, ids: impl Iterator<Item = PublicId>) -> BTreeSet<NodeId> {
        let known = self.state.lock().registry.issuers();
        let issuers: Option<BTreeSet<NodeId>> = ids.map(|id| known.find(id)).collect();
        let mut issuers = issuers.unwrap_or_default();
        issuers.remove(&self.node());
        issuers
    }

    /// Begins a call. `answered` receives the acknowledgements of other nodes. Returns the call's id, or `None` if too many calls wait.
    pub(crate) fn begin_call(&self, timeout: Duration, answered: &Acknowledged) -> Option<u64> {
        self.state.lock().calls.begin(clock::now(), timeout, answered)
    }

    /// Answers the surveys that have a result.
    pub(super) fn finish_surveys(&self, now: Instant) {
        let finished: Vec<_> = {
            let state = &mut *self.state.lock();
            state.calls.expire(now);
            let ids = state.surveys.finished(now);
            ids.into_iter()
                .filter_map(|id| Some((state.surveys.poll(now, id)?, state.finishes.remove(&id)?)))
                .collect()
        };
        for (result, finish) in finished {
            if !result.missing.is_empty() {
                count(&self.counters.surveys.incomplete);
            }
            finish.answer(result, |node| self.name_of(node));
        }
    }

    /// Answers another node's question.
    pub(super) fn answer(
        self: &Arc<Self>,
        asker: NodeId,
        id: u64,
        question: Question,
        plane: &Arc<dyn LocalNode>,
    ) {
        let this = self.clone();
        let reply = move |answer: Result<Answered, AnswerError>| {
            // If the engine's queue is full, the asker reports this node as missing.
            let _ = this.send(Channel::Node(asker), &Frame::Answer { id, answer });
        };
        let this = self.clone();
        let answered = move |call| {
            let ledger = this.options.ledger.clone();
            // If the engine's queue is full, the acknowledgements are missing in the asker's result.
            receiver_for(move |frame| _ = this.send(Channel::Node(asker), frame), call, &ledger)
        };
        match question {
            Question::Rooms(query) => plane.list_rooms(query, done(reply, Answered::Rooms)),
            Question::Members(query) => plane.list_members(query, done(reply, Answered::Members)),
            Question::Recheck(recheck) => self.answer_recheck(recheck, reply, &**plane),
            Question::Sessions(target, task) => match command(task, answered, reply) {
                Some(command) => plane.command(target, command),
                None => tracing::debug!("a question without rooms"),
            },
            Question::Sockets(app, target, task) => match command(task, answered, reply) {
                Some(command) => plane.command_link(self.number_of(&app), target, command),
                None => tracing::debug!("a question without rooms"),
            },
            Question::Feeds(query) => self.list_own_feeds(query, done(reply, Answered::Feeds)),
            Question::Subscribers(keys) => {
                plane.count_subscribers(keys, done(reply, Answered::Subscribers));
            }
            Question::Links => reply(Ok(Answered::Links(self.own_links()))),
            Question::SocketRooms(app, query) => {
                plane.list_link_rooms(self.number_of(&app), query, done(reply, Answered::Rooms));
            }
            Question::NodeSessions(query) => {
                plane.list_sessions(query, self.naming(done(reply, Answered::Sessions)));
            }
        }
    }
}
