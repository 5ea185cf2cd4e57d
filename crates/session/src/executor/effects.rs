//! Effects that machines push.

use super::{Effect, Executor, ToClient, ToConnection, ToSession};
use crate::identity::{ClientId, End};
use stentor_frame::ConnId;
use stentor_hub::{Disconnect, SessionId};

impl Executor {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
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
