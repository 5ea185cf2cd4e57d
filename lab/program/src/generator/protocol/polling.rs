//! Socket.IO over long polling: one GET always waits for packets on the main connection. Packets are sent by POST on the side
//! connection, one request at a time.
//!
//! ```text
//! Fresh -GET-> Asked -sid-> (POST 40) Entering -ok-> (GET) Polling -packets-> (GET) Polling …
//! ```
//!
//! In protocol 4 of Socket.IO, over Engine.IO 3, servers grant the main namespace without a request, so the state
//! Entering isn't used. There, packets are preceded by their length, and servers may answer in binary form. In
//! Socket.IO 0.7 to 0.9, the answer to the first GET has only an id, and the answer to the second has the packet that
//! opens the session.

use std::time::Duration;

use stentor_wire::engineio::{
    Data, Open, Packet, PacketKind, PayloadDecoder, PayloadEncoder, PayloadFormat, Version,
};
use stentor_wire::http1::write_request_head;

use super::answer::{Answer, Requests, write_post};
use super::envelope::MessageReader;
use super::session::Session;
use super::{
    ClientEvent, Dialect, Fault, Lane, Out, Protocol, ProtocolClient, Reaction, is_plain, socketio09,
};

/// Maximum number of packets in an answer's body.
const PACKETS_MAX: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A GET requests a session.
    Asked,
    /// A POST requests the namespace.
    Entering,
    /// A GET waits for packets.
    Polling,
}

/// Encoding of request and response bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bodies {
    Engine(PayloadFormat),
    SocketIo09,
}

/// A client of long polling; see the module's documentation.
pub(in super::super) struct PollingClient {
    stage: Stage,
    bodies: Bodies,
    session: Session,
    /// Path and query with the session id.
    target: String,
    main: Answer,
    /// POSTs on the side connection.
    side: Requests,
    /// Packets for the next POST, in the form of text messages.
    queue: Vec<String>,
    messages: MessageReader,
}

impl PollingClient {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            stage: Stage::Asked,
            bodies: match protocol.engine() {
                Some(Version::V4) => Bodies::Engine(PayloadFormat::Separated),
                Some(Version::V3) => Bodies::Engine(PayloadFormat::Counted),
                None => Bodies::SocketIo09,
            },
            session: Session::new(protocol),
            target: String::new(),
            main: Answer::default(),
            side: Requests::default(),
            queue: Vec::new(),
            messages: MessageReader::default(),
        }
    }

    fn packets(&mut self, dialect: &Dialect, body: &[u8], out: &mut Out) -> Result<(), Fault> {
        let Bodies::Engine(format) = self.bodies else {
            if self.target.is_empty() {
                self.target = format!("{}xhr-polling/{}", dialect.path, socketio09::session_id(body)?);
                return Ok(());
            }
            return socketio09::packets(body, |packet| {
                if !self.take_payload(dialect, packet, out)? {
                    let reaction = self.session.react_to_message(packet.as_bytes())?;
                    self.deal(reaction, out);
                }
                Ok(())
            });
        };
        // Engine.IO 1.8 always answers in binary form, and other versions with lengths in text. The binary form begins
        // with a byte below any digit.
        let octets = format == PayloadFormat::Counted && matches!(body.first(), Some(0 | 1));
        let format = if octets { PayloadFormat::Octets } else { format };
        let mut decoder = PayloadDecoder::new(format, body, PACKETS_MAX)?;
        while let Some(packet) = decoder.next_packet()? {
            if self.target.is_empty() {
                self.take_sid(dialect, &packet)?;
            }
            if let Packet { kind: PacketKind::Message, data: Data::Text(text) } = packet
                && self.take_payload(dialect, text, out)?
            {
                continue;
            }
            let reaction = self.session.react_to_packet(packet)?;
            self.deal(reaction, out);
        }
        Ok(())
    }

    /// Consumes a packet if it belongs to the load. Returns `true` in this case.
    fn take_payload(&mut self, dialect: &Dialect, packet: &str, out: &mut Out) -> Result<bool, Fault> {
        let other = self.messages.take(&dialect.inbound, packet.as_bytes(), true, &mut out.happened)?;
        Ok(other.is_none())
    }

    fn deal(&mut self, reaction: Reaction, out: &mut Out) {
        out.happened.extend(reaction.opened.then_some(ClientEvent::Opened));
        self.queue.extend(reaction.answer);
    }

    /// Reads the session id from its first packet.
    fn take_sid(&mut self, dialect: &Dialect, packet: &Packet<'_>) -> Result<(), Fault> {
        let (PacketKind::Open, Data::Text(text)) = (packet.kind, packet.data) else {
            return Err(Fault::Answer("a session that doesn't begin with an open packet"));
        };
        let open = Open::parse(text)?;
        if !is_plain(&open.sid) {
            return Err(Fault::Answer("a session id that would have to be escaped"));
        }
        self.target = format!("{}&sid={}", dialect.path, open.sid);
        Ok(())
    }

    /// Posts the queue, unless a POST is in progress.
    fn post(&mut self, dialect: &Dialect, out: &mut Vec<u8>) {
        if self.side.begin(!self.queue.is_empty()) {
            self.write_post(dialect, out);
        }
    }

    fn write_post(&mut self, dialect: &Dialect, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        match self.bodies {
            Bodies::Engine(format) => {
                let mut encoder = PayloadEncoder::new(format, &mut body);
                for packet in &self.queue {
                    encoder.push_encoded(packet);
                }
            }
            Bodies::SocketIo09 => socketio09::write_packets(&mut body, &self.queue),
        }
        self.queue.clear();
        write_post(dialect, &self.target, PayloadFormat::Counted.content_type(), &body, out);
    }
}

impl ProtocolClient for PollingClient {
    fn connected(&mut self, dialect: &Dialect, _key: u128, out: &mut Out) {
        get(dialect, &dialect.path, &mut out.main);
    }

    fn receive(&mut self, dialect: &Dialect, lane: Lane, data: &[u8], out: &mut Out) -> Result<(), Fault> {
        if lane == Lane::Side {
            if self.side.feed(data)? {
                self.post(dialect, &mut out.side);
            }
            return Ok(());
        }
        if !self.main.feed(data)? {
            return Ok(());
        }
        self.main.check()?;
        if self.stage == Stage::Entering {
            self.stage = Stage::Polling;
        } else {
            let body = std::mem::take(&mut self.main.body);
            let dealt = self.packets(dialect, &body, out);
            // The next answer reuses its memory.
            self.main.body = body;
            dealt?;
        }
        if self.stage == Stage::Asked && self.queue.is_empty() {
            self.stage = Stage::Polling;
        } else if self.stage == Stage::Asked {
            // The main connection has no request in flight yet, so the packets are sent there.
            self.stage = Stage::Entering;
            self.write_post(dialect, &mut out.main);
            return Ok(());
        }
        get(dialect, &self.target, &mut out.main);
        self.post(dialect, &mut out.side);
        Ok(())
    }

    fn send(&mut self, dialect: &Dialect, payload: &[u8], out: &mut Out) {
        out.scratch.clear();
        dialect.outbound.wrap(&mut out.scratch, payload);
        let text = String::from_utf8_lossy(&out.scratch);
        self.queue.push(match self.bodies {
            Bodies::Engine(_) => format!("4{text}"),
            Bodies::SocketIo09 => text.into_owned(),
        });
        self.post(dialect, &mut out.side);
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        self.session.heartbeat_interval
    }

    fn heartbeat(&mut self, dialect: &Dialect, out: &mut Out) {
        self.queue.push(String::from_utf8_lossy(self.session.heartbeat()).into_owned());
        self.post(dialect, &mut out.side);
    }

    fn side_is_idle(&self) -> bool {
        self.side.is_idle()
    }
}

fn get(dialect: &Dialect, target: &str, out: &mut Vec<u8>) {
    write_request_head(out, "GET", target, &[("Host", &dialect.host)]);
}
