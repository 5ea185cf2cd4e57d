//! `--app chat`: what a client sends goes to everybody, the sender included; joined at open.

use super::{Application, Context, Envelope, Message};
use bytes::Bytes;
use stentor_hub::{Data, Disconnect, Emit, Policy, Room, SessionId};

/// One room for everybody.
#[derive(Debug)]
pub struct Chat {
    room: Room,
}

impl Chat {
    /// A chat in the plain room of this name.
    pub fn new(room: Room) -> Self {
        Self { room }
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
        ctx.publish(&self.room, None, data, Emit::default());
    }
}
