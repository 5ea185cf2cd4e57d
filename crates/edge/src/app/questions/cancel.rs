//! Questions whose clients have gone before the answer.
//!
//! Events aren't cancelled: the client has sent them, and the application behind the server receives them.

use super::{Asked, QUESTION_BYTES, Questions};
use crate::ports::{Authorizer, Ticket};
use std::sync::Arc;
use stentor_hub::SessionId;

impl Questions {
    /// Tells the port that decides a question that its client doesn't wait any more.
    pub(super) fn cancel(&self, number: u64, asked: &Asked, authorizer: Option<&Arc<dyn Authorizer>>) {
        let ticket = Ticket { core: self.core, number };
        if let Some(authorizer) = authorizer {
            authorizer.cancel(ticket);
        } else if let (Asked::Identity(_), Some(authenticator)) = (asked, self.identities.authenticator()) {
            authenticator.cancel(ticket);
        }
    }

    /// A session has ended.
    pub(crate) fn close(&mut self, session: SessionId) {
        self.identities.remove(session);
        for (number, authorizer) in self.reviews.close(session) {
            self.charge.subtract(QUESTION_BYTES);
            authorizer.cancel(Ticket { core: self.core, number });
        }
    }
}
