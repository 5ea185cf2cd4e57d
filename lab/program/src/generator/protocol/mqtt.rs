//! MQTT 3.1.1 over WebSocket (OASIS standard, section 6): what is said besides the load, and cutting packets out of frames.
//!
//! Packets are a stream, cut into binary frames anywhere. A client connects, subscribes to [`TOPIC`] at QoS 0, and is delivered to
//! once the server grants that. It sends a PINGREQ well before the server would miss one.
//!
//! Deliberately absent: QoS 1 and 2, retained messages, authentication.

use std::time::Duration;

use super::{Fault, Reaction};

/// For the header `Sec-WebSocket-Protocol`.
pub(super) const SUBPROTOCOL: &str = "mqtt";
/// How often a client pings: twice as often as [`GREETING`] promises.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// PINGREQ (section 3.12).
pub(super) const PING: &[u8] = &[0xc0, 0];
/// CONNECT with a clean session, a keep-alive of 60 s and a name that the server gives (section 3.1), and SUBSCRIBE, which may
/// follow at once (section 3.8).
pub(super) const GREETING: &[u8] = b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0\x82\x09\0\x01\0\x04room\0";
/// Where the load's messages are published, with its length before it.
const TOPIC: &str = "\0\x04room";

const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
/// The refusal of a subscription.
const FAILURE: u8 = 0x80;
/// Bytes of a length (section 2.2.3).
const LENGTH_BYTES_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Type,
    /// In the length, of which so many bytes have come.
    Length(u32),
    Body,
}

/// Cuts the packets of one connection out of its frames.
///
/// Invariant: `left` counts the bytes of the packet at hand that have not come, once its length has.
#[derive(Debug, Default)]
pub(super) struct PacketReader {
    stage: Stage,
    left: usize,
}

impl PacketReader {
    /// Takes the next bytes, and calls `each` with what stands behind the length, and whether that ends. Before that of packets
    /// other than PUBLISH comes the byte with their type.
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

/// A packet that isn't the load's, without its length.
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
