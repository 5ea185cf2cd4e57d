//! A client against a server: every message arrives, however it is split.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// One message and its encoding.
#[derive(Debug, Clone)]
enum Sent {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    prop_oneof![
        ".{0,80}".prop_map(Sent::Text),
        ".{0,300}".prop_map(Sent::Text),
        vec(any::<u8>(), 0..400).prop_map(Sent::Binary),
        (any::<u8>(), 0..70_000usize).prop_map(|(byte, length)| Sent::Binary(vec![byte; length])),
        vec(any::<u8>(), 0..126).prop_map(Sent::Ping),
        vec(any::<u8>(), 0..126).prop_map(Sent::Pong),
    ]
}

/// Encodes one message, optionally compressed and fragmented, with a ping between the fragments.
fn write(
    sender: &mut Connection,
    deflater: &mut Deflater,
    sent: &Sent,
    cuts: &[usize],
    deflates: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    let (opcode, data) = match sent {
        Sent::Text(text) => (Opcode::Text, text.as_bytes()),
        Sent::Binary(data) => (Opcode::Binary, &data[..]),
        Sent::Ping(data) => (Opcode::Ping, &data[..]),
        Sent::Pong(data) => (Opcode::Pong, &data[..]),
    };
    if opcode.is_control() {
        encode(&mut out, opcode, data, false, sender.next_mask());
        return out;
    }
    let window_bits =
        sender.deflate().filter(|_| deflates).map(|negotiated| negotiated.server_max_window_bits);
    let mut data = window_bits.map_or(data, |bits| deflater.deflate(data, bits));
    let (mut opcode, mut rsv1) = (opcode, window_bits.is_some());
    for cut in cuts {
        let (now, later) = data.split_at(cut % (data.len() + 1));
        frame::encode_fragment(&mut out, opcode, now, false, rsv1, sender.next_mask());
        encode(&mut out, Opcode::Ping, b"between", false, sender.next_mask());
        (opcode, rsv1, data) = (Opcode::Continuation, false, later);
    }
    frame::encode_fragment(&mut out, opcode, data, true, rsv1, sender.next_mask());
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_messages_arrive(
        messages in vec((sent(), vec(any::<usize>(), 0..4), any::<bool>()), 0..12),
        window_bits in proptest::option::of(9u8..=15),
        from_client in any::<bool>(),
        seed in any::<u32>(),
        pieces in vec(1usize..200, 1..20),
    ) {
        let (from, to) = if from_client { (Role::Client, Role::Server) } else { (Role::Server, Role::Client) };
        let deflate = window_bits.map(|server_max_window_bits| Negotiated { server_max_window_bits, ..DEFLATE });
        let mut sender = Side::new(from, deflate, Limits::default());
        let mut receiver = Side::new(to, deflate, Limits::default());
        let mut deflater = Deflater::new(1);
        sender.connection.seed_masks(seed);
        let (mut bytes, mut expect, mut pongs) = (Vec::new(), Vec::new(), Vec::new());
        for (message, cuts, deflates) in &messages {
            bytes.extend(write(&mut sender.connection, &mut deflater, message, cuts, *deflates));
            if matches!(message, Sent::Text(_) | Sent::Binary(_)) {
                expect.extend(cuts.iter().map(|_| Observed::Ping));
                pongs.extend(cuts.iter().map(|_| Observed::Pong(b"between".into())));
            }
            expect.push(match message.clone() {
                Sent::Text(text) => Observed::Text(text),
                Sent::Binary(data) => Observed::Binary(data),
                Sent::Pong(data) => Observed::Pong(data),
                Sent::Ping(data) => {
                    pongs.push(Observed::Pong(data));
                    Observed::Ping
                }
            });
        }
        sender.connection.close(4321, "done", &mut bytes);
        expect.push(Observed::Closed(4321, "done".into()));
        let mut rest = &bytes[..];
        for length in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*length).min(rest.len()));
            receiver.feed(now);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&receiver.seen, &expect);
        prop_assert!(receiver.connection.is_closed() && !receiver.connection.is_mid_message());
        // The opposite direction.
        sender.feed(&receiver.transmit);
        pongs.push(Observed::Closed(4321, "done".into()));
        prop_assert_eq!(&sender.seen, &pongs);
        prop_assert!(sender.connection.is_closed());
    }

    /// Random bytes, and random bytes after a valid start: no panic, and the same result for every split.
    #[test]
    fn arbitrary_input_causes_no_panic(
        bytes in vec(any::<u8>(), 0..300),
        start in vec(any::<u8>(), 0..30),
        first in prop_oneof![Just(0x81u8), Just(0x01), Just(0xc2), Just(0x42)],
        client in any::<bool>(),
    ) {
        let role = if client { Role::Client } else { Role::Server };
        let limits = Limits { message_bytes_max: 200, fragments_max: 5 };
        run(role, Some(DEFLATE), limits, &[client_frame(first, &start), bytes.clone()].concat());
        run(role, Some(DEFLATE), limits, &[server_frame(Opcode::Text, &start), bytes].concat());
    }
}
