//! What is spoken over WebSocket: one connection, and messages on it.

use std::time::Duration;

use stentor_wire::ws::{Opcode, encode};

use super::envelope::{Arrived, MessageReader};
use super::frames::{FrameReader, Piece};
use super::handshake::Handshake;
use super::session::Session;
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
        let handshake = match dialect.protocol {
            Protocol::SockJs => {
                let path = format!("{}/websocket", dialect.sockjs_session(key));
                Handshake::begin(dialect, key, &path, out)
            }
            _ => Handshake::begin(dialect, key, &dialect.path, out),
        };
        self.handshake = Some(Box::new(handshake));
    }

    pub(super) fn receive(
        &mut self,
        dialect: &Dialect,
        data: &[u8],
        out: &mut Out,
        happened: &mut Vec<Happened>,
    ) -> Result<(), Fault> {
        let Some(handshake) = &mut self.handshake else { return self.frames(dialect, data, out, happened) };
        let Some(rest) = handshake.take(data)? else { return Ok(()) };
        self.handshake = None;
        if self.session.opens_at_once() {
            happened.push(Happened::Opened);
        }
        self.frames(dialect, &rest, out, happened)
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
                    Arrived::Other(message) => {
                        let heard = session.hear_message(message)?;
                        if heard.opened {
                            happened.push(Happened::Opened);
                        }
                        if let Some(text) = heard.say {
                            write_message(dialect, text.as_bytes(), &mut out.main);
                        }
                    }
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
        write_message(dialect, &out.scratch, &mut out.main);
    }

    pub(super) fn beats_every(&self) -> Option<Duration> {
        self.session.beats_every()
    }

    pub(super) fn beat(&self, dialect: &Dialect, out: &mut Vec<u8>) {
        write_message(dialect, self.session.beat().as_bytes(), out);
    }
}

fn write_message(dialect: &Dialect, text: &[u8], out: &mut Vec<u8>) {
    encode(out, Opcode::Text, text, false, Some(dialect.mask));
}
