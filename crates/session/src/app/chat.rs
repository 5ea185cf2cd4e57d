//! `--app chat`: sends each message to all clients, including the sender. Sessions join when they open. An event of a Socket.IO
//! client goes to all sockets of its namespace; plain clients are in the main namespace. An event that can't be published isn't
//! acknowledged.

use super::publish::Publish;
use super::{Application, Arguments, Context, Envelope, Event, Message, NamespaceRequest};
use crate::ports::Denial;
use bytes::Bytes;
use stentor_hub::{Data, Disconnect, Emit, Policy, Room, SessionId};

/// One room for all clients.
#[derive(Debug)]
pub struct Chat {
    room: Room,
}

impl Chat {
    /// A chat in the plain room of this name.
    pub fn new(room: Room) -> Self {
        Self { room }
    }

    fn room_of(&self, namespace: &str) -> Option<Room> {
        if namespace == self.room.namespace() {
            return Some(self.room.clone());
        }
        Room::new(namespace, self.room.name()).ok()
    }
}

impl Application for Chat {
    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, _envelope: Envelope) {
        if ctx.join(session, &self.room, Policy::Queue).is_err() {
            ctx.close(session, Disconnect::Overloaded);
        }
    }

    fn message(&mut self, ctx: &mut Context<'_>, _session: SessionId, message: Message<'_>) {
        let data = match message {
            Message::Text(text) => Data::Text(Bytes::copy_from_slice(text.as_bytes())),
            Message::Binary(bytes) => Data::Binary(Bytes::copy_from_slice(bytes)),
        };
        // Plain clients have no message that could report a failure. A metric counts it.
        let _ = ctx.publish(&self.room, None, data, Emit::default());
    }

    fn joined(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        request: &NamespaceRequest<'_>,
        _id: &str,
    ) {
        if request.recovered {
            return;
        }
        let room = self.room_of(request.namespace);
        if room.is_none_or(|room| ctx.join(session, &room, Policy::Queue).is_err()) {
            ctx.close(session, Disconnect::Overloaded);
        }
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let ack = event.ack;
        let acknowledge = move |ctx: &mut Context<'_>, session: SessionId, result: Result<(), Denial>| {
            if let (Some(ack), Ok(())) = (ack, result) {
                ctx.ack(session, ack, Arguments::default());
            }
        };
        if let Some(room) = ctx.namespace().and_then(|namespace| self.room_of(namespace)) {
            let (name, data) = (Some(event.name.into()), event.arguments.to_data());
            if ctx.publish_then(Publish::new(room, name, data, Emit::default()), || Box::new(acknowledge))
                != Ok(true)
            {
                return;
            }
        }
        acknowledge(ctx, session, Ok(()));
    }
}
