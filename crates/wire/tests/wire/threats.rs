//! Published attacks on servers and clients of this kind, as far as they concern parsing, each against the crate's
//! public interface. That a running server survives them is tested where there is one.

use stentor_wire::http1::{self, HeadScanner, parse_request};
use stentor_wire::ws::handshake::{check_request, subprotocols};
use stentor_wire::ws::{
    Connection, DeflateOptions, Deflater, Error, Event, Header, Limits, Negotiated, Opcode, Role, Shared,
    encode,
};

const DEFLATE: Option<Negotiated> =
    Some(Negotiated { server_max_window_bits: 15, client_max_window_bits: 15 });
const BOTH: [Role; 2] = [Role::Server, Role::Client];

/// A side under attack, and what the attack has led to.
struct Victim {
    connection: Connection,
    shared: Shared,
    transmit: Vec<u8>,
    messages: usize,
    error: Option<Error>,
    held_bytes_max: usize,
}

impl Victim {
    fn new(role: Role, limits: Limits) -> Victim {
        Victim {
            connection: Connection::new(role, DEFLATE),
            shared: Shared::new(limits),
            transmit: Vec::new(),
            messages: 0,
            error: None,
            held_bytes_max: 0,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut input = bytes.to_vec();
        let (mut at, end) = (0, input.len());
        while at < end {
            let received = self.connection.receive(&mut self.shared, &mut input[at..], &mut self.transmit);
            at += received.consumed;
            match received.event {
                Some(Event::Message(_)) => self.messages += 1,
                Some(Event::Closed { error, .. }) => self.error = error,
                _ => {}
            }
            self.held_bytes_max = self.held_bytes_max.max(self.connection.held_bytes());
        }
    }

    /// The attack was ended by this error, the peer is told, and nothing of it is held any longer.
    fn ended_by(&self, error: Error) {
        assert_eq!(self.error, Some(error));
        assert_eq!(self.transmit[0], 0x88);
        assert!(self.connection.is_closed());
        assert_eq!(self.connection.held_bytes(), 0);
    }
}

/// The mask that an attacker in the other role must use.
fn mask_against(role: Role) -> Option<[u8; 4]> {
    (role == Role::Server).then_some([1, 2, 3, 4])
}

fn frame(role: Role, fin: bool, rsv1: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    stentor_wire::ws::frame::encode_fragment(&mut out, opcode, payload, fin, rsv1, mask_against(role));
    out
}

/// CVE-2022-21676: RSV2 or RSV3 right after the upgrade.
#[test]
fn reserved_bits_after_the_upgrade() {
    for first in [0xa1, 0x91, 0xb1, 0xf1] {
        let mut victim = Victim::new(Role::Server, Limits::default());
        victim.feed(&[first, 0x80]);
        victim.ended_by(Error::ReservedBits);
        assert_eq!(victim.transmit, [0x88, 2, 0x03, 0xea]);
    }
}

/// CVE-2026-62389, and CVE-2026-12151 against a client: a message that never ends, of fragments that are empty.
#[test]
fn endless_empty_fragments() {
    for role in BOTH {
        let mut victim = Victim::new(role, Limits::default());
        victim.feed(&frame(role, false, false, Opcode::Text, b"a"));
        let flood = frame(role, false, false, Opcode::Continuation, b"").repeat(1000);
        let mut rounds = 0;
        while victim.error.is_none() {
            victim.feed(&flood);
            rounds += 1;
            assert!(rounds <= 132);
        }
        victim.ended_by(Error::TooManyFragments);
        assert!(victim.held_bytes_max <= 512, "{}", victim.held_bytes_max);
    }
}

/// CVE-2026-48779: one byte per fragment, one byte per read. What is held is the payload, not a record for each.
#[test]
fn tiny_fragments_in_tiny_reads() {
    for role in BOTH {
        let mut victim = Victim::new(role, Limits::default());
        let first = frame(role, false, false, Opcode::Binary, b"x");
        first.iter().for_each(|byte| victim.feed(&[*byte]));
        let next = frame(role, false, false, Opcode::Continuation, b"x");
        for _ in 0..20_000 {
            next.iter().for_each(|byte| victim.feed(&[*byte]));
        }
        assert!(victim.held_bytes_max <= 2 * 20_001 + 512, "{}", victim.held_bytes_max);
    }
}

/// CVE-2016-10542, CVE-2022-35922, CVE-2020-27813: a frame that declares 2^31 bytes or more, up to all 64 bits.
#[test]
fn huge_declared_lengths() {
    for role in BOTH {
        for (declared, error) in [
            (1 << 31, Error::MessageTooBig),
            (u64::from(u32::MAX) + 1, Error::MessageTooBig),
            (i64::MAX as u64, Error::MessageTooBig),
            (1 << 63, Error::BadLength),
            (u64::MAX, Error::BadLength),
        ] {
            for fin in [false, true] {
                let mask = mask_against(role);
                let header =
                    Header { fin, rsv1: false, opcode: Opcode::Binary, payload_bytes: declared, mask };
                let mut victim = Victim::new(role, Limits::default());
                victim.feed(&header.encode());
                victim.ended_by(error);
                assert_eq!(victim.held_bytes_max, 0);
            }
        }
    }
    // Within the limit: memory follows what arrives.
    let limits = Limits { message_bytes_max: usize::MAX, ..Limits::default() };
    let mut victim = Victim::new(Role::Client, limits);
    let header =
        Header { fin: true, rsv1: false, opcode: Opcode::Binary, payload_bytes: 1 << 40, mask: None }
            .encode();
    victim.feed(&[&header, &b"abc"[..]].concat());
    assert!(victim.held_bytes_max <= 512, "{}", victim.held_bytes_max);
    // The second frame's length does not overflow the sum.
    let mut victim = Victim::new(Role::Client, limits);
    victim.feed(&frame(Role::Client, false, false, Opcode::Binary, b"abc"));
    victim.feed(&[0x80, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert!(victim.held_bytes_max <= 512, "{}", victim.held_bytes_max);
}

/// CVE-2016-10544, CVE-2018-1000518, CVE-2026-62963, CVE-2026-39804, and CVE-2026-1526 against a client: deflated to a
/// thousandth.
#[test]
fn deflate_bombs() {
    let mut deflater = Deflater::new(9);
    let bomb = deflater.deflate(&vec![b'x'; 64_000_000], 15).to_vec();
    assert!(bomb.len() < 100_000);
    for role in BOTH {
        let mut victim = Victim::new(role, Limits::default());
        victim.feed(&frame(role, true, true, Opcode::Text, &bomb));
        victim.ended_by(Error::MessageTooBig);
        // Cut into fragments and small reads as well.
        let mut victim = Victim::new(role, Limits::default());
        let (first, second) = bomb.split_at(bomb.len() / 2);
        let mut frames = frame(role, false, true, Opcode::Text, first);
        frames.extend(frame(role, true, false, Opcode::Continuation, second));
        frames.chunks(1000).for_each(|piece| victim.feed(piece));
        victim.ended_by(Error::MessageTooBig);
        assert!(victim.held_bytes_max <= 2 * bomb.len() + 512);
    }
    // About 6 MiB of it is refused for its own size already, before its payload.
    let header = Header {
        fin: true,
        rsv1: true,
        opcode: Opcode::Binary,
        payload_bytes: 6 << 20,
        mask: mask_against(Role::Server),
    };
    let mut victim = Victim::new(Role::Server, Limits::default());
    victim.feed(&header.encode());
    victim.ended_by(Error::MessageTooBig);
}

/// CVE-2026-85024: data that is no DEFLATE after a message that was too big. It is another connection's, but the same
/// inflater.
#[test]
fn broken_deflate_after_the_limit() {
    let mut deflater = Deflater::new(6);
    let bomb = deflater.deflate(&[0; 5_000_000], 15).to_vec();
    let good = deflater.deflate(b"good", 15).to_vec();
    let mut shared = Shared::new(Limits::default());
    for (payload, error) in [
        (&bomb[..], Some(Error::MessageTooBig)),
        (b"\xff\xff\xff", Some(Error::BadDeflate)),
        (&good, None),
        (&bomb[..bomb.len() / 2], Some(Error::MessageTooBig)),
        (&good, None),
    ] {
        let mut victim = Victim::new(Role::Client, Limits::default());
        std::mem::swap(&mut victim.shared, &mut shared);
        victim.feed(&frame(Role::Client, true, true, Opcode::Binary, payload));
        assert_eq!((victim.error, victim.messages), (error, usize::from(error.is_none())));
        victim.feed(b"\xff\xff\xff");
        std::mem::swap(&mut victim.shared, &mut shared);
    }
}

/// CVE-2016-10518, CVE-2026-45736: what goes back in a pong or close is what came, never other memory.
#[test]
fn answers_hold_only_what_came() {
    for length in 0..=125 {
        let payload: Vec<u8> = (0..length).collect();
        let mut victim = Victim::new(Role::Server, Limits::default());
        victim.feed(&frame(Role::Server, true, false, Opcode::Ping, &payload));
        let close = [&[3, 232][..], &[b'r'; 123]].concat();
        victim.feed(&frame(Role::Server, true, false, Opcode::Close, &close));
        let mut expect = Vec::new();
        encode(&mut expect, Opcode::Pong, &payload, false, None);
        encode(&mut expect, Opcode::Close, &close, false, None);
        assert_eq!(victim.transmit, expect);
    }
}

fn upgrade(headers: &str) -> Vec<u8> {
    format!(
        "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
    .into_bytes()
}

/// CVE-2024-37890: more headers in the upgrade than there may be.
#[test]
fn too_many_headers() {
    let error = parse_request(&upgrade(&"a: b\r\n".repeat(2000)), &http1::Limits::default()).err();
    assert_eq!(error.map(|error| error.status()), Some(431));
}

/// CVE-2021-32640: a list that is mostly spaces. Quadratic work would take minutes for these sizes.
#[test]
fn lists_of_spaces() {
    let limits = http1::Limits { header_bytes_max: 100_000_000, ..http1::Limits::default() };
    for name in ["Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions", "Connection", "Upgrade"] {
        let spaces = " ".repeat(1_000_000);
        let commas = ", ".repeat(500_000);
        let quotes = "\"\\".repeat(500_000);
        for value in
            [format!("b{spaces}x"), format!("b{commas}x"), format!("b;{quotes}"), ";".repeat(1_000_000)]
        {
            let head = upgrade(&format!("{name}: {value}\r\n"));
            let request = parse_request(&head, &limits).unwrap();
            assert!(check_request(&request, Some(&DeflateOptions::default())).unwrap().deflate.is_none());
            subprotocols(&request).for_each(drop);
        }
    }
}

/// GHSA-5v72-xg48-5rpm: an extension that is called like something every JavaScript object has.
#[test]
fn extension_called_constructor() {
    for offer in ["constructor", "__proto__; toString", "permessage-deflate; constructor"] {
        let head = upgrade(&format!("Sec-WebSocket-Extensions: {offer}\r\n"));
        let request = parse_request(&head, &http1::Limits::default()).unwrap();
        let accepted = check_request(&request, Some(&DeflateOptions::default())).unwrap();
        assert_eq!(accepted.deflate, None);
    }
}

/// CVE-2023-43669: a head that never ends, byte by byte. It costs its length, and ends at the limit.
#[test]
fn endless_heads() {
    let limits = http1::Limits::default();
    for (start, status) in [("GET /", 414), ("GET / HTTP/1.1\r\nHost: a\r\nX: ", 431)] {
        let mut buf = start.as_bytes().to_vec();
        let mut scanner = HeadScanner::default();
        let error = loop {
            match scanner.find_end(&buf, &limits) {
                Ok(end) => assert_eq!(end, None),
                Err(error) => break error,
            }
            buf.push(b'a');
        };
        assert_eq!(error.status(), status);
        assert_eq!(buf.len(), limits.header_bytes_max);
    }
}
