//! Messages that are lines: the splitting, and a client that sends and receives only such lines (protocol `tcp`).

use memchr::memchr;

use super::envelope::{Envelope, MessageReader};
use super::{ClientEvent, Dialect, Fault, Lane, Out, ProtocolClient};

/// Consumes the next bytes of a stream of lines, and calls `other` for every line without a payload.
pub(super) fn take_lines(
    messages: &mut MessageReader,
    envelope: &Envelope,
    mut bytes: &[u8],
    happened: &mut Vec<ClientEvent>,
    mut other: impl FnMut(&[u8], &mut Vec<ClientEvent>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while let Some(end) = memchr(b'\n', bytes) {
        if let Some(line) = messages.take(envelope, &bytes[..end], true, happened)? {
            other(&line, happened)?;
        }
        bytes = &bytes[end + 1..];
    }
    if !bytes.is_empty() {
        messages.take(envelope, bytes, false, happened)?;
    }
    Ok(())
}

/// A client of lines over TCP.
#[derive(Debug, Default)]
pub(in super::super) struct LineClient {
    messages: MessageReader,
}

impl ProtocolClient for LineClient {
    fn connected(&mut self, _dialect: &Dialect, _key: u128, out: &mut Out) {
        out.happened.push(ClientEvent::Opened);
    }

    fn receive(&mut self, dialect: &Dialect, _lane: Lane, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        // Without an envelope, every line is a payload.
        take_lines(&mut self.messages, &dialect.inbound, data, &mut out.happened, |_, _| Ok(()))
    }

    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        dialect.outbound.wrap(&mut out.main, payload);
        out.main.push(b'\n');
    }
}
