//! The opening handshake of a WebSocket.

use stentor_wire::ws::handshake::ClientHandshake;

use super::answer::AnswerHead;
use super::{Dialect, Fault, Protocol, mqtt};

/// A handshake in progress.
pub(super) struct Handshake {
    client: ClientHandshake,
    deflate: bool,
    answer: AnswerHead,
}

impl Handshake {
    /// Requests `path`. `key` is different for each connection.
    pub(super) fn begin(dialect: &Dialect, key: u128, path: &str, out: &mut Vec<u8>) -> Self {
        // Different keys are enough here (RFC 6455 section 4.1 asks for random ones because of proxies).
        let client = ClientHandshake::new(key.to_le_bytes(), dialect.deflate);
        let subprotocol = [("Sec-WebSocket-Protocol", mqtt::SUBPROTOCOL)];
        let headers = if dialect.protocol == Protocol::Mqtt { &subprotocol[..] } else { &[] };
        client.write_request(out, &dialect.host, path, headers);
        Self { client, deflate: dialect.deflate, answer: AnswerHead::default() }
    }

    /// Consumes received data. Once the server has accepted, returns the data after its answer.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let agreed = self.answer.take(data, |answer| match self.client.check_response(answer)? {
            None if self.deflate => Err(Fault::Answer("it agrees to no compression")),
            _ => Ok(()),
        })?;
        Ok(agreed.map(|(_, rest)| rest))
    }
}
