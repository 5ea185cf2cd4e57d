//! Publications of clients. A message to a room that the engine orders is published when the engine has stored it. The handler
//! has returned by then, so the continuation that answers the client is kept, and runs once.

use super::{Context, ENVELOPE_BYTES, NotPublished};
use crate::identity::Owner;
use crate::limits::rates::Counted;
use crate::limits::{LimitPolicy, rate_reached};
use crate::ports::{Access, Denial};
use std::sync::Arc;
use stentor_hub::{Data, Disconnect, Emit, Room, SessionId};

/// Answers a client when the outcome of its publication is known.
pub type Answer = Box<dyn FnOnce(&mut Context<'_>, SessionId, Result<(), Denial>)>;

impl Context<'_> {
    /// Publishes to a room, on all cores and nodes. All publications of clients pass through here, so this function checks for
    /// overload, and whether the session of this call may publish. If the engine of a cluster orders the room, the message is
    /// published later, or not at all. A message that a limit of its session drops counts as published.
    ///
    /// # Errors
    /// No client receives the message.
    pub fn publish(
        &mut self,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) -> Result<(), NotPublished> {
        self.publish_then(room, event, data, how, || Box::new(|_, _, _| {})).map(|_| ())
    }

    /// Publishes like [`Self::publish`]. Returns `false` if the client isn't answered now: the message is dropped, or it is
    /// published later, and `answer` gives the answer to make then.
    pub(crate) fn publish_then(
        &mut self,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
        answer: impl FnOnce() -> Answer,
    ) -> Result<bool, NotPublished> {
        if self.is_overloaded() {
            self.core.count_refusal();
            return Err(NotPublished::Overloaded);
        }
        if let Some(session) = self.scope.session {
            self.authorize(session, Access::Publish(room))?;
            if !self.count_publication(session)? {
                return Ok(false);
            }
        }
        let bytes = data.len() + ENVELOPE_BYTES;
        self.published_bytes += bytes;
        if !self.outlet.is_ordered_elsewhere(self.hub, room, &how) {
            self.outlet.publish(self.hub, self.core.now, room, (event, data), how);
            return Ok(true);
        }
        let source = self.scope.session.map(|id| self.hub.source(id).map_or(0, |(source, _)| source));
        let waits = self.scope.session.filter(|_| self.scope.waits);
        let ticket =
            waits.map(|session| self.questions.expect(self.core.now, session, bytes, answer)).transpose()?;
        self.outlet.submit(room, (event, data), &how, &[], (ticket.flatten(), source));
        let Some(session) = waits.filter(|_| ticket.flatten().is_some()) else { return Ok(true) };
        // Other connections of the client wait as well.
        let owner = self.hub.tag(session).and_then(|tag| self.recovery.owner(tag));
        owner.and_then(Owner::client).into_iter().for_each(|client| self.questions.hold_client(client));
        Ok(false)
    }

    /// Counts a publication of a session. Returns `false` if it is dropped.
    fn count_publication(&mut self, session: SessionId) -> Result<bool, NotPublished> {
        let Err((policy, key)) = self.core.count_sent(session, Counted::Publication) else { return Ok(true) };
        match policy {
            LimitPolicy::Drop => return Ok(false),
            LimitPolicy::Error => {}
            LimitPolicy::Close => self.close(session, Disconnect::TooManyRequests),
        }
        Err(NotPublished::Denied(rate_reached(key)))
    }
}
