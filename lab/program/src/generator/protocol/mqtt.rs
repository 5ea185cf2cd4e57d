//! MQTT 3.1.1 over WebSocket (OASIS standard, section 6): all packets except those of the load, and splitting frames into packets.
//!
//! Packets form a stream, which may be split into binary frames anywhere. A client connects, subscribes to [`TOPIC`] at
//! QoS 0, and receives messages once the server grants the subscription. It sends a PINGREQ well before the server's
//! time limit.
//!
//! Deliberately absent: QoS 1 and 2, retained messages, authentication.

use std::time::Duration;

use super::{Fault, Reaction};

/// The value of the header `Sec-WebSocket-Protocol`.
pub(super) const SUBPROTOCOL: &str = "mqtt";
/// Interval of the client's pings: half of the time promised in [`GREETING`].
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// PINGREQ (section 3.12).
pub(super) const PING: &[u8] = &[0xc0, 0];
/// CONNECT with a clean session, a keep-alive of 60 s and no client id (section 3.1), then SUBSCRIBE, which may follow at once
/// (section 3.8).
pub(super) const GREETING: &[u8] = b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0\x82\x09\0\x01\0\x04room\0";
/// The topic of the load's messages, preceded by its length.
const TOPIC: &str = "\0\x04room";

const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
/// The refusal of a subscription.
const FAILURE: u8 = 0x80;
/// Maximum size of a length in bytes (section 2.2.3).
const LENGTH_BYTES_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Type,
    /// The reader is in the length, after this many bytes.
    Length(u32),
    Body,
}

/// Extracts the packets of one connection from its frames.
///
/// Invariant: `left` is the number of missing bytes of the current packet, once its length is known.
#[derive(Debug, Default)]
pub(super) struct PacketReader {
    stage: Stage,
    left: usize,
}

impl PacketReader {
    /// Consumes the next bytes. Calls `each` with the data after the length, and with `true` for the last data of the
    /// packet. For packets other than PUBLISH, the data starts with the type.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8], bool) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while let Some((first, rest)) = bytes.split_first() {
            match self.stage {
                Stage::Type => {
                    (bytes, self.left, self.stage) = (rest, 0, Stage::Length(0));
                    if *first != PUBLISH {
                        each(&[*first], false)?;
                    }
                }
                Stage::Length(LENGTH_BYTES_MAX) => {
                    return Err(Fault::Answer("a packet whose length is too long"));
                }
                Stage::Length(had) => {
                    bytes = rest;
                    self.left |= usize::from(first & 0x7f) << (7 * had);
                    self.stage = match (first & 0x80, self.left) {
                        (0, 0) => {
                            each(b"", true)?;
                            Stage::Type
                        }
                        (0, _) => Stage::Body,
                        _ => Stage::Length(had + 1),
                    };
                }
                Stage::Body => {
                    let (here, rest) = bytes.split_at(self.left.min(bytes.len()));
                    bytes = rest;
                    self.left -= here.len();
                    if self.left == 0 {
                        self.stage = Stage::Type;
                    }
                    each(here, self.left == 0)?;
                }
            }
        }
        Ok(())
    }
}

/// Handles a packet that doesn't belong to the load. `packet` has no length.
pub(super) fn react(packet: &[u8]) -> Result<Reaction, Fault> {
    match *packet {
        [CONNACK, _, code] if code != 0 => Err(Fault::Ended(format!("CONNACK with code {code}"))),
        [SUBACK, _, _, FAILURE] => Err(Fault::Ended("a refusal of the subscription".to_owned())),
        [SUBACK, _, _, _] => Ok(Reaction::OPENED),
        _ => Ok(Reaction::NOTHING),
    }
}

/// Appends a publication.
pub(super) fn write_publication(out: &mut Vec<u8>, text: &[u8]) {
    out.push(PUBLISH);
    let mut length = TOPIC.len() + text.len();
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(TOPIC.as_bytes());
    out.extend_from_slice(text);
}
