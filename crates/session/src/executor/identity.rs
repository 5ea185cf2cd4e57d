//! Identities of sessions, and the effects of their changes.

use super::Executor;
use crate::app::{Decided, Effect, Refused, ToSession, asking, is_same_principal};
use crate::executor::holds::key_of;
use crate::http_date::HttpDate;
use crate::limits::LimitReached;
use crate::ports::{
    Credentials, Denial, EventEmit, Identity, MovingSubscription, Principal, PublicId, ReservedSession,
};
use std::sync::Arc;
use stentor_frame::ConnId;
use stentor_hub::{Notice, Policy, Room, SessionId, Topic};

impl Executor {
    /// The Unix time of this turn, in milliseconds.
    pub fn unix_millis(&self) -> u64 {
        self.context.clock.unix_millis(self.context.now)
    }

    /// The date of this turn, for responses.
    pub(crate) fn date(&self) -> HttpDate {
        self.context.clock.date(self.context.now)
    }

    /// Verifies the identity of a client on the connection `conn`. Returns `None` if clients have no identities. `decided` is
    /// the decision for which the connection waited, if any. `opens` is `true` if a session opens with the identity.
    ///
    /// # Errors
    /// The token is refused, or the decision is pending.
    pub(crate) fn identify(
        &mut self,
        conn: ConnId,
        credentials: &Credentials<'_>,
        decided: Option<Decided>,
        opens: bool,
    ) -> Result<Option<Arc<Identity>>, Refused> {
        let Self { questions, hub, context, budget, .. } = self;
        let unused = questions.identities.unused.clone();
        let reserve = || {
            if !opens {
                return None;
            }
            unused.take().into_iter().for_each(|session| hub.release(session));
            let session = hub.reserve();
            let id = PublicId::of(context.id_key, context.core, session);
            Some(Arc::new(ReservedSession::new(id, context.core, session, unused)))
        };
        questions.identify(context.now, Some(conn), credentials, decided, budget, reserve)
    }

    /// Sets the identity of a session, or replaces it by a newer identity.
    pub(crate) fn set_identity(&mut self, session: SessionId, identity: Option<Arc<Identity>>) {
        let Some(identity) = identity else { return };
        identity.reserved.iter().for_each(|reserved| reserved.give_back());
        let (now, lead) = (self.unix_millis(), self.options().tokens.renewal_lead);
        if let Some(holds) = &mut self.holds {
            holds.identify(&self.shared.limits, session, identity.principal.as_ref(), self.context.now);
        }
        self.questions.identities.set(session, identity, now, lead);
    }

    /// The user of a session, and the public information about the client.
    pub(crate) fn who_is(&self, session: SessionId) -> (Option<Principal>, Option<Arc<str>>) {
        match self.questions.identities.get(session) {
            Some(identity) => (identity.principal.clone(), identity.info.clone()),
            None => (None, None),
        }
    }

    /// Checks whether one more session of an identity's user may begin.
    ///
    /// # Errors
    /// A limit is reached.
    pub(crate) fn check_user(&self, identity: Option<&Identity>) -> Result<(), LimitReached> {
        let user = identity.and_then(|identity| identity.principal.as_ref());
        let (Some(users), Some(user)) = (&self.shared.limits.users, user) else { return Ok(()) };
        self.count_limited(users.check_count(key_of(user)))
    }

    /// Checks whether a client may connect to one more namespace. This opens a session without a request that would be counted.
    ///
    /// # Errors
    /// The client's address or user has the maximum number of sessions.
    pub(crate) fn check_socket(&self, source: u64, identity: Option<&Identity>) -> Result<(), LimitReached> {
        let sessions = self.shared.limits.sessions.as_ref();
        self.count_limited(sessions.map_or(Ok(()), |sessions| sessions.check_count(source)))?;
        self.check_user(identity)
    }

    /// Checks whether a client whose request has waited may still open a session: its identity may have been revoked, and its address or
    /// user may have opened other sessions.
    ///
    /// # Errors
    /// The client may open no session.
    pub(crate) fn check_again(&self, source: u64, identity: Option<&Identity>) -> Result<(), Denial> {
        if let Some(identity) = identity {
            self.check_identity(identity)?;
        }
        self.check_socket(source, identity).map_err(|reached| reached.denial())
    }

    /// Returns `true` if an identity has been revoked.
    pub fn is_revoked(&self, identity: &Identity) -> bool {
        self.questions.identities.is_revoked(identity)
    }

    /// Checks whether an identity that was verified before is still valid.
    pub(crate) fn check_identity(&self, identity: &Identity) -> Result<(), Denial> {
        if self.is_revoked(identity) {
            return Err(Denial::TOKEN_REVOKED);
        }
        if identity.expires_at.is_some_and(|at| at.saturating_mul(1_000) <= self.unix_millis()) {
            return Err(Denial::new("token_expired", "the token has expired"));
        }
        Ok(())
    }

    /// Gives a recovered session the identity of its client, and authorizes the subscriptions again before the client
    /// receives missed messages. Returns `false` if the client isn't the session's user.
    pub(crate) fn take_over_identity(&mut self, session: SessionId, identity: Option<Arc<Identity>>) -> bool {
        let Some(identity) = identity else { return true };
        let current = self.questions.identities.get(session);
        if !current.is_some_and(|current| is_same_principal(current, &identity)) {
            return false;
        }
        self.renew(session, identity);
        true
    }

    /// Checks whether a session may continue with an identity. An anonymous session becomes an additional session of a user.
    ///
    /// # Errors
    /// The user has the maximum number of sessions.
    pub fn check_renewal(&self, session: SessionId, identity: &Identity) -> Result<(), LimitReached> {
        let current = self.questions.identities.get(session);
        if current.is_none_or(|current| is_same_principal(current, identity)) {
            return Ok(());
        }
        self.check_user(Some(identity))
    }

    /// Replaces a session's identity after its client has renewed the token.
    pub fn renew(&mut self, session: SessionId, identity: Arc<Identity>) {
        // The session may have closed in the meantime.
        if self.hub.tag(session).is_none() {
            return;
        }
        self.set_identity(session, Some(identity));
        self.reauthorize(session);
    }

    /// Makes a new session a member of the rooms that its identity names, and sends the identity's messages.
    pub(crate) fn join_rooms(&mut self, session: SessionId, namespace: &str) {
        let Some(identity) = self.questions.identities.get(session).cloned() else { return };
        for room in identity.join.iter().filter(|room| room.namespace() == namespace) {
            // A recovered session may be a member with its own policy.
            if self.hub.has_joined(session, room) {
                continue;
            }
            // If a limit is reached, the session doesn't join the remaining rooms.
            let _ = self.hub.handle_subscribe(session, &Topic::Room(room.clone()), Policy::Queue, None);
        }
        let messages = identity.emit.iter().flat_map(|first| first.take(namespace));
        messages.for_each(|message| self.send_first(session, namespace, message));
    }

    /// Sends a message of a hook that has admitted the client of a new session.
    fn send_first(&mut self, session: SessionId, namespace: &str, message: EventEmit) {
        let how = message.how();
        let EventEmit { rooms, except_sender, volatile, event, data, .. } = message;
        match rooms {
            Some(rooms) => {
                let core = self.context.core;
                let how = if except_sender { how.except_session(core, session) } else { how };
                self.emit(&rooms, event, data, how, &[]);
            }
            None => {
                if let Ok(room) = Room::all_members(namespace) {
                    self.send(&[session], &room, event, data, volatile);
                }
            }
        }
    }

    /// Authorizes the subscriptions again that a session's client requested, and ends those that are no longer allowed. Returns
    /// the number of all subscriptions.
    pub fn reauthorize(&mut self, session: SessionId) -> usize {
        if self.questions.identities.get(session).is_none() {
            return 0;
        }
        self.questions.identities.forget_decisions(session);
        let may_wait = self.questions.has_room_for_review();
        let subscriptions = self.hub.subscriptions_of(session);
        let count = subscriptions.len();
        for (topic, _) in subscriptions {
            // Grants for presence aren't recorded, because only clients themselves subscribe to it.
            let is_presence = matches!(topic, Topic::Presence(_));
            if !is_presence && !self.questions.identities.is_granted(session, &topic) {
                continue;
            }
            let Self { questions, hub, recovery, context, .. } = self;
            let client = || asking(hub, recovery, context, session);
            if let Err(denial) = questions.review(context.now, session, client, &topic, may_wait) {
                self.withdraw(session, topic, denial);
            }
        }
        count
    }

    /// Sets the identity of a session from another node, and authorizes the subscriptions again that its client requested
    /// there. Returns `false` if a room or feed is no longer allowed: missed messages don't name their rooms, so they can't be
    /// filtered. A subscription to presence that is no longer allowed ends.
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
                let is_presence = matches!(topic, Topic::Presence(_));
                if !is_presence {
                    self.questions.identities.grant(session, topic);
                }
                let Self { questions, hub, recovery, context, .. } = self;
                let client = || asking(hub, recovery, context, session);
                match questions.review(context.now, session, client, topic, true) {
                    Err(denial) if is_presence => {
                        self.withdraw(session, topic.clone(), denial);
                        true
                    }
                    reviewed => reviewed.is_ok(),
                }
            },
        )
    }

    /// Ends a subscription. Returns `false` if there was none.
    pub(crate) fn unsubscribe(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.questions.identities.revoke_grant(session, topic);
        self.hub.handle_unsubscribe(session, topic)
    }

    /// Removes a session from a room. The session still receives earlier messages of the room.
    pub fn leave(&mut self, session: SessionId, topic: &Topic) -> bool {
        self.questions.identities.revoke_grant(session, topic);
        self.hub.handle_leave(session, topic)
    }

    /// The next notice of the hub. If it reports the end of a subscription, the client's grant for the topic ends, too.
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

    /// Ends a subscription that is no longer allowed.
    pub fn withdraw(&mut self, session: SessionId, topic: Topic, denial: Denial) {
        if self.unsubscribe(session, &topic) {
            self.push(Effect::Session(session, ToSession::Withdrawn(topic, denial)));
        }
    }
}
