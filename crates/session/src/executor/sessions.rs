//! Opens and closes sessions.

use super::Executor;
use crate::encode::Encoding;
use crate::identity::{End, Owner};
use crate::ports::Identity;
use std::sync::Arc;
use stentor_hub::SessionId;

impl Executor {
    /// Opens a session of a client with this identity, and with the id that is reserved for it. `source` is a number for the
    /// client's address.
    pub(crate) fn open_session(
        &mut self,
        encoding: Encoding,
        owner: Owner,
        source: u64,
        identity: Option<Arc<Identity>>,
    ) -> SessionId {
        let (format, tag) = (encoding.into(), owner.to_tag());
        let reserved = identity.as_ref().and_then(|identity| identity.reserved.as_ref());
        let reserved = reserved.and_then(|reserved| reserved.take(self.context.core));
        let session = match reserved.filter(|session| self.hub.handle_open_reserved(*session, format, tag)) {
            Some(session) => session,
            None => self.hub.handle_open(format, tag),
        };
        self.count_session(session, source);
        self.set_identity(session, identity);
        session
    }

    /// The encoding of a session.
    #[inline]
    pub fn encoding_of(&self, session: SessionId) -> Option<Encoding> {
        self.hub.format(session).map(Encoding::from)
    }

    /// The owner of a session.
    #[inline]
    pub fn owner_of(&self, session: SessionId) -> Option<Owner> {
        self.recovery.owner(self.hub.tag(session)?)
    }

    /// The owner of a session with this tag.
    #[inline]
    pub fn owner_of_tag(&self, tag: u64) -> Option<Owner> {
        self.recovery.owner(tag)
    }

    /// Counts a new session towards the limits of its address.
    pub(super) fn count_session(&mut self, session: SessionId, source: u64) {
        self.hub.set_source(session, source, self.context.clock.seconds(self.context.now));
        if let Some(holds) = &mut self.holds {
            holds.open(&self.shared.limits, session, source, self.context.now);
        }
        if let Some(rates) = &self.context.rates {
            rates.borrow_mut().open(session);
        }
        if let Some(notices) = &mut self.notices {
            notices.opened(session);
        }
    }

    /// Closes a session that opens again when a decision has arrived, then with the same id if it was reserved.
    pub(crate) fn close_until_decided(&mut self, session: SessionId) {
        let identity = self.questions.identities.get(session).cloned();
        let reserved = identity.as_ref().and_then(|identity| identity.reserved.as_ref());
        let Some(reserved) = reserved.filter(|reserved| reserved.is_of(self.context.core, session)) else {
            return self.close_unlisted(session);
        };
        self.forget_session(session);
        if self.hub.handle_close_reserving(session) {
            reserved.restore();
        }
    }

    /// Closes a session. Lists show the end, with this reason.
    pub fn close_session(&mut self, session: SessionId, why: End) {
        self.note_end(session, why);
        self.close_unlisted(session);
    }

    /// Closes a session whose end isn't kept for lists.
    pub(crate) fn close_unlisted(&mut self, session: SessionId) {
        self.forget_session(session);
        self.hub.handle_close(session);
    }

    fn forget_session(&mut self, session: SessionId) {
        self.report_end(session);
        self.questions.close(session);
        if let Some(holds) = &mut self.holds
            && self.hub.tag(session).is_some()
        {
            holds.close(&self.shared.limits, session);
        }
    }
}
