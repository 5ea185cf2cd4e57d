//! SockJS over a WebSocket: one frame may have several messages.

use crate::app::Message;
use crate::executor::Executor;
use crate::executor::budget::MESSAGE_BYTES;
use crate::protocols::message::MessageContext;
use stentor_wire::sockjs::{self, Error, Limits, Messages};
use stentor_wire::ws::Kind;

/// The Close code and reason for messages that can't be understood.
pub(crate) const BROKEN: (u16, &str) = (Error::CLOSE_CODE, Error::CLOSE_REASON);

/// Why nothing that follows is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The messages can't be understood.
    Broken,
    /// The application has closed the session.
    Closed,
}

/// Text and number of the messages of a frame that remain.
type Rest = Option<(String, usize)>;

/// Passes the messages of one WebSocket message to the application, until the share of the turn is used.
pub(crate) fn handle_message(
    ex: &mut Executor,
    context: MessageContext,
    kind: Kind,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<Rest, Refusal> {
    let options = context.profile.service.place().and_then(|place| ex.options().sockjs.get(place));
    let limits = Limits { messages_max: options.map_or(1, |options| options.messages_max) };
    let text = kind.text(data).ok_or(Error::NotText);
    let Ok(messages) = text.and_then(|text| sockjs::parse_websocket(text, &limits)) else {
        ex.metrics().protocol_errors.add(1);
        return Err(Refusal::Broken);
    };
    deliver(ex, context, messages, out)
}

/// Continues with the messages of a frame.
pub(crate) fn resume(
    ex: &mut Executor,
    context: MessageContext,
    text: &str,
    messages: usize,
    out: &mut Vec<u8>,
) -> Result<Rest, Refusal> {
    deliver(ex, context, Messages::resume(text, messages), out)
}

fn deliver(
    ex: &mut Executor,
    context: MessageContext,
    mut messages: Messages<'_>,
    out: &mut Vec<u8>,
) -> Result<Rest, Refusal> {
    let replies_bytes_max = ex.options().limits.replies_bytes_max;
    let (mut scratch, mut delivered) = (String::new(), 0);
    let result = loop {
        let is_much = ex.budget.is_used() || out.len() > replies_bytes_max || ex.published_much();
        if delivered > 0
            && is_much
            && !messages.is_empty()
            && let Some(rest) = messages.rest()
        {
            break Ok(Some((rest.to_owned(), messages.len())));
        }
        let Some(text) = messages.next_in(&mut scratch) else { break Ok(None) };
        delivered += 1;
        ex.budget.count(text.len() + MESSAGE_BYTES);
        if !context.deliver(ex, context.writer(), Message::Text(text), out) {
            break Err(Refusal::Closed);
        }
    };
    ex.metrics().messages.add(delivered);
    result
}
