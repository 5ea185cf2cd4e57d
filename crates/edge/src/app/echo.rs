//! `--app echo`: the same bytes back, no envelope.

use super::{Application, Context, Message};
use stentor_hub::SessionId;

/// Sends each message back to its sender.
#[derive(Debug, Default)]
pub struct Echo;

impl Application for Echo {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        ctx.send(session, message);
    }
}
