//! What is spoken over WebSocket: one connection, and messages on it.

use std::fmt;

use stentor_wire::engineio::{Version, encode_message};
use stentor_wire::http1::{HeadScanner, Limits, parse_response};
use stentor_wire::ws::handshake::ClientHandshake;
use stentor_wire::ws::{Opcode, encode};

use super::envelope::{Arrived, MessageReader};
use super::frames::{FrameReader, Piece};
use super::session::{Heard, Session};
use super::{Dialect, Fault, Happened, Out, Protocol};

/// See the module's documentation.
#[derive(Debug)]
pub(in super::super) struct WebSocketClient {
    /// Until the server has agreed to the WebSocket.
    handshake: Option<Box<Handshake>>,
    frames: FrameReader,
    messages: MessageReader,
    session: Session,
}

struct Handshake {
    client: ClientHandshake,
    scanner: HeadScanner,
    received: Vec<u8>,
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").finish_non_exhaustive()
    }
}

impl WebSocketClient {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            handshake: None,
            frames: FrameReader::default(),
            messages: MessageReader::default(),
            session: Session::new(protocol),
        }
    }

    pub(super) fn connected(&mut self, dialect: &Dialect, key: u128, out: &mut Vec<u8>) {
        // Unlike each other is all they must be (RFC 6455 section 4.1 asks for random ones against proxies).
        let client = ClientHandshake::new(key.to_le_bytes(), false);
        match dialect.protocol {
            Protocol::SockJs => {
                let path = format!("{}/{:03}/{key:032x}/websocket", dialect.path, key % 1000);
                client.write_request(out, &dialect.host, &path, &[]);
            }
            _ => client.write_request(out, &dialect.host, &dialect.path, &[]),
        }
        let (scanner, received) = (HeadScanner::default(), Vec::new());
        self.handshake = Some(Box::new(Handshake { client, scanner, received }));
    }

    pub(super) fn receive(
        &mut self,
        dialect: &Dialect,
        data: &[u8],
        out: &mut Out,
        happened: &mut Vec<Happened>,
    ) -> Result<(), Fault> {
        let Some(handshake) = &mut self.handshake else { return self.frames(dialect, data, out, happened) };
        handshake.received.extend_from_slice(data);
        let Some(head_len) = handshake.answer()? else { return Ok(()) };
        let received = std::mem::take(&mut handshake.received);
        self.handshake = None;
        if self.session.opens_at_once() {
            happened.push(Happened::Opened);
        }
        self.frames(dialect, &received[head_len..], out, happened)
    }

    fn frames(
        &mut self,
        dialect: &Dialect,
        data: &[u8],
        out: &mut Out,
        happened: &mut Vec<Happened>,
    ) -> Result<(), Fault> {
        let Self { frames, messages, session, .. } = self;
        frames.feed(data, |piece| match piece {
            Piece::Data { bytes, ends } => messages.take(&dialect.inbound, bytes, ends, |arrived| {
                match arrived {
                    Arrived::Payload { head, payload_bytes, clean } => {
                        happened.push(Happened::Payload { head, payload_bytes, clean });
                    }
                    Arrived::Other(message) => match session.hear_message(message, &mut Vec::new())? {
                        Heard::Nothing => {}
                        Heard::Opened => happened.push(Happened::Opened),
                        Heard::Reply(packet) => {
                            out.scratch.clear();
                            encode_message(&mut out.scratch, Version::V4, &packet, false);
                            encode(&mut out.main, Opcode::Text, &out.scratch, false, Some(dialect.mask));
                        }
                    },
                }
                Ok(())
            }),
            Piece::Control { opcode: 8, .. } => Err(Fault::Ended("a close frame".to_owned())),
            Piece::Control { opcode: 9, payload } => {
                encode(&mut out.main, Opcode::Pong, payload, false, Some(dialect.mask));
                Ok(())
            }
            Piece::Control { .. } => Ok(()),
        })
    }

    pub(super) fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        out.scratch.clear();
        dialect.outbound.wrap(&mut out.scratch, payload);
        encode(&mut out.main, Opcode::Text, &out.scratch, false, Some(dialect.mask));
    }
}

impl Handshake {
    /// The length of the head once it is whole and right.
    fn answer(&mut self) -> Result<Option<usize>, Fault> {
        let limits = Limits::default();
        let Some(end) = self.scanner.find_end(&self.received, &limits)? else { return Ok(None) };
        let response = parse_response(&self.received[..end], &limits)?;
        self.client.check_response(&response)?;
        Ok(Some(end))
    }
}
