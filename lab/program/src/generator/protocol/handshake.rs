//! The opening of a WebSocket.

use stentor_wire::ws::handshake::ClientHandshake;

use super::answer::AnswerHead;
use super::{Dialect, Fault, Protocol, mqtt};

/// One that is under way.
pub(super) struct Handshake {
    client: ClientHandshake,
    deflate: bool,
    answer: AnswerHead,
}

impl Handshake {
    /// Asks for `path`. `key` is unlike that of every other connection.
    pub(super) fn begin(dialect: &Dialect, key: u128, path: &str, out: &mut Vec<u8>) -> Self {
        // Unlike each other is all they must be (RFC 6455 section 4.1 asks for random ones against proxies).
        let client = ClientHandshake::new(key.to_le_bytes(), dialect.deflate);
        let subprotocol = [("Sec-WebSocket-Protocol", mqtt::SUBPROTOCOL)];
        let headers = if dialect.protocol == Protocol::Mqtt { &subprotocol[..] } else { &[] };
        client.write_request(out, &dialect.host, path, headers);
        Self { client, deflate: dialect.deflate, answer: AnswerHead::default() }
    }

    /// Takes what came; once the server has agreed, what came behind that.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let agreed = self.answer.take(data, |answer| match self.client.check_response(answer)? {
            None if self.deflate => Err(Fault::Answer("it agrees to no compression")),
            _ => Ok(()),
        })?;
        Ok(agreed.map(|(_, rest)| rest))
    }
}
