//! What the application is told of a plain session, and its messages on their way there.

use crate::app::{Envelope, HandlerScope, Message};
use crate::encode::Writer;
use crate::executor::Executor;
use crate::identity::Service;
use crate::model::SessionId;
use stentor_wire::http1::Request;

/// The scope of what concerns a plain session.
#[inline]
pub(crate) fn scope_of<'a>(
    session: SessionId,
    writer: Writer<'a>,
    envelope: Envelope,
    service: Service,
    request: Option<&'a Request<'a>>,
) -> HandlerScope<'a> {
    HandlerScope { session: Some(session), writer, envelope, service, request, ..HandlerScope::default() }
}

/// The session has begun.
pub(crate) fn open(ex: &mut Executor, scope: HandlerScope<'_>, out: &mut Vec<u8>) {
    if let Some(session) = scope.session {
        ex.call_app(scope, out, |app, ctx| app.opened(ctx, session, scope.envelope));
    }
}

/// Passes a message to the application. Returns whether what follows it is handled.
#[inline]
pub(crate) fn deliver(
    ex: &mut Executor,
    scope: HandlerScope<'_>,
    message: Message<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Some(session) = scope.session else { return false };
    let asked = ex.actions.len();
    ex.call_app(scope, out, |app, ctx| app.message(ctx, session, message));
    !ex.asks_to_close(asked, session)
}
