//! Events of the backend that clients of workers acknowledge.
//!
//! Workers number their own events from a multiple of 2²⁰ below 2³⁰ on, so the numbers here name no event of a worker, and an acknowledgement
//! with one of them isn't for the worker. They are below 2³¹, which clients in all languages can read. A core's sockets of one call
//! have the same number.
//!
//! **Bounds.** Calls wait for at most [`CLIENTS_MAX`] clients of a core, and end with their timeout.

use crate::identity::ClientId;
use crate::ledger::Charge;
use crate::ports::{Acknowledged, LinkMessage, LinkMessages};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stentor_hub::Data;
use stentor_wire::socketio::{Body, Decoder, Limits, Packet, Role, Version};

/// The first number.
const FIRST: u32 = (1 << 31) - COUNT;
const COUNT: u32 = 1 << 20;
/// Maximum number of clients for which calls wait.
const CLIENTS_MAX: usize = 100_000;
/// Approximate size of a client for which a call waits.
const CLIENT_BYTES: usize = 32;

struct Awaited {
    namespace: Arc<str>,
    /// The clients that haven't answered.
    clients: BTreeSet<ClientId>,
    answered: Acknowledged,
}

/// The calls of a core that wait for acknowledgements, by number.
pub(crate) struct Calls {
    awaited: BTreeMap<u32, Awaited>,
    last: u32,
    /// Number of clients that haven't answered, in all calls.
    clients: usize,
    charge: Charge,
}

/// A client's acknowledgement.
struct Answer {
    number: u32,
    namespace: Box<str>,
    json: Bytes,
}

fn read(packet: &Packet<'_>) -> Option<Answer> {
    let Body::Ack(ack) = packet.body else { return None };
    let json = Bytes::copy_from_slice(ack.arguments.raw().as_bytes());
    Some(Answer { number: ack.id.try_into().ok()?, namespace: packet.namespace.into(), json })
}

/// Decodes an acknowledgement. `None` for other packets, and for malformed ones, which are the worker's.
fn decode(text: &[u8], attachments: &[LinkMessage]) -> Option<Answer> {
    let text = std::str::from_utf8(text).ok()?;
    let limits = Limits { attachments_max: attachments.len(), packet_bytes_max: usize::MAX };
    let mut decoder = Decoder::new(Version::V5, Role::Server);
    if let Some(packet) = decoder.text(text, &limits).ok()? {
        return read(&packet);
    }
    let mut assembled = None;
    for attachment in attachments {
        assembled = decoder.binary(attachment.data(), &limits).ok()?;
    }
    read(&assembled?.packet())
}

impl Calls {
    pub(crate) fn new(charge: Charge) -> Self {
        Self { awaited: BTreeMap::new(), last: 0, clients: 0, charge }
    }

    /// Begins a call of these clients' sockets in a namespace. Returns its number. `None` if calls wait for too many clients.
    pub(crate) fn begin(
        &mut self,
        namespace: &Arc<str>,
        clients: &[ClientId],
        answered: &Acknowledged,
    ) -> Option<u32> {
        let number = FIRST + self.last;
        if self.clients + clients.len() > CLIENTS_MAX || self.awaited.contains_key(&number) {
            return None;
        }
        self.last = (self.last + 1) % COUNT;
        self.clients += clients.len();
        self.charge.add(clients.len() * CLIENT_BYTES);
        let (namespace, answered) = (namespace.clone(), answered.clone());
        let clients = clients.iter().copied().collect();
        self.awaited.insert(number, Awaited { namespace, clients, answered });
        Some(number)
    }

    /// Ends a call.
    pub(crate) fn end(&mut self, number: u32) {
        let count = self.awaited.remove(&number).map_or(0, |awaited| awaited.clients.len());
        self.forget(count);
    }

    fn forget(&mut self, count: usize) {
        self.clients -= count;
        self.charge.subtract(count * CLIENT_BYTES);
    }

    /// Passes a client's packet to the call that it acknowledges. Returns `false` if it acknowledges none.
    pub(crate) fn handle_unit(&mut self, client: ClientId, unit: &LinkMessages) -> bool {
        let [LinkMessage::Text(text), attachments @ ..] = &unit[..] else { return false };
        if self.awaited.is_empty() || !matches!(text.first(), Some(b'3' | b'6')) {
            return false;
        }
        let Some(Answer { number, namespace, json }) = decode(text, attachments) else { return false };
        let Some(awaited) = self.awaited.get_mut(&number) else { return false };
        if *awaited.namespace != *namespace || !awaited.clients.remove(&client) {
            return false;
        }
        let attachments = attachments.iter().map(|attachment| attachment.data().clone()).collect();
        (awaited.answered)(Data::Arguments { json, attachments });
        self.forget(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::ClientKind;
    use crate::ledger::{Class, Ledger};

    #[test]
    fn calls_wait_for_a_bounded_number_of_clients() {
        let mut calls = Calls::new(Charge::new(Arc::new(Ledger::new(usize::MAX)), Class::Link));
        let client = |index| ClientId::new(ClientKind::EngineIo, index, 0);
        let clients: Vec<ClientId> = (0..CLIENTS_MAX).map(client).collect();
        let answered: Acknowledged = Arc::new(|_| {});
        let begin = |calls: &mut Calls, count| calls.begin(&"/".into(), &clients[..count], &answered);
        let Some(first) = begin(&mut calls, CLIENTS_MAX) else { panic!("there is room") };
        assert_eq!(begin(&mut calls, 1), None);
        let unit = [LinkMessage::Text(format!("3{first}[]").into())].into_iter().collect();
        assert!(calls.handle_unit(client(0), &unit) && !calls.handle_unit(client(0), &unit));
        let Some(next) = begin(&mut calls, 1) else { panic!("there is room") };
        assert_ne!(first, next);
        calls.end(first);
        calls.end(next);
        assert_eq!((calls.clients, calls.charge.bytes()), (0, 0));
    }
}
