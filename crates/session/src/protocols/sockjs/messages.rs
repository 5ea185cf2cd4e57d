//! Messages of SockJS clients, in a body or in a WebSocket message.

use crate::app::{HandlerScope, Message};
use crate::budget::MESSAGE_BYTES;
use crate::executor::Executor;
use crate::protocols::client::Flow;
use crate::protocols::message;
use stentor_wire::sockjs::{self, Error, Limits, Messages};

/// The reason why further messages aren't handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The messages can't be parsed.
    Broken,
    /// The application has closed the session.
    Closed,
}

/// The text of the remaining messages, and their number. `None` if none remains.
pub(super) type Rest<T> = Option<(T, usize)>;

/// Passes the messages of one WebSocket message to the application, until the connection's share of the turn is used.
pub(super) fn handle_message(
    ex: &mut Executor,
    scope: HandlerScope<'_>,
    message: Message<'_>,
    out: &mut Vec<u8>,
) -> Result<Rest<String>, Refusal> {
    let options = scope.service.place().and_then(|place| ex.options().sockjs.get(place));
    let limits = Limits { messages_max: options.map_or(1, |options| options.messages_max) };
    let text = message.text().ok_or(Error::NotText);
    let parsed = text.and_then(|text| Ok((text, sockjs::parse_websocket(text, &limits)?)));
    let Ok((text, messages)) = parsed else {
        ex.metrics().protocol_errors.add(1);
        return Err(Refusal::Broken);
    };
    resume(ex, scope, text, messages, out)
}

/// Continues with the remaining messages of a WebSocket message. `text` contains all of them.
pub(super) fn resume(
    ex: &mut Executor,
    scope: HandlerScope<'_>,
    text: &str,
    messages: Messages<'_>,
    out: &mut Vec<u8>,
) -> Result<Rest<String>, Refusal> {
    let replies_bytes_max = ex.options().limits.replies_bytes_max;
    let rest = deliver(ex, scope, messages, out, replies_bytes_max)?;
    Ok(rest.map(|(rest, messages)| (rest.unwrap_or(text).to_owned(), messages)))
}

/// Passes messages to the application, at least one, until the connection's share of the turn is used, `out` is longer than
/// `out_bytes_max`, or a message waits for a decision. The text of the rest is `None` if the rest begins with the first
/// message.
pub(super) fn deliver<'m>(
    ex: &mut Executor,
    scope: HandlerScope<'_>,
    mut messages: Messages<'m>,
    out: &mut Vec<u8>,
    out_bytes_max: usize,
) -> Result<Rest<Option<&'m str>>, Refusal> {
    let (mut scratch, mut delivered) = (String::new(), 0);
    let result = loop {
        let rest = Some((messages.rest(), messages.len()));
        let is_much = || {
            ex.budget.is_used()
                || out.len() > out_bytes_max
                || ex.budget.published_much()
                || scope.asker.is_some_and(|conn| ex.questions.waiting.is_waiting(conn))
        };
        if delivered > 0 && !messages.is_empty() && is_much() {
            break Ok(rest);
        }
        let Some(message) = messages.next_in(&mut scratch) else { break Ok(None) };
        delivered += 1;
        ex.budget.count(message.len() + MESSAGE_BYTES);
        match message::deliver(ex, scope, Message::Text(message), out) {
            Flow::Continue => {}
            Flow::Wait | Flow::Yield | Flow::Migrate(_) => break Ok(rest),
            Flow::Stop => break Err(Refusal::Closed),
        }
    };
    ex.metrics().messages.add(delivered);
    result
}
