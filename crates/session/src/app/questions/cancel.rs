//! Cancels questions whose clients have disconnected before the answer.
//!
//! Events aren't cancelled: the client has sent them, and the application behind the server receives them.

use super::{Asked, Deferred, QUESTION_BYTES, Questions};
use crate::ports::{Authorizer, Denial};
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::SessionId;

impl Deferred {
    /// The number of an open question whether a session may subscribe.
    fn open_subscription(&self) -> Option<u64> {
        let is_subscription = matches!(self.asked, Asked::Subscribe(_) | Asked::Presence(_));
        (is_subscription && self.answer.is_none()).then_some(self.number)
    }
}

impl Questions {
    /// Notifies the port that decides a question that its client doesn't wait any more.
    pub(super) fn cancel(&self, number: u64, asked: &Asked, authorizer: Option<&Arc<dyn Authorizer>>) {
        let ticket = self.tickets.of(number);
        if let Some(authorizer) = authorizer {
            authorizer.cancel(ticket);
        } else if let (Asked::Identity(_), Some(authenticator)) = (asked, self.identities.authenticator()) {
            authenticator.cancel(ticket);
        }
    }

    /// Refuses an open question without its answer.
    pub(super) fn refuse_open(&mut self, number: u64) {
        let waiting = self.open.get(&number).and_then(|conn| self.waiting.get(conn));
        let mut questions = waiting.into_iter().flat_map(|waiting| &waiting.questions);
        if let Some(question) = questions.find(|question| question.number == number) {
            self.cancel(number, &question.asked, question.authorizer.as_ref());
        }
        self.decide(number, Err(Denial::UNAVAILABLE));
    }

    /// Handles that the client of a connection has disconnected. Drops its open questions about subscriptions, so that its
    /// further input is handled. `may_refuse`: a message that subscribes has no other effect, and its session continues if it is
    /// refused.
    pub(crate) fn drop_subscriptions(&mut self, conn: ConnId, may_refuse: bool) {
        let Some(waiting) = self.waiting.get(&conn) else { return };
        if waiting.feeds.is_some() {
            // A refusal would end the session. Without a refusal, the session just isn't subscribed.
            self.forget(conn);
            self.decided.push_back(conn);
        } else if may_refuse {
            let numbers: Vec<u64> =
                waiting.questions.iter().filter_map(Deferred::open_subscription).collect();
            numbers.into_iter().for_each(|number| self.refuse_open(number));
        }
    }

    /// Cancels the questions of a session that has ended.
    pub(crate) fn close(&mut self, session: SessionId) {
        self.identities.remove(session);
        for (number, authorizer) in self.reviews.close(session) {
            self.charge.subtract(QUESTION_BYTES);
            authorizer.cancel(self.tickets.of(number));
        }
    }
}
