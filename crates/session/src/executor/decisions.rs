//! Decisions: answers to questions, and the work that follows from the answers.

use super::Executor;
use crate::app::{ENVELOPE_BYTES, Identities};
use crate::ports::{Denial, EventEmit, EventReply, Identity};
use std::sync::Arc;
use std::time::Instant;
use stentor_frame::ConnId;
use stentor_hub::Room;

impl Executor {
    /// Handles the decision about a client's action. No effect if the question isn't open.
    pub fn decide(&mut self, number: u64, answer: Result<(), Denial>) {
        self.questions.decide(number, answer);
    }

    /// Handles the decision about a client's token. No effect if the question isn't open.
    pub fn decide_identity(&mut self, number: u64, answer: Result<Arc<Identity>, Denial>) {
        self.questions.identified(number, answer);
    }

    /// Answers the questions about a room, because sessions can join it now.
    pub fn prepared(&mut self, room: &Room) {
        self.questions.prepared(room);
    }

    /// Handles a reply of the application behind the server. If the event's client has disconnected, messages to rooms are
    /// still sent.
    pub fn reply(&mut self, number: u64, reply: Result<EventReply, Denial>) {
        if let Some(reply) = self.questions.reply(number, reply) {
            self.emit_reply(reply);
        }
    }

    /// Sends the messages to rooms of a reply to an event whose client has disconnected.
    pub(crate) fn emit_reply(&mut self, reply: EventReply) {
        for message in reply.emit.into_iter().filter(|message| message.rooms.is_some()) {
            let how = message.how();
            let EventEmit { rooms, event, data, .. } = message;
            let Some(rooms) = rooms else { continue };
            self.budget.count_published(data.len() + ENVELOPE_BYTES);
            let (hub, now) = (&mut self.hub, self.context.now);
            self.outlet.emit(hub, now, &rooms, (event, data), how, &[]);
        }
    }

    /// Refuses the questions that have timed out, and removes the deadlines of answered questions.
    pub fn expire_questions(&mut self) {
        self.questions.expire(self.context.now);
    }

    /// Refuses the questions that have timed out, and asks again about subscriptions whose review had no answer.
    pub fn tick_questions(&mut self) {
        self.expire_questions();
        self.questions.retry_reviews(self.context.now);
    }

    /// The time at which [`Self::expire_questions`] is due. The question with this deadline may already be answered.
    pub fn question_due(&self) -> Option<Instant> {
        self.questions.poll_timeout()
    }

    /// Returns `true` if a connection waits for a decision.
    #[inline]
    pub fn is_waiting(&self, conn: ConnId) -> bool {
        self.questions.waiting.is_waiting(conn)
    }

    /// Returns `true` if no work waits that decisions have caused.
    #[inline]
    pub fn has_no_decisions(&self) -> bool {
        self.questions.is_quiet()
    }

    /// Carries out one action that decisions have caused and that concerns no connection: releases a room, or ends a
    /// subscription. Returns `false` if there was none.
    pub fn carry_out_decision(&mut self) -> bool {
        if let Some(room) = self.questions.poll_released() {
            self.hub.handle_release(&room);
        } else if let Some((session, topic, denial)) = self.questions.poll_withdrawn() {
            self.withdraw(session, topic, denial);
        } else {
            return false;
        }
        true
    }

    /// The next connection whose questions have all been answered.
    pub fn poll_decided(&mut self) -> Option<ConnId> {
        self.questions.waiting.poll_decided()
    }

    /// Returns `true` if tokens wait for a later turn.
    pub fn has_unverified(&self) -> bool {
        self.questions.has_unverified()
    }

    /// Continues with the next waiting token if this turn of the core has time left. Returns `false` if it hasn't, or no
    /// token waits.
    pub fn poll_unverified(&mut self) -> bool {
        self.questions.poll_unverified(&self.budget.signatures)
    }

    /// Removes the questions of a connection that has ended.
    pub fn forget_questions(&mut self, conn: ConnId) {
        self.questions.forget(conn);
        if self.link.is_some() {
            self.forget_request(conn);
        }
    }

    /// Drops the open questions about subscriptions of a connection whose client has disconnected. `may_refuse` is `true`
    /// if refusing such a subscription has no other effect and the session continues.
    pub fn drop_subscriptions(&mut self, conn: ConnId, may_refuse: bool) {
        self.questions.drop_subscriptions(conn, may_refuse);
    }

    /// The identities of the sessions of this core.
    pub fn identities(&self) -> &Identities {
        &self.questions.identities
    }

    /// The identities of the sessions of this core, mutable.
    pub fn identities_mut(&mut self) -> &mut Identities {
        &mut self.questions.identities
    }
}
