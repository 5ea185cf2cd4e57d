//! The opening of a WebSocket.

use std::fmt;

use stentor_wire::http1::{HeadScanner, Limits, parse_response};
use stentor_wire::ws::handshake::ClientHandshake;

use super::{Dialect, Fault, Protocol, mqtt};

/// One that is under way.
pub(super) struct Handshake {
    client: ClientHandshake,
    scanner: HeadScanner,
    received: Vec<u8>,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

impl Handshake {
    /// Asks for `path`. `key` is unlike that of every other connection.
    pub(super) fn begin(dialect: &Dialect, key: u128, path: &str, out: &mut Vec<u8>) -> Self {
        // Unlike each other is all they must be (RFC 6455 section 4.1 asks for random ones against proxies).
        let client = ClientHandshake::new(key.to_le_bytes(), false);
        let subprotocol = [("Sec-WebSocket-Protocol", mqtt::SUBPROTOCOL)];
        let headers = if dialect.protocol == Protocol::Mqtt { &subprotocol[..] } else { &[] };
        client.write_request(out, &dialect.host, path, headers);
        Self { client, scanner: HeadScanner::default(), received: Vec::new() }
    }

    /// Takes what came; once the server has agreed, what came behind that.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.received.extend_from_slice(data);
        let limits = Limits::default();
        let Some(end) = self.scanner.find_end(&self.received, &limits)? else { return Ok(None) };
        let response = parse_response(&self.received[..end], &limits)?;
        self.client.check_response(&response)?;
        Ok(Some(self.received.split_off(end)))
    }
}
