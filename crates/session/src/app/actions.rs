//! Messages to sessions other than the one whose input is being handled, and their acknowledgements.

use super::{Arguments, Message};
use crate::encode::Encoding;
use crate::ports::Acknowledged;
use bytes::Bytes;
use stentor_hub::SessionId;

/// A message for a session other than the one whose input is being handled.
#[expect(missing_docs, reason = "the names of the variants' fields say what they are")]
pub enum Sent {
    /// Text, as a message.
    Text(String),
    /// Bytes, as a message.
    Binary(Vec<u8>),
    /// An event. `ack` is the number by which the client acknowledges it, or `None` without acknowledgement.
    Event { name: String, json: String, attachments: Vec<Bytes>, ack: Option<u64> },
    /// The acknowledgement of a client's event.
    Ack { number: u64, json: String, attachments: Vec<Bytes> },
}

impl Sent {
    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
            Self::Event { json, .. } | Self::Ack { json, .. } => json.len(),
        }
    }

    /// Writes the message in a session's encoding. Only Socket.IO uses the namespace.
    pub fn write(&self, encoding: Encoding, namespace: &str, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => encoding.message(namespace, out, Message::Text(text)),
            Self::Binary(bytes) => encoding.message(namespace, out, Message::Binary(bytes)),
            Self::Event { name, json, attachments, ack } => {
                encoding.event(namespace, out, name, Arguments { json, attachments }, *ack);
            }
            Self::Ack { number, json, attachments } => {
                encoding.ack(namespace, out, *number, Arguments { json, attachments });
            }
        }
    }
}

/// Acknowledgements that the application or commands of one core wait for. A number is reused only after 2²⁹ others, so a late
/// acknowledgement isn't mistaken for that of a later event.
#[derive(Default)]
pub struct Acks {
    awaited: slab::Slab<Awaited>,
    serial: u32,
}

struct Awaited {
    number: u64,
    session: SessionId,
    waiter: Waiter,
}

/// The receiver of an acknowledgement.
pub enum Waiter {
    /// The application, which receives this token with the acknowledgement.
    App(u64),
    /// The caller of a command.
    Command(Acknowledged),
}

/// Maximum number of acknowledgements that a core waits for before commands request no more from its clients.
const COMMANDS_MAX: usize = 100_000;

/// Number of low bits of an acknowledgement's number that contain the index in the table; the other bits contain a serial
/// number. Numbers stay below 2⁵³, the maximum of JavaScript's exact integers.
const ACK_PLACE_BITS: u32 = 24;

impl Acks {
    /// A number for an acknowledgement of `session`. `None` if too many are awaited.
    pub fn expect(&mut self, session: SessionId, waiter: Waiter) -> Option<u64> {
        if matches!(waiter, Waiter::Command(_)) && self.awaited.len() >= COMMANDS_MAX {
            return None;
        }
        let entry = self.awaited.vacant_entry();
        let place = entry.key() as u64;
        if place >= 1 << ACK_PLACE_BITS {
            return None;
        }
        self.serial = self.serial.wrapping_add(1) & 0x1fff_ffff;
        let number = u64::from(self.serial) << ACK_PLACE_BITS | place;
        entry.insert(Awaited { number, session, waiter });
        Some(number)
    }

    /// Stops waiting for the acknowledgement with this number, which has arrived `from` a session, or won't arrive
    /// (`None`). Returns the session and the receiver. `None` if the acknowledgement isn't awaited from this session.
    pub fn take(&mut self, number: u64, from: Option<SessionId>) -> Option<(SessionId, Waiter)> {
        let place = (number & ((1 << ACK_PLACE_BITS) - 1)) as usize;
        let awaited = self.awaited.get(place)?;
        if awaited.number != number || from.is_some_and(|from| from != awaited.session) {
            return None;
        }
        let Awaited { session, waiter, .. } = self.awaited.remove(place);
        Some((session, waiter))
    }
}
