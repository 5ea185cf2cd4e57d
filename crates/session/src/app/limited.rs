//! A wrapper around an application. It applies the limits of `[session_limits]` before messages and events are handled.
//!
//! Without limits, the application isn't wrapped, so messages need no additional work.

use super::{
    Admission, Application, Arguments, Connect, Context, Envelope, Event, Message, NamespaceRequest, Page,
};
use crate::limits::rates::Counted;
use crate::limits::{LimitPolicy, rate_reached};
use crate::ports::Denial;
use crate::rule::Rooms;
use stentor_hub::{Disconnect, Notice, SessionId};
use stentor_wire::http1::Request;

/// An application whose sessions have limits.
pub struct Limited(pub Box<dyn Application>);

/// Counts an input of a session. Returns `false` if the input exceeds a limit and must not be handled further. According to the
/// policy, the input has been dropped, `refuse` has reported the error, or the session is closed.
fn count(
    ctx: &mut Context<'_>,
    session: SessionId,
    bytes: usize,
    refuse: impl FnOnce(&mut Context<'_>, &Denial),
) -> bool {
    match ctx.core.count_sent(session, Counted::Message(bytes)) {
        Ok(()) => return true,
        Err((LimitPolicy::Drop, _)) => {}
        Err((LimitPolicy::Error, key)) => refuse(ctx, &rate_reached(key)),
        Err((LimitPolicy::Close, _)) => ctx.close(session, Disconnect::TooManyRequests),
    }
    false
}

impl Application for Limited {
    fn message(&mut self, ctx: &mut Context<'_>, session: SessionId, message: Message<'_>) {
        let app = &mut self.0;
        let refuse = |ctx: &mut Context<'_>, denial: &Denial| {
            app.refuse_message(ctx, session, message, denial);
        };
        if count(ctx, session, message.bytes().len(), refuse) {
            self.0.message(ctx, session, message);
        }
    }

    fn event(&mut self, ctx: &mut Context<'_>, session: SessionId, event: &Event<'_>) {
        let Arguments { json, attachments } = event.arguments;
        let bytes =
            event.name.len() + json.len() + attachments.iter().map(|bytes| bytes.len()).sum::<usize>();
        let app = &mut self.0;
        let refuse = |ctx: &mut Context<'_>, denial: &Denial| app.refuse_event(ctx, session, event, denial);
        if count(ctx, session, bytes, refuse) {
            self.0.event(ctx, session, event);
        }
    }

    // The other handlers only pass on the call. A test compares this list with the trait.

    fn envelope(&self) -> Envelope {
        self.0.envelope()
    }

    fn page(&mut self, ctx: &mut Context<'_>, request: &Request<'_>) -> Option<Page> {
        self.0.page(ctx, request)
    }

    fn connect(&mut self, ctx: &mut Context<'_>, request: &Request<'_>) -> Connect {
        self.0.connect(ctx, request)
    }

    fn connect_namespace(&mut self, ctx: &mut Context<'_>, request: &NamespaceRequest<'_>) -> Admission {
        self.0.connect_namespace(ctx, request)
    }

    fn joined(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        request: &NamespaceRequest<'_>,
        id: &str,
    ) {
        self.0.joined(ctx, session, request, id);
    }

    fn acked(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        token: u64,
        answer: Option<Arguments<'_>>,
    ) {
        self.0.acked(ctx, session, token, answer);
    }

    fn client_disconnected(&mut self, ctx: &mut Context<'_>, client: &str) {
        self.0.client_disconnected(ctx, client);
    }

    fn opened(&mut self, ctx: &mut Context<'_>, session: SessionId, envelope: Envelope) {
        self.0.opened(ctx, session, envelope);
    }

    fn refuse_message(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        message: Message<'_>,
        denial: &Denial,
    ) {
        self.0.refuse_message(ctx, session, message, denial);
    }

    fn refuse_event(
        &mut self,
        ctx: &mut Context<'_>,
        session: SessionId,
        event: &Event<'_>,
        denial: &Denial,
    ) {
        self.0.refuse_event(ctx, session, event, denial);
    }

    fn notice(&mut self, ctx: &mut Context<'_>, notice: &Notice) {
        self.0.notice(ctx, notice);
    }

    fn closed(&mut self, ctx: &mut Context<'_>, session: SessionId) {
        self.0.closed(ctx, session);
    }

    fn configure(&mut self, rooms: &Rooms) {
        self.0.configure(rooms);
    }

    fn timer(&mut self, ctx: &mut Context<'_>, token: u64) {
        self.0.timer(ctx, token);
    }
}

#[cfg(test)]
mod tests {
    /// The functions that a text declares with an indentation of four spaces.
    fn functions(text: &str) -> Vec<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("    fn "));
        let mut names: Vec<_> = lines.filter_map(|line| line.split(['(', '<']).next()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn every_handler_is_passed_on() {
        let (trait_of, own) = (include_str!("mod.rs"), include_str!("limited.rs"));
        let trait_of = trait_of.split("pub trait Application").nth(1).unwrap();
        let own =
            own.split("impl Application for Limited").nth(1).unwrap().split("#[cfg(test)]").next().unwrap();
        assert_eq!(functions(own), functions(trait_of));
        assert!(functions(own).len() > 10);
    }
}
