//! Opens and closes sessions.

use super::Executor;
use crate::encode::Encoding;
use crate::identity::Owner;
use stentor_hub::SessionId;

impl Executor {
    /// Opens a session. `source` is a number for its client's address.
    pub(crate) fn open_session(&mut self, encoding: Encoding, owner: Owner, source: u64) -> SessionId {
        let session = self.hub.handle_open(encoding.into(), owner.to_tag());
        self.count_session(session, source);
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

    /// Closes a session.
    pub fn close_session(&mut self, session: SessionId) {
        self.report_end(session);
        self.questions.close(session);
        if let Some(holds) = &mut self.holds
            && self.hub.tag(session).is_some()
        {
            holds.close(&self.shared.limits, session);
        }
        self.hub.handle_close(session);
    }
}
