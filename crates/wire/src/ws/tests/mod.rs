//! Feeds bytes to one side of a connection, in one call and in pieces, and records its events and answers.

mod connection;
mod context;
mod deflate;
mod distance;
mod handshake;
mod pair;
mod step;

use super::*;

const BOTH: [Role; 2] = [Role::Server, Role::Client];
const MASK: Option<[u8; 4]> = Some([0x12, 0x34, 0x56, 0x78]);
const DEFLATE: Negotiated =
    Negotiated { server_max_window_bits: 15, client_max_window_bits: 15, client_keeps_context: false };

/// An event that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
enum Observed {
    Text(String),
    Binary(Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    Closed(u16, String),
    Violation(Error),
}

impl From<Event<'_>> for Observed {
    fn from(event: Event<'_>) -> Observed {
        match event {
            Event::Message(Message::Text(text)) => Observed::Text(text.to_owned()),
            Event::Message(Message::Binary(data)) => Observed::Binary(data.to_vec()),
            Event::Ping => Observed::Ping,
            Event::Pong(data) => Observed::Pong(data.to_vec()),
            Event::Closed { code, reason, error: None } => Observed::Closed(code, reason.to_owned()),
            Event::Closed { code, reason, error: Some(error) } => {
                assert_eq!((code, reason), (error.close_code(), ""));
                Observed::Violation(error)
            }
        }
    }
}

struct Side {
    connection: Connection,
    shared: Shared,
    transmit: Vec<u8>,
    seen: Vec<Observed>,
    held_bytes_max: usize,
    /// Number of bytes that are inflated in one call. If set, complete messages are delivered in every second
    /// call only.
    step_bytes: Option<usize>,
}

impl Side {
    fn new(role: Role, deflate: Option<Negotiated>, limits: Limits) -> Side {
        let (connection, shared) = (Connection::new(role, deflate), Shared::new(limits));
        let (transmit, seen) = (Vec::new(), Vec::new());
        Side { connection, shared, transmit, seen, held_bytes_max: 0, step_bytes: None }
    }

    fn server() -> Side {
        Side::new(Role::Server, None, Limits::default())
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut input = bytes.to_vec();
        let (mut at, end) = (0, input.len());
        let mut delivers = false;
        while at < end || self.connection.is_paused() {
            if let Some(inflate_bytes_max) = self.step_bytes {
                let deliver_bytes_max = if delivers { usize::MAX } else { 0 };
                self.shared.set_steps(StepLimits { inflate_bytes_max, deliver_bytes_max });
                delivers = !delivers;
            }
            let was_paused = self.connection.is_paused();
            let received = self.connection.receive(&mut self.shared, &mut input[at..], &mut self.transmit);
            assert!((received.consumed > 0 || was_paused) && received.consumed <= end - at);
            at += received.consumed;
            self.seen.extend(received.event.map(Observed::from));
            self.held_bytes_max = self.held_bytes_max.max(self.connection.held_bytes());
        }
    }
}

/// Feeds `bytes` in one call, split in two at every position, and byte by byte. Events and answers must be
/// the same.
fn run(role: Role, deflate: Option<Negotiated>, limits: Limits, bytes: &[u8]) -> Side {
    let fed = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut side = Side::new(role, deflate, limits);
        pieces.for_each(|piece| side.feed(piece));
        side
    };
    let whole = fed(&mut [bytes].into_iter());
    let same = |other: Side, how: &str| {
        assert_eq!(other.seen, whole.seen, "{how}");
        assert_eq!(other.transmit, whole.transmit, "{how}");
        assert_eq!(other.connection.is_mid_message(), whole.connection.is_mid_message(), "{how}");
        assert_eq!(other.connection.is_closed(), whole.connection.is_closed(), "{how}");
    };
    same(fed(&mut bytes.chunks(1)), "byte by byte");
    same(fed(&mut bytes.chunks(7)), "by sevens");
    for step_bytes in [1, 2, 3, 1000] {
        let mut side = Side { step_bytes: Some(step_bytes), ..Side::new(role, deflate, limits) };
        side.feed(bytes);
        same(side, &format!("in steps of {step_bytes}"));
    }
    // Splitting long inputs everywhere would take long, so only positions near both ends are tried.
    for at in (0..bytes.len()).filter(|at| *at < 300 || bytes.len() - at < 300) {
        same(fed(&mut [&bytes[..at], &bytes[at..]].into_iter()), &format!("split at {at}"));
    }
    assert!(!whole.connection.is_closed() || whole.connection.held_bytes() == 0);
    whole
}

/// Makes a fragment as the peer of `role` sends it.
fn fragment(role: Role, opcode: Opcode, payload: &[u8], fin: bool, rsv1: bool) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_fragment(&mut out, opcode, payload, fin, rsv1, MASK.filter(|_| role == Role::Server));
    out
}

/// Makes a frame from an opcode byte and a payload; masked, as a client's.
fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        fin: first & 0x80 != 0,
        rsv1: first & 0x40 != 0,
        opcode: frame::Opcode::from_bits(first & 0x0f).unwrap(),
        payload_bytes: payload.len() as u64,
        mask: MASK,
    };
    let mut out = header.encode().to_vec();
    // Sets reserved bits, which Header can't express.
    out[0] |= first & 0x30;
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], MASK.unwrap());
    out
}

fn server_frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, opcode, payload, false, None);
    out
}

fn close_frame(code: u16) -> Vec<u8> {
    server_frame(Opcode::Close, &code.to_be_bytes())
}
