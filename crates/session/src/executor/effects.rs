//! Functions by which machines add effects.

use super::{Effect, Executor, ToClient, ToConnection, ToSession};
use crate::app::Waiter;
use crate::identity::{ClientId, End};
use stentor_frame::ConnId;
use stentor_hub::{Disconnect, SessionId};

impl Executor {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Whether effects wait to be carried out.
    #[inline]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The next effect on a connection or client, and answers.
    #[inline]
    pub fn pop_effect(&mut self) -> Option<Effect> {
        self.effects.pop()
    }

    /// All other effects, which are carried out after those.
    pub fn take_other_effects(&mut self) -> Vec<Effect> {
        self.effects.take_others()
    }

    /// Draws a number by which the client of a session acknowledges an event, for `waiter`. `None` if too many are awaited.
    pub fn expect_ack(&mut self, session: SessionId, waiter: Waiter) -> Option<u64> {
        self.acks.expect(session, waiter)
    }

    /// Ends a session after the current handler.
    pub fn close(&mut self, session: SessionId, why: Disconnect) {
        self.push(Effect::Session(session, ToSession::Close(why)));
    }

    /// Closes a WebSocket after the current handler, without a reason.
    pub fn close_socket(&mut self, conn: ConnId) {
        self.push(Effect::Connection(conn, ToConnection::Close(1000, "")));
    }

    /// Sends a client's pending messages, after the current handler.
    pub fn flush_client(&mut self, id: ClientId) {
        self.push(Effect::Client(id, ToClient::Flush));
    }

    /// Sets the timer of a client, after the current handler.
    pub fn arm_client(&mut self, id: ClientId) {
        self.push(Effect::Client(id, ToClient::Arm));
    }

    /// Ends a client after the current handler.
    pub fn end_client(&mut self, id: ClientId, end: End) {
        self.push(Effect::Client(id, ToClient::End(end)));
    }
}
