//! A message on a WebSocket, on its way to the application.

use super::profile::SocketProfile;
use crate::app::{Envelope, HandlerScope, Message};
use crate::encode::Writer;
use crate::executor::Executor;
use crate::model::SessionId;

/// The session whose message is handled.
#[derive(Clone, Copy)]
pub(crate) struct MessageContext {
    pub(crate) session: SessionId,
    pub(crate) profile: SocketProfile,
    pub(crate) envelope: Envelope,
}

impl MessageContext {
    /// How the application's messages leave.
    pub(crate) fn writer(self) -> Writer<'static> {
        self.profile.framing.writer(self.envelope)
    }

    /// Passes a message to the application. Returns whether what follows it is handled.
    #[inline]
    pub(crate) fn deliver(
        self,
        ex: &mut Executor,
        writer: Writer<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Self { session, profile: SocketProfile { service, .. }, envelope } = self;
        let asked = ex.actions.len();
        let scope =
            HandlerScope { session: Some(session), writer, envelope, service, ..HandlerScope::default() };
        ex.call_app(scope, out, |app, ctx| app.message(ctx, session, message));
        !ex.asks_to_close(asked, session)
    }
}
