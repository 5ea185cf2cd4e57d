//! Who sessions are, and what follows when that changes.

use super::Executor;
use crate::app::{Effect, Refused, ToSession, asking, is_same_principal};
use crate::executor::holds::key_of;
use crate::http_date::HttpDate;
use crate::limits::LimitReached;
use crate::ports::{Credentials, Denial, Identity, MovingSubscription, Principal};
use std::sync::Arc;
use stentor_hub::{Notice, Policy, SessionId, Topic};

impl Executor {
    /// The Unix time of this turn, in milliseconds.
    pub fn unix_millis(&self) -> u64 {
        (self.context.unix_millis)(self.context.now)
    }

    /// The date of this turn, for responses.
    pub(crate) fn date(&self) -> HttpDate {
        self.date.at(self.context.now, self.context.unix_millis)
    }

    /// Asks who a client is. `None`: clients have no identities.
    ///
    /// # Errors
    /// Its token is refused, or it isn't known yet.
    pub(crate) fn identify(
        &mut self,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        self.questions.identify(self.context.now, credentials, &mut self.budget)
    }

    /// Gives a session its identity, or a newer one.
    pub(crate) fn set_identity(&mut self, session: SessionId, identity: Option<Arc<Identity>>) {
        let Some(identity) = identity else { return };
        let (now, lead) = (self.unix_millis(), self.options().tokens.renewal_lead);
        if let Some(holds) = &mut self.holds {
            holds.identify(&self.shared.limits, session, identity.principal.as_ref(), self.context.now);
        }
        self.questions.identities.set(session, identity, now, lead);
    }

    /// The user of a session, and what others may know of it.
    pub(crate) fn who_is(&self, session: SessionId) -> (Option<Principal>, Option<Arc<str>>) {
        match self.questions.identities.get(session) {
            Some(identity) => (identity.principal.clone(), identity.info.clone()),
            None => (None, None),
        }
    }

    /// Whether one more session of a user may begin.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_user(&self, identity: Option<&Identity>) -> Result<(), LimitReached> {
        let user = identity.and_then(|identity| identity.principal.as_ref());
        let (Some(users), Some(user)) = (&self.shared.limits.users, user) else { return Ok(()) };
        self.count_limited(users.check_count(key_of(user)))
    }

    /// Whether a client may connect to one more namespace: a session that no request counts.
    ///
    /// # Errors
    /// Its address, or user, has as many sessions as it may.
    pub(crate) fn check_socket(&self, source: u64, identity: Option<&Identity>) -> Result<(), LimitReached> {
        let sessions = self.shared.limits.sessions.as_ref();
        self.count_limited(sessions.map_or(Ok(()), |sessions| sessions.check_count(source)))?;
        self.check_user(identity)
    }

    /// Whether an identity has been revoked.
    pub fn is_revoked(&self, identity: &Identity) -> bool {
        self.questions.identities.is_revoked(identity)
    }

    /// Whether an identity that was confirmed before still is.
    pub(crate) fn check_identity(&self, identity: &Identity) -> Result<(), Denial> {
        if self.is_revoked(identity) {
            return Err(Denial::TOKEN_REVOKED);
        }
        if identity.expires_at.is_some_and(|at| at.saturating_mul(1_000) <= self.unix_millis()) {
            return Err(Denial::new("token_expired", "the token has expired"));
        }
        Ok(())
    }

    /// Whether a session may be recovered by a client with this identity: it must be the same user's. Its subscriptions are
    /// authorized again, before it gets what it missed.
    pub(crate) fn take_over_identity(&mut self, session: SessionId, identity: Option<Arc<Identity>>) -> bool {
        let Some(identity) = identity else { return true };
        let current = self.questions.identities.get(session);
        if !current.is_some_and(|current| is_same_principal(current, &identity)) {
            return false;
        }
        self.renew(session, identity);
        true
    }

    /// Whether a session may go on with an identity. An anonymous one becomes one more of a user's.
    ///
    /// # Errors
    /// The user has as many sessions as it may.
    pub fn check_renewal(&self, session: SessionId, identity: &Identity) -> Result<(), LimitReached> {
        let current = self.questions.identities.get(session);
        if current.is_none_or(|current| is_same_principal(current, identity)) {
            return Ok(());
        }
        self.check_user(Some(identity))
    }

    /// A client has renewed its token.
    pub fn renew(&mut self, session: SessionId, identity: Arc<Identity>) {
        // The session may have closed since.
        if self.hub.tag(session).is_none() {
            return;
        }
        self.set_identity(session, Some(identity));
        self.reauthorize(session);
    }

    /// Makes a new session a member of the rooms that its identity names.
    pub(crate) fn join_rooms(&mut self, session: SessionId, namespace: &str) {
        let Some(identity) = self.questions.identities.get(session).cloned() else { return };
        for room in identity.join.iter().filter(|room| room.namespace() == namespace) {
            // A session that is recovered may have it, with its own policy.
            if self.hub.has_joined(session, room) {
                continue;
            }
            // At its limits, the session has as many rooms as it may.
            let _ = self.hub.handle_subscribe(session, &Topic::Room(room.clone()), Policy::Queue, None);
        }
    }

    /// Asks about each subscription of a session again, and ends those that aren't allowed any more. Returns how many there were.
    pub fn reauthorize(&mut self, session: SessionId) -> usize {
        if self.questions.identities.get(session).is_none() {
            return 0;
        }
        self.questions.identities.forget_decisions(session);
        let may_wait = self.questions.has_room_for_review();
        let subscriptions = self.hub.subscriptions_of(session);
        let count = subscriptions.len();
        for (topic, _) in subscriptions {
            // Only clients themselves ask to be notified of who joins and leaves.
            let is_presence = matches!(topic, Topic::Presence(_));
            if !is_presence && !self.questions.identities.is_granted(session, &topic) {
                continue;
            }
            let client = asking(&self.hub, &self.recovery, &self.context, session);
            if let Err(denial) = self.questions.review(self.context.now, session, client, &topic, may_wait) {
                self.withdraw(session, topic, denial);
            }
        }
        count
    }

    /// Gives a session that comes from another node its identity, and authorizes again what its client asked for there. Returns
    /// whether all of it is still allowed: what the session missed doesn't tell of which rooms it is.
    pub(crate) fn identify_moved(
        &mut self,
        session: SessionId,
        identity: Option<Arc<Identity>>,
        subscriptions: &[MovingSubscription],
    ) -> bool {
        if identity.is_none() {
            return true;
        }
        self.set_identity(session, identity);
        subscriptions.iter().filter(|subscription| subscription.is_granted).all(
            |MovingSubscription { topic, .. }| {
                self.questions.identities.grant(session, topic);
                let client = asking(&self.hub, &self.recovery, &self.context, session);
                self.questions.review(self.context.now, session, client, topic, true).is_ok()
            },
        )
    }

    /// Ends a subscription and says whether there was one.
    pub(crate) fn unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.questions.identities.revoke_grant(session, topic);
        self.hub.handle_unsubscribe(session, topic)
    }

    /// Takes a session out of a room. It still receives what was published before.
    pub fn leave(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.questions.identities.revoke_grant(session, topic);
        self.hub.handle_leave(session, topic)
    }

    /// The next notice of the hub. A subscription that has ended isn't the client's any more.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        let notice = self.hub.poll_notice()?;
        let ended = match &notice {
            Notice::NotFound { key, .. } => Topic::Feed(key.clone()),
            Notice::Refused { topic, .. } => topic.clone(),
            Notice::Gap { .. } => return Some(notice),
        };
        // The client may have subscribed again.
        if !self.hub.is_subscribed(notice.session(), &ended) {
            self.questions.identities.revoke_grant(notice.session(), &ended);
        }
        Some(notice)
    }

    /// Ends a subscription that isn't allowed any more.
    pub fn withdraw(&mut self, session: SessionId, topic: Topic, denial: Denial) {
        if self.unsubscribe(session, &topic) {
            self.push(Effect::Session(session, ToSession::Withdrawn(topic, denial)));
        }
    }
}
