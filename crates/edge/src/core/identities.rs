//! Tokens that expire, and identities that are checked again.
//!
//! ```text
//!  exp - renewal_lead ──► token_expiring to the client ── a newer token ──► its subscriptions are authorized again
//!  exp ──────────────────► the session ends: token_expired, return with a new one
//!  recheck ── revoked ───► the session ends: token_revoked, don't return
//!         └── otherwise ─► its subscriptions are authorized again; those that aren't allowed end with a notice
//! ```

use super::table::Machine;
use super::timer::Timer;
use super::{Connections, Protocols, Upkeep, actions, end};
use crate::ports::{Recheck, RecheckAction};
use std::time::Duration;
use stentor_driver::Driver;
use stentor_hub::{Disconnect, SessionId};
use stentor_session::app::{Due, Sent};
use stentor_session::executor::Executor;
use stentor_session::identity::{End, Owner};
use stentor_session::message::Envelope;
use stentor_session::protocols::response::Response;
use stentor_session::shared::tasks::RecheckTask;

/// Maximum number of expiring tokens handled per turn.
const DUE_PER_TURN: usize = 256;
/// Steps of work of a recheck: for each identity that its filter doesn't select, for each selected one, and for each
/// subscription of a selected one.
const VISIT_STEPS: usize = 1;
const MATCH_STEPS: usize = 128;
const REVIEW_STEPS: usize = 16;
/// The event that asks Socket.IO clients for a new token.
const EXPIRING_EVENT: &str = "stentor:token_expiring";
impl Upkeep {
    /// Sets a timer for the time at which the next token is due.
    pub(super) fn set_identity_timer(&mut self, conns: &mut Connections<impl Driver>, ex: &mut Executor) {
        if let Some(due) = ex.identities().next_due()
            && self.identities.set(due)
        {
            let wait = Duration::from_millis(due.saturating_sub(ex.unix_millis()));
            conns.driver.timer_set(ex.now() + wait, Timer::Identities.token());
        }
    }
}

/// Handles at most [`DUE_PER_TURN`] tokens that are due. The next turn handles the others.
pub(super) fn check_due_identities(conns: &mut Connections<impl Driver>, protocols: &mut Protocols) {
    if protocols.ex.identities().next_due().is_none() {
        return;
    }
    let now = protocols.ex.unix_millis();
    for _ in 0..DUE_PER_TURN {
        match protocols.ex.identities_mut().poll_due(now) {
            Some(Due::Renewal(session, left)) => ask_for_token(conns, protocols, session, left),
            Some(Due::End(session)) => token_expired(conns, protocols, session),
            None => break,
        }
    }
}

fn token_expired(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, session: SessionId) {
    match protocols.ex.owner_of(session) {
        Some(Owner::Connection(index, _)) => match conns.table.get(index).map(|conn| &conn.machine) {
            Some(Machine::Http(connection))
                if !connection.http.response().is_some_and(Response::is_stream) =>
            {
                actions::fail_request(conns, protocols, index, 401, "the token has expired");
            }
            _ => end::disconnect(conns, protocols, session, Disconnect::TokenExpired),
        },
        Some(Owner::Client(_)) => end::disconnect(conns, protocols, session, Disconnect::TokenExpired),
        // The client may reconnect with a new token.
        Some(Owner::Socket(_)) | None => {}
    }
}

/// Asks a client for a new token. A client in raw mode can't be asked.
fn ask_for_token(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    left_ms: u64,
) {
    let what = match protocols.envelope_of(session) {
        Some(Envelope::V1) => Sent::Text(format!(r#"{{"type":"token_expiring","expires_in_ms":{left_ms}}}"#)),
        Some(Envelope::SocketIo) => {
            actions::event(EXPIRING_EVENT, format!(r#"{{"expires_in_ms":{left_ms}}}"#))
        }
        Some(Envelope::Raw) | None => return,
    };
    actions::send_to_session(conns, protocols, session, what);
}

/// Continues with a recheck. Returns `true` if the recheck is finished.
pub(super) fn work_on_recheck(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    task: &mut RecheckTask,
    steps: &mut usize,
) -> bool {
    while *steps > 0 {
        let Some(session) = protocols.ex.identities().at(task.next) else { return true };
        task.next += 1;
        let taken = session.and_then(|session| {
            let taken = recheck(conns, protocols, session, &task.recheck, task.session)?;
            task.concerned.sessions += 1;
            task.concerned.refused += usize::from(protocols.ex.identities().get(session).is_none());
            Some(taken)
        });
        *steps = steps.saturating_sub(taken.unwrap_or(VISIT_STEPS));
    }
    false
}

/// Checks an identity again. Returns the number of steps if the recheck's filter selects it.
fn recheck(
    conns: &mut Connections<impl Driver>,
    protocols: &mut Protocols,
    session: SessionId,
    recheck: &Recheck,
    only: Option<SessionId>,
) -> Option<usize> {
    let identity = protocols.ex.identities().get(session).cloned()?;
    let is_meant = match &recheck.filter.session {
        Some(_) if only.is_some() => only == Some(session),
        Some(id) => protocols.id_of(session) == id.to_string(),
        None => true,
    };
    if !is_meant || !recheck.filter.matches(&identity) {
        return None;
    }
    let mut steps = MATCH_STEPS;
    match recheck.action {
        RecheckAction::Disconnect => revoke(conns, protocols, session),
        RecheckAction::EndRevoked | RecheckAction::Authorize if protocols.ex.is_revoked(&identity) => {
            revoke(conns, protocols, session)
        }
        RecheckAction::EndRevoked => return None,
        RecheckAction::Authorize => steps += REVIEW_STEPS * protocols.ex.reauthorize(session),
        RecheckAction::Renew => {
            let (now, lead) = (protocols.ex.unix_millis(), protocols.ex.options().tokens.renewal_lead);
            protocols.ex.identities_mut().shorten(session, now, lead);
        }
    }
    Some(steps)
}

/// Ends a session whose identity is revoked, even if its client is disconnected.
fn revoke(conns: &mut Connections<impl Driver>, protocols: &mut Protocols, session: SessionId) {
    if let Some(slot) = protocols.ex.suspended_socket(session) {
        return protocols.ex.end_suspended(slot, End::Because(Disconnect::TokenRevoked));
    }
    end::disconnect(conns, protocols, session, Disconnect::TokenRevoked);
}
