//! Publications of clients. A message to a room that the engine orders is published when the engine has stored it.

use super::questions::Steps;
use super::{Answer, Context, Decided, ENVELOPE_BYTES, Refused, overloaded};
use crate::limits::rates::Counted;
use crate::limits::{LimitPolicy, rate_reached};
use crate::ports::{Access, Denial};
use std::sync::Arc;
use stentor_hub::{Data, Disconnect, Emit, Room, SessionId};

/// A message that a client publishes.
pub(super) struct Publish {
    room: Room,
    /// Name of the event, and the data. `None` once the message has been published.
    content: Option<(Option<Arc<str>>, Data)>,
    how: Emit,
    bytes: usize,
}

impl Publish {
    pub(super) fn new(room: Room, event: Option<Arc<str>>, data: Data, how: Emit) -> Self {
        Self { room, bytes: data.len() + ENVELOPE_BYTES, content: Some((event, data)), how }
    }

    /// Publishes the message on behalf of the session `publisher`.
    ///
    /// # Errors
    /// The engine's answer is pending, or too many answers are.
    fn publish(&mut self, ctx: &mut Context<'_>, publisher: Option<SessionId>) -> Result<bool, Refused> {
        let Some(content) = self.content.take() else { return Ok(true) };
        ctx.budget.count_published(self.bytes);
        if !ctx.outlet.is_ordered_elsewhere(ctx.hub, &self.room, &self.how) {
            let how = std::mem::take(&mut self.how);
            ctx.outlet.publish(ctx.hub, ctx.core.now, &self.room, content, how);
            return Ok(true);
        }
        let source = publisher.map(|session| ctx.hub.source(session).map_or(0, |(source, _)| source));
        let asker = ctx.scope.asker.filter(|_| publisher.is_some());
        let ticket = asker.map(|conn| ctx.questions.expect(ctx.core.now, conn));
        let ticket = ticket.transpose().map_err(Refused::Denied)?;
        ctx.outlet.submit(&self.room, content, &self.how, &[], (ticket, source));
        if ticket.is_some() { Err(Refused::Pending) } else { Ok(true) }
    }
}

impl Steps for Publish {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn proceed(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        decided: Option<Decided>,
    ) -> Result<bool, Refused> {
        if self.content.is_none() {
            // The message was submitted to the engine before, and this is the engine's answer.
            let stored = decided.map_or(Ok(()), |decided| decided.answer);
            return stored.map(|()| true).map_err(Refused::Denied);
        }
        if ctx.is_overloaded() {
            ctx.core.count_refusal();
            return Err(Refused::Denied(overloaded()));
        }
        ctx.authorize(session, Access::Publish(&self.room), decided)?;
        if !ctx.count_publication(session).map_err(Refused::Denied)? {
            return Ok(false);
        }
        self.publish(ctx, Some(session))
    }
}

impl Context<'_> {
    /// Publishes to a room, on all cores and nodes. All publications of clients pass through here, so this function checks
    /// for overload, and whether the session of this call may publish. If the permission isn't known at once, or the engine
    /// of a cluster orders the room, the message is published later, or not at all. The result is `Ok` for a message that a
    /// limit of its session drops.
    ///
    /// # Errors
    /// No client receives the message.
    pub fn publish(
        &mut self,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
    ) -> Result<(), Denial> {
        self.publish_then(room, event, data, how, || Box::new(|_, _, _| {})).map(|_| ())
    }

    /// Publishes like [`Self::publish`]. Returns `false` if the client isn't answered now: the message was dropped, or it is
    /// published later. `answer` makes the callback that answers the client later.
    pub(super) fn publish_then(
        &mut self,
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
        answer: impl FnOnce() -> Answer,
    ) -> Result<bool, Denial> {
        let mut message = Publish::new(room.clone(), event, data, how);
        if let Some(session) = self.scope.session {
            return self.carry_out(session, message, answer);
        }
        if self.is_overloaded() {
            self.core.count_refusal();
            return Err(overloaded());
        }
        // A message of the application itself, without a session, doesn't wait for the engine's answer.
        message.publish(self, None).map_err(|_| Denial::UNAVAILABLE)
    }

    /// Counts a publication of a session. Returns `false` if it is dropped.
    fn count_publication(&mut self, session: SessionId) -> Result<bool, Denial> {
        let Err((policy, key)) = self.core.count_sent(session, Counted::Publication) else { return Ok(true) };
        match policy {
            LimitPolicy::Drop => return Ok(false),
            LimitPolicy::Error => {}
            LimitPolicy::Close => self.close(session, Disconnect::TooManyRequests),
        }
        Err(rate_reached(key))
    }
}
