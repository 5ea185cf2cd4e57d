//! Profile `protocol`: Engine.IO echoes; Socket.IO knows the namespaces `/` and `/custom`.

use std::collections::HashMap;
use std::time::Duration;
use stentor_edge::{Admission, Application, Arguments, Context, Event, Message, NamespaceRequest};
use stentor_hub::SessionId;

/// The suites await one event after the other, and miss an event that arrives in the same segment as the previous one. So the
/// open packet is sent this long after the handshake, and `auth` this long after the answer to CONNECT.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(crate) struct Protocol {
    /// Sessions that are waiting for `auth`, by the timer's token.
    greeted: HashMap<u64, (SessionId, String)>,
    timers: u64,
}

impl Application for Protocol {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        ctx.send(session, message);
    }

    fn connect_namespace(&mut self, _ctx: &mut Context<'_>, request: &NamespaceRequest<'_>) -> Admission {
        if matches!(request.namespace, "/" | "/custom") { Admission::Accept } else { Admission::Unknown }
    }

    fn joined(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        request: &NamespaceRequest<'_>,
        _id: &str,
    ) {
        self.timers += 1;
        self.greeted.insert(self.timers, (session, request.auth.to_owned()));
        ctx.after(PAUSE, self.timers);
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        if let Some((session, auth)) = self.greeted.remove(&token) {
            ctx.emit(session, "auth", Arguments { json: &auth, attachments: &[] });
        }
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        if ctx.namespace() != Some("/") {
            return;
        }
        match (event.name, event.ack) {
            ("message", _) => ctx.emit(session, "message-back", event.arguments),
            ("message-with-ack", Some(ack)) => ctx.ack(session, ack, event.arguments),
            _ => {}
        }
    }
}
