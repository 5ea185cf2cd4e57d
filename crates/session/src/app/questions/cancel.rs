//! Cancels questions whose clients have disconnected before the answer.
//!
//! Events aren't cancelled: the application behind the server has already received them.

use super::{Asked, Deferred, QUESTION_BYTES, Questions};
use crate::ports::{Authorizer, Denial};
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::SessionId;

impl Deferred {
    /// The number of the question. `None` if it is answered, or isn't about a subscription.
    fn open_subscription(&self) -> Option<u64> {
        let is_subscription = matches!(self.asked, Asked::Permission { is_subscription: true });
        (is_subscription && self.answer.is_none()).then_some(self.number)
    }
}

impl Questions {
    /// Notifies the port that decides a question that the client no longer waits.
    pub(super) fn cancel(&self, number: u64, asked: &Asked, authorizer: Option<&Arc<dyn Authorizer>>) {
        let ticket = self.tickets.of(number);
        if let Some(authorizer) = authorizer {
            authorizer.cancel(ticket);
        } else if let (Asked::Identity, Some(authenticator)) = (asked, self.identities.authenticator()) {
            authenticator.cancel(ticket);
        }
    }

    /// Cancels an open question and refuses it with [`Denial::UNAVAILABLE`].
    pub(super) fn refuse_open(&mut self, number: u64) {
        if let Some(question) = self.waiting.question(number) {
            self.cancel(number, &question.asked, question.authorizer.as_ref());
        }
        self.decide(number, Err(Denial::UNAVAILABLE));
    }

    /// Drops the open questions about subscriptions of a connection whose client has disconnected, so that the client's
    /// further input is handled. `may_refuse` is `true` if refusing such a subscription has no other effect and the session
    /// continues.
    pub(crate) fn drop_subscriptions(&mut self, conn: ConnId, may_refuse: bool) {
        let Some(waiting) = self.waiting.by_conn.get(&conn) else { return };
        if waiting.feeds.is_some() {
            // A refusal would end the session. Without an answer, the session continues without the subscription.
            self.forget(conn);
            self.waiting.decided.push_back(conn);
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
