//! Messages that are lines: cutting them, and a client that sends and hears nothing else (protocol `tcp`).

use memchr::memchr;

use super::envelope::{Arrived, Envelope, MessageReader, TooLong};
use super::{ClientEvent, Dialect, Fault, Lane, Out, ProtocolClient};

/// Takes the next bytes of a stream of lines, and calls `each` for every message whose line has ended.
pub(super) fn take_lines<E: From<TooLong>>(
    messages: &mut MessageReader,
    envelope: &Envelope,
    mut bytes: &[u8],
    mut each: impl FnMut(Arrived<'_>) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(end) = memchr(b'\n', bytes) {
        messages.take(envelope, &bytes[..end], true, &mut each)?;
        bytes = &bytes[end + 1..];
    }
    if bytes.is_empty() { Ok(()) } else { messages.take(envelope, bytes, false, each) }
}

/// Lines over TCP, and nothing else.
#[derive(Debug, Default)]
pub(in super::super) struct LineClient {
    messages: MessageReader,
}

impl ProtocolClient for LineClient {
    fn connected(&mut self, _dialect: &Dialect, _key: u128, out: &mut Out) {
        out.happened.push(ClientEvent::Opened);
    }

    fn receive(&mut self, dialect: &Dialect, _lane: Lane, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        take_lines(&mut self.messages, &dialect.inbound, data, |arrived| {
            // Without an envelope every line is a payload.
            if let Arrived::Payload { head, payload_bytes, clean } = arrived {
                out.happened.push(ClientEvent::Payload { head, payload_bytes, clean });
            }
            Ok(())
        })
    }

    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        dialect.outbound.wrap(&mut out.main, payload);
        out.main.push(b'\n');
    }
}
