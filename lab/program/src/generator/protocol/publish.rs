//! Publishing over HTTP (docs/admin-api.md): a POST for each payload, one at a time on a connection that stays open. The server's
//! acceptance counts as the echo.

use std::collections::VecDeque;

use super::answer::{Requests, write_post};
use super::{ClientEvent, Dialect, Fault, Lane, Out, ProtocolClient};
use crate::payload::{HEAD_BYTES, Head};

/// A client that publishes; see the module's documentation.
#[derive(Debug, Default)]
pub(in super::super) struct PublishingClient {
    requests: Requests,
    /// Payloads to publish. The first one is in progress.
    queue: VecDeque<Vec<u8>>,
}

impl PublishingClient {
    fn post(&mut self, dialect: &Dialect, out: &mut Out) {
        if let (true, Some(payload)) = (self.requests.begin(!self.queue.is_empty()), self.queue.front()) {
            out.scratch.clear();
            dialect.outbound.wrap(&mut out.scratch, payload);
            write_post(dialect, &dialect.path, "application/json", &out.scratch, &mut out.main);
        }
    }
}

impl ProtocolClient for PublishingClient {
    fn connected(&mut self, _dialect: &Dialect, _key: u128, out: &mut Out) {
        out.happened.push(ClientEvent::Opened);
    }

    fn receive(&mut self, dialect: &Dialect, _lane: Lane, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        if self.requests.feed(data)? {
            let payload = self.queue.pop_front().unwrap_or_default();
            let head = payload.get(..HEAD_BYTES).and_then(Head::read);
            let payload_bytes = payload.len() as u64;
            out.happened.push(ClientEvent::Payload { head, payload_bytes, clean: true });
            self.post(dialect, out);
        }
        Ok(())
    }

    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        self.queue.push_back(payload.to_vec());
        self.post(dialect, out);
    }
}
