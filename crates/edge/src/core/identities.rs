//! Tokens that expire, and identities that are looked at again.
//!
//! ```text
//!  exp - renewal_lead ──► token_expiring to the client ── a newer token ──► its subscriptions are authorized again
//!  exp ──────────────────► the session ends: token_expired, return with a new one
//!  recheck ── revoked ───► the session ends: token_revoked, don't return
//!         └── otherwise ─► its subscriptions are authorized again; those that aren't allowed end with a notice
//! ```

use super::Core;
use super::table::Machine;
use super::timer::Timer;
use crate::app::{Due, Envelope, Sent};
use crate::encode::json_error_text;
use crate::identity::Owner;
use crate::ports::{Denial, Recheck, RecheckAction};
use crate::protocols::response::Response;
use crate::shared::tasks::RecheckTask;
use std::time::Duration;
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId, Topic};

/// Tokens that are dealt with in a turn.
const DUE_PER_TURN: usize = 256;
/// Subscriptions that are asked about again in a turn with answers, or with a tick.
const REVIEWS_PER_TURN: usize = 512;
/// Steps of an identity that doesn't match, of one that does, and of each of its subscriptions that is asked about.
const VISIT_STEPS: usize = 1;
const MATCH_STEPS: usize = 128;
const REVIEW_STEPS: usize = 16;
/// The event by which Socket.IO clients are asked for a new token.
const EXPIRING_EVENT: &str = "stentor:token_expiring";
/// The event by which they are told that a subscription has ended.
const UNSUBSCRIBED_EVENT: &str = "stentor:unsubscribed";

impl<D: Driver> Core<D> {
    /// Makes sure that a wait ends when a token is due.
    pub(super) fn set_identity_timer(&mut self) {
        let Some(due) = self.ex.questions.identities.next_due() else { return };
        if self.identities_due.is_none_or(|at| due < at) {
            self.identities_due = Some(due);
            let wait = Duration::from_millis(due.saturating_sub(self.ex.unix_millis()));
            self.driver.timer_set(self.ex.context.now + wait, Timer::Identities.token());
        }
    }

    /// Deals with tokens that are due. What is left is dealt with in the next turn.
    pub(super) fn check_due_identities(&mut self) {
        if self.ex.questions.identities.next_due().is_none() {
            return;
        }
        let now = self.ex.unix_millis();
        for _ in 0..DUE_PER_TURN {
            match self.ex.questions.identities.poll_due(now) {
                Some(Due::Renewal(session, left)) => self.ask_for_token(session, left),
                Some(Due::End(session)) => self.token_expired(session),
                None => break,
            }
        }
    }

    fn token_expired(&mut self, session: SessionId) {
        match self.ex.owner_of(session) {
            Some(Owner::Connection(index, _)) => match self.table.get(index).map(|conn| &conn.machine) {
                Some(Machine::Http(connection))
                    if !connection.http.response().is_some_and(Response::is_stream) =>
                {
                    self.fail_request(index, 401, "the token has expired");
                }
                _ => self.disconnect(session, Disconnect::TokenExpired),
            },
            Some(Owner::Client(_)) => self.disconnect(session, Disconnect::TokenExpired),
            // Its client may return with a new token.
            Some(Owner::Socket(_)) | None => {}
        }
    }

    /// The envelope of a session whose client is connected.
    fn envelope_of(&self, session: SessionId) -> Option<Envelope> {
        self.ex.owner_of(session)?;
        Some(self.ex.encoding_of(session)?.envelope())
    }

    /// Asks a client for a new token. One that receives bodies only can't be asked.
    fn ask_for_token(&mut self, session: SessionId, left_ms: u64) {
        let what = match self.envelope_of(session) {
            Some(Envelope::V1) => {
                Sent::Text(format!(r#"{{"type":"token_expiring","expires_in_ms":{left_ms}}}"#))
            }
            Some(Envelope::SocketIo) => event(EXPIRING_EVENT, format!(r#"{{"expires_in_ms":{left_ms}}}"#)),
            Some(Envelope::Raw) | None => return,
        };
        self.send_to_session(session, what);
    }

    /// Tells a client that a subscription of its session has ended, and why.
    pub(super) fn withdrawn(&mut self, session: SessionId, topic: &Topic, denial: &Denial) {
        let (kind, name) = match topic {
            Topic::Feed(key) => ("feed", key.as_str()),
            Topic::Room(room) => ("room", room.name()),
            Topic::Presence(room) => ("presence", room.name()),
        };
        let message = format!("the subscription to {name:?} has ended: {}", denial.message);
        let [name, code, message] = [name, &denial.code, &message].map(json_error_text);
        let text = format!(r#""{kind}":{name},"code":{code},"message":{message},"retry":{}"#, denial.retry);
        match self.envelope_of(session) {
            Some(Envelope::V1) => {
                self.send_to_session(session, Sent::Text(format!(r#"{{"type":"error",{text}}}"#)));
            }
            Some(Envelope::SocketIo) => {
                self.send_to_session(session, event(UNSUBSCRIBED_EVENT, format!("{{{text}}}")));
            }
            // They have no place for words.
            Some(Envelope::Raw) | None => self.disconnect(session, Disconnect::NotAllowed),
        }
    }

    /// Continues with sessions whose subscriptions have to be asked about again.
    pub(super) fn review_sessions(&mut self) {
        let mut reviews = 0;
        while reviews < REVIEWS_PER_TURN
            && let Some(session) = self.ex.questions.poll_review()
        {
            reviews += 1 + self.ex.reauthorize(session);
        }
    }

    /// Continues with a recheck. Returns whether it is finished.
    pub(super) fn work_on_recheck(&mut self, task: &mut RecheckTask, steps: &mut usize) -> bool {
        while *steps > 0 {
            let Some(session) = self.ex.questions.identities.at(task.next) else { return true };
            task.next += 1;
            let taken = session.and_then(|session| {
                let taken = self.recheck(session, &task.recheck, task.session)?;
                task.concerned.sessions += 1;
                task.concerned.refused += usize::from(self.ex.questions.identities.get(session).is_none());
                Some(taken)
            });
            *steps = steps.saturating_sub(taken.unwrap_or(VISIT_STEPS));
        }
        false
    }

    /// Looks at an identity again. Returns the steps that this took, if it is one of those that are meant.
    fn recheck(&mut self, session: SessionId, recheck: &Recheck, only: Option<SessionId>) -> Option<usize> {
        let identity = self.ex.questions.identities.get(session).cloned()?;
        let is_meant = match &recheck.filter.session {
            Some(_) if only.is_some() => only == Some(session),
            Some(id) => self.id_of(session) == id.to_string(),
            None => true,
        };
        if !is_meant || !recheck.filter.matches(&identity) {
            return None;
        }
        let mut steps = MATCH_STEPS;
        match recheck.action {
            RecheckAction::Disconnect => self.revoke(session),
            RecheckAction::EndRevoked | RecheckAction::Authorize if self.ex.is_revoked(&identity) => {
                self.revoke(session)
            }
            RecheckAction::EndRevoked => return None,
            RecheckAction::Authorize => steps += REVIEW_STEPS * self.ex.reauthorize(session),
            RecheckAction::Renew => {
                let (now, lead) = (self.ex.unix_millis(), self.ex.options().tokens.renewal_lead);
                self.ex.questions.identities.shorten(session, now, lead);
            }
        }
        Some(steps)
    }

    /// Ends a session whose identity is revoked, also if its client is disconnected.
    fn revoke(&mut self, session: SessionId) {
        if let Some(Owner::Socket(slot)) = self.ex.hub.tag(session).map(Owner::of_tag)
            && self.ex.recovery.client_of(slot).is_none()
        {
            self.ex.end_recoverable(slot);
            return self.ex.close_session(session);
        }
        self.disconnect(session, Disconnect::TokenRevoked);
    }
}

fn event(name: &str, json: String) -> Sent {
    Sent::Event { name: name.to_owned(), json, attachments: Vec::new(), ack: None }
}
