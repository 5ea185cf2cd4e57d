//! The limits of `[session_limits]`, which apply before the application handles a message or an event.

use super::{Application, Arguments, Context, Event, Message};
use crate::limits::rates::Counted;
use crate::limits::{LimitPolicy, rate_reached};
use crate::ports::Denial;
use stentor_hub::{Disconnect, SessionId};

/// Passes a message to the application, unless it exceeds a limit of its session.
#[inline]
pub(crate) fn handle_message(
    app: &mut dyn Application,
    ctx: &mut Context<'_>,
    session: SessionId,
    message: Message<'_>,
) {
    if ctx.core.rates.is_some()
        && let Err(denial) = count(ctx, session, message.bytes().len())
    {
        if let Some(denial) = denial {
            app.refuse_message(ctx, session, message, &denial);
        }
        return;
    }
    app.message(ctx, session, message);
}

/// Passes an event to the application, unless it exceeds a limit of its session.
#[inline]
pub(crate) fn handle_event(
    app: &mut dyn Application,
    ctx: &mut Context<'_>,
    session: SessionId,
    event: &Event<'_>,
) {
    let Arguments { json, attachments } = event.arguments;
    let bytes = || event.name.len() + json.len() + attachments.iter().map(|bytes| bytes.len()).sum::<usize>();
    if ctx.core.rates.is_some()
        && let Err(denial) = count(ctx, session, bytes())
    {
        if let Some(denial) = denial {
            app.refuse_event(ctx, session, event, &denial);
        }
        return;
    }
    app.event(ctx, session, event);
}

/// Counts an input of a session.
///
/// # Errors
/// The input exceeds a limit and must not be handled. `Some` is the error for the client. `None` if the policy is another one: the input is
/// dropped, or the session is closed.
fn count(ctx: &mut Context<'_>, session: SessionId, bytes: usize) -> Result<(), Option<Denial>> {
    match ctx.core.count_sent(session, Counted::Message(bytes)) {
        Ok(()) => Ok(()),
        Err((LimitPolicy::Drop, _)) => Err(None),
        Err((LimitPolicy::Error, key)) => Err(Some(rate_reached(key))),
        Err((LimitPolicy::Close, _)) => {
            ctx.close(session, Disconnect::TooManyRequests);
            Err(None)
        }
    }
}
