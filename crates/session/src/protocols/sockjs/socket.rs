//! The dialect of SockJS on WebSockets with sessions of their own.

use super::encode::{wire, write_to_socket};
use super::messages::{self, Refusal};
use crate::app::{HandlerScope, Message};
use crate::encode::Encoding;
use crate::executor::Executor;
use crate::identity::Service;
use crate::message::Envelope;
use crate::protocols::client::Flow;
use crate::protocols::dialect::{Dialect, Handled, Rest};
use stentor_wire::sockjs::{Close, Error, Frame, Messages, Wrapping};

/// The dialect of SockJS on a WebSocket: frames of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnWebSocket;

fn handled(result: Result<messages::Rest<String>, Refusal>) -> Handled {
    match result {
        Ok(None) => Handled::Flow(Flow::Continue),
        Ok(Some(rest)) => Handled::Rest(rest),
        // The connection ends without a close frame of SockJS, as in sockjs-node.
        Err(Refusal::Broken) => Handled::Refused(Error::CLOSE_CODE, Error::CLOSE_REASON),
        Err(Refusal::Closed) => Handled::Flow(Flow::Stop),
    }
}

impl Dialect for OnWebSocket {
    fn name(&self) -> &'static str {
        "sockjs"
    }

    fn encoding(&self, _service: Service, envelope: Envelope, _deflates: bool) -> Encoding {
        Encoding::own(wire(Wrapping::WebSocket), envelope)
    }

    fn open(&self, out: &mut Vec<u8>) {
        write_to_socket(out, 1, &Frame::Open);
    }

    fn close(&self, code: u16, reason: &str, out: &mut Vec<u8>) {
        write_to_socket(out, reason.len() + 10, &Frame::Close(Close { code, reason }));
    }

    fn handle_message(
        &mut self,
        ex: &mut Executor,
        scope: HandlerScope<'_>,
        message: Message<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        handled(messages::handle_message(ex, scope, message, out))
    }

    fn resume(
        &mut self,
        ex: &mut Executor,
        scope: HandlerScope<'_>,
        (text, left): Rest,
        out: &mut Vec<u8>,
    ) -> Handled {
        handled(messages::resume(ex, scope, &text, Messages::resume(&text, left), out))
    }
}
