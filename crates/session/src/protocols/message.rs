//! Calls the application for plain sessions, and passes their messages to it.

use super::client::Flow;
use crate::app::{HandlerScope, Message, handle_message};
use crate::encode::Encoding;
use crate::executor::Executor;
use crate::identity::Service;
use crate::model::SessionId;
use stentor_wire::http1::Request;

/// The scope for calling the application about a plain session.
#[inline]
pub(crate) fn scope_of<'a>(
    session: SessionId,
    encoding: Encoding,
    service: Service,
    request: Option<&'a Request<'a>>,
) -> HandlerScope<'a> {
    HandlerScope { session: Some(session), encoding, service, request, ..HandlerScope::default() }
}

/// Notifies the application that the session of `scope` has begun.
pub(super) fn open(ex: &mut Executor, scope: HandlerScope<'_>, out: &mut Vec<u8>) {
    if let Some(session) = scope.session {
        ex.call_app(scope, out, |app, ctx| app.opened(ctx, session, scope.encoding.envelope()));
    }
}

/// Passes a message to the application. The connection `scope.asker` waits for decisions about the message.
#[inline(always)] // As `Executor::call_app`.
pub(crate) fn deliver(
    ex: &mut Executor,
    scope: HandlerScope<'_>,
    message: Message<'_>,
    out: &mut Vec<u8>,
) -> Flow {
    let Some(session) = scope.session else { return Flow::Stop };
    let asked = ex.effects.mark();
    ex.call_app(scope, out, |app, ctx| handle_message(app, ctx, session, message));
    after_handler(ex, asked, session)
}

/// Returns [`Flow::Stop`] if the application closed the session while it handled a message. `asked` is the number of
/// effects before.
#[inline]
pub(crate) fn after_handler(ex: &mut Executor, asked: usize, session: SessionId) -> Flow {
    Flow::if_continues(!ex.effects.closes_since(asked, session))
}
