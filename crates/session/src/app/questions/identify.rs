//! Questions about the identities of clients, and answers that arrive later.

use super::{Asked, Decided, Deferred, Identities, Questions, Refused};
use crate::budget::Budget;
use crate::ports::{Authentication, Authenticator, Credentials, Denial, Identity, SignatureWork};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stentor_frame::ConnId;

/// The question about a client's token.
fn digest_of(identities: &Identities, credentials: &Credentials<'_>) -> Asked {
    Asked::Identity(identities.digest(credentials.token.unwrap_or_default(), credentials.client.namespace))
}

impl Questions {
    /// The state of a question that a connection has asked before. `None` if the question must be asked, perhaps again
    /// because the rules have changed.
    pub(super) fn answer_of(
        &mut self,
        asker: Option<ConnId>,
        is_it: impl Fn(&Asked) -> bool,
    ) -> Option<Result<Option<Arc<Identity>>, Refused>> {
        let generation = self.identities.generation();
        let questions = &mut self.waiting.get_mut(&asker?)?.questions;
        let at = questions.iter().position(|question| is_it(&question.asked))?;
        let Deferred { answer, identity, generation: asked_in, .. } = &questions[at];
        let Some(answer) = answer else { return Some(Err(Refused::Pending)) };
        if *asked_in != generation {
            questions.remove(at);
            return None;
        }
        Some(answer.clone().map(|()| identity.clone()).map_err(Refused::Denied))
    }

    /// Verifies the identity of a client. Returns `None` if there is no authenticator. `decided` is the decision for which
    /// the client waited, if any. A refused token counts as work of the current connection; signatures count as work of the
    /// core's turn.
    pub(crate) fn identify(
        &mut self,
        now: Instant,
        credentials: &Credentials<'_>,
        decided: Option<Decided>,
        budget: &mut Budget,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        let Some(authenticator) = self.identities.authenticator().cloned() else { return Ok(None) };
        if let Some(decided) = decided {
            match (decided.answer, decided.identity) {
                // A token that was postponed is verified from the start when its turn has come.
                (Ok(()), None) => return self.verify(now, &authenticator, credentials, true, budget),
                (answer, identity) if decided.is_current => {
                    return self.check_late(answer.map(|()| identity).map_err(Refused::Denied));
                }
                _ => {}
            }
        }
        // A digest is needed only while connections wait: most tokens are verified at once.
        let mut is_its_turn = self.unverified.is_empty();
        if !self.waiting.is_empty() {
            let asked = digest_of(&self.identities, credentials);
            if self.take_turn(&asked) {
                is_its_turn = true;
            } else if let Some(answer) = self.answer_of(self.asker, |other| *other == asked) {
                return self.check_late(answer);
            }
        }
        self.verify(now, &authenticator, credentials, is_its_turn, budget)
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
        authenticator: &Arc<dyn Authenticator>,
        credentials: &Credentials<'_>,
        is_its_turn: bool,
        budget: &mut Budget,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        let Credentials { token, client } = credentials;
        let asked = |identities: &Identities| digest_of(identities, credentials);
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
            Authentication::Pending => {
                self.wait(now, self.asker, client.source(), asked(&self.identities), number, None)
            }
            Authentication::Postponed => {
                let refused =
                    self.wait(now, self.asker, client.source(), asked(&self.identities), number, None);
                if let Err(Refused::Pending) = refused {
                    self.unverified.push(client.source(), number);
                }
                refused
            }
        }
    }

    /// Whether the current connection's token was postponed and its turn has come. If so, forgets the question, so that the
    /// token is verified from the start.
    fn take_turn(&mut self, asked: &Asked) -> bool {
        let Some(waiting) = self.asker.and_then(|conn| self.waiting.get_mut(&conn)) else { return false };
        let is_due = |question: &Deferred| {
            question.asked == *asked && question.answer == Some(Ok(())) && question.identity.is_none()
        };
        let at = waiting.questions.iter().position(is_due);
        at.map(|at| waiting.questions.remove(at)).is_some()
    }

    /// Handles a late answer to a question of [`Self::identify`]. No effect if the question isn't open.
    pub(crate) fn identified(&mut self, number: u64, answer: Result<Arc<Identity>, Denial>) {
        let waiting = self.open.get(&number).and_then(|conn| self.waiting.get_mut(conn));
        let mut questions = waiting.into_iter().flat_map(|waiting| &mut waiting.questions);
        let Some(question) = questions.find(|question| question.number == number) else { return };
        if !matches!(question.asked, Asked::Identity(_)) {
            return;
        }
        let answer = answer.map(|identity| question.identity = Some(identity));
        self.decide(number, answer);
    }
}
