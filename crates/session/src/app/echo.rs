//! `--app echo`: returns each message unchanged. Over Socket.IO, it returns the event with its arguments, and acknowledges it if
//! requested.

use super::{Application, Context, Event, Message};
use stentor_hub::SessionId;

/// Sends each message back to its sender.
#[derive(Debug, Default)]
pub struct Echo;

impl Application for Echo {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        ctx.send(session, message);
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        ctx.emit(session, event.name, event.arguments);
        if let Some(ack) = event.ack {
            ctx.ack(session, ack, event.arguments);
        }
    }
}
