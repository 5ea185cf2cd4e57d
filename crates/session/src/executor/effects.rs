//! Functions by which machines add effects.

use super::{Effect, Executor, ToClient, ToConnection, ToSession};
use crate::app::{ENVELOPE_BYTES, Waiter};
use crate::identity::{ClientId, End};
use crate::ports::{PublicId, Publish};
use std::sync::Arc;
use stentor_frame::{ConnId, Frame};
use stentor_hub::{CoreId, Data, Disconnect, Dispatch, Emit, PresenceMessage, Room, Rooms, SessionId};

impl Executor {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Returns `true` if effects wait to be carried out.
    #[inline]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Takes the next effect on a connection or client, or the next answer to a session.
    #[inline]
    pub fn pop_effect(&mut self) -> Option<Effect> {
        self.effects.pop()
    }

    /// Takes all other effects. They are carried out after the effects of [`Self::pop_effect`].
    pub fn take_other_effects(&mut self) -> Vec<Effect> {
        self.effects.take_others()
    }

    /// Publishes a message of the control plane to a room.
    pub fn publish(&mut self, Publish { room, event, data }: Publish) {
        self.budget.count_published(data.len() + ENVELOPE_BYTES);
        self.outlet.publish(&mut self.hub, self.context.now, &room, (event, data), Emit::default());
    }

    /// Publishes a message of the control plane to several rooms. `except` are sessions of other nodes that are left out.
    pub fn emit(
        &mut self,
        rooms: &Rooms,
        event: Option<Arc<str>>,
        data: Data,
        how: Emit,
        except: &[PublicId],
    ) {
        self.budget.count_published(data.len() + ENVELOPE_BYTES);
        self.outlet.emit(&mut self.hub, self.context.now, rooms, (event, data), how, except);
    }

    /// Sends a message to sessions of this core, in a room of their namespace.
    pub fn send(
        &mut self,
        sessions: &[SessionId],
        room: &Room,
        event: Option<Arc<str>>,
        data: Data,
        volatile: bool,
    ) {
        self.hub.handle_send(self.context.now, sessions, room, event, data, volatile);
    }

    /// Handles a message of another core's hub.
    pub fn receive_dispatch(&mut self, from: CoreId, dispatch: Dispatch<Frame>) {
        self.budget.count_published(dispatch.weight_bytes());
        self.hub.handle_dispatch(self.context.now, from, dispatch);
    }

    /// Handles another node's message about the members of a room.
    pub fn receive_presence(&mut self, room: &Room, node: u64, message: PresenceMessage) {
        self.hub.handle_presence_message(self.context.now, room, node, message);
    }

    /// Called when another node is dead: its members of rooms are removed.
    pub fn lose_node(&mut self, node: u64) {
        self.hub.handle_lost_node(self.context.now, node);
    }

    /// Passes waiting messages to the broker until the broker has no room. Returns `true` if messages wait now and didn't
    /// after the last call, or the other way round.
    pub fn retry_broker(&mut self) -> bool {
        self.outlet.retry()
    }

    /// Number of messages that wait for the broker.
    pub fn waiting_for_broker(&self) -> usize {
        self.outlet.waiting()
    }

    /// Draws a number by which the client of a session acknowledges an event, for `waiter`. `None` if too many
    /// acknowledgements are awaited.
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
