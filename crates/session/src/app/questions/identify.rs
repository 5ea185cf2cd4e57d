//! Questions about the identities of clients, and answers that arrive later.

use super::{Asked, Decided, Questions, Refused};
use crate::budget::Budget;
use crate::ports::{
    Authentication, Authenticator, Credentials, Denial, Identity, ReservedSession, SignatureWork,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_frame::ConnId;

impl Questions {
    /// Verifies the identity of a client. Returns `None` if there is no authenticator. `asker` is the connection that
    /// can wait for the decision, and `decided` the decision for which it waited, if any. `reserve` reserves the id of the session
    /// that the client will have. A refused token counts as work of the current connection; signatures count as work of the
    /// core's turn.
    pub(crate) fn identify(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        credentials: &Credentials<'_>,
        decided: Option<Decided>,
        budget: &mut Budget,
        reserve: impl FnOnce() -> Option<Arc<ReservedSession>>,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        let Some(authenticator) = self.identities.authenticator().cloned() else { return Ok(None) };
        let mut is_its_turn = self.unverified.is_empty();
        if let Some(decided) = decided {
            match (decided.answer, decided.identity) {
                // A token that was postponed is verified from the start when its turn has come.
                (Ok(()), None) => is_its_turn = true,
                (answer, identity) if decided.is_current => {
                    return self.check_late(answer.map(|()| identity).map_err(Refused::Denied));
                }
                _ => {}
            }
        }
        let reserved = if authenticator.reserves_sessions() { reserve() } else { None };
        let credentials = Credentials { session: reserved.as_ref(), ..*credentials };
        self.verify(now, asker, &authenticator, &credentials, is_its_turn, budget)
    }

    /// Checks an identity whose verification took time. If the identity was revoked in the meantime, there was no session
    /// to end.
    fn check_late(
        &mut self,
        answer: Result<Option<Arc<Identity>>, Refused>,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        let answer = answer.and_then(|identity| match identity {
            Some(identity) if self.identities.is_revoked(&identity) => {
                Err(Refused::Denied(Denial::TOKEN_REVOKED))
            }
            identity => Ok(identity),
        });
        self.identities.refused += u64::from(matches!(answer, Err(Refused::Denied(_))));
        answer
    }

    /// Verifies a client's token. If it isn't the token's turn, a token that needs a signature is verified later.
    fn verify(
        &mut self,
        now: Instant,
        asker: Option<ConnId>,
        authenticator: &Arc<dyn Authenticator>,
        credentials: &Credentials<'_>,
        is_its_turn: bool,
        budget: &mut Budget,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        let Credentials { token, client, .. } = credentials;
        let number = self.tickets.draw();
        let asking = self.tickets.asking(number);
        let answer = if is_its_turn {
            authenticator.authenticate(asking, credentials, &mut budget.signatures)
        } else {
            authenticator.authenticate(asking, credentials, &mut SignatureWork::new(Duration::ZERO))
        };
        match answer {
            Authentication::Accepted(identity) => Ok(Some(identity)),
            Authentication::Refused(denial) => {
                self.identities.refused += 1;
                if token.is_some() {
                    budget.count_refused_token();
                }
                Err(Refused::Denied(denial))
            }
            Authentication::Pending => self.wait(now, asker, client.source(), Asked::Identity, number, None),
            Authentication::Postponed => {
                let refused = self.wait(now, asker, client.source(), Asked::Identity, number, None);
                if let Err(Refused::Pending) = refused {
                    self.unverified.push(client.source(), number);
                }
                refused
            }
        }
    }

    /// Handles a late answer to a question of [`Self::identify`]. No effect if the question isn't open.
    pub(crate) fn identified(&mut self, number: u64, answer: Result<Arc<Identity>, Denial>) {
        let Some(question) = self.waiting.question_mut(number) else { return };
        if !matches!(question.asked, Asked::Identity) {
            return;
        }
        let answer = answer.map(|identity| question.identity = Some(identity));
        self.decide(number, answer);
    }
}
