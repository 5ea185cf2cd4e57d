use stentor_wire::ws::{DeflateOptions, Deflater, Opcode, encode};

use super::handshakes::{Pair, upgrade};
use crate::document::excerpt;
use crate::generator::protocol::{ClientEvent, Lane, Out, Protocol};
use crate::payload::Head;

/// A client that requires compression, and the response of a server that accepts it if `agrees`.
fn offered(agrees: bool) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(Protocol::WebSocket);
    (pair.dialect.deflate, pair.out) = (true, Out::default());
    pair.client = pair.dialect.client();
    pair.client.connected(&pair.dialect, 4711, &mut pair.out);
    let options = DeflateOptions::default();
    let (answer, _) = upgrade(&pair.main(), agrees.then_some(&options));
    (pair, answer)
}

#[test]
fn compressed_messages_are_inflated_and_audited() {
    let (mut pair, answer) = offered(true);
    pair.react(Lane::Main, &answer);
    assert_eq!(pair.out.happened.drain(..).count(), 1);
    let mut payload = excerpt(1000);
    let mut frame = |sequence, spoils: bool| {
        Head { sequence, intended_ns: 7 }.write(&mut payload);
        payload[500] ^= u8::from(spoils);
        let mut frame = Vec::new();
        encode(&mut frame, Opcode::Text, Deflater::new(5).deflate(&payload, 15), true, None);
        assert!(frame.len() < 600, "{}", frame.len());
        frame
    };
    let good = frame(0, false);
    // The message is cut at any place, repeated, and followed by another one.
    for (frame, cut, sequence, clean) in [
        (good.clone(), 0, 0, true),
        (good.clone(), 9, 0, true),
        (good, 1, 0, true),
        (frame(1, true), 200, 1, false),
        (frame(2, false), 3, 2, true),
    ] {
        pair.hear_cut(&frame, cut);
        let head = Some(Head { sequence, intended_ns: 7 });
        let happened: Vec<ClientEvent> = pair.out.happened.drain(..).collect();
        if clean {
            assert_eq!(happened, [ClientEvent::Payload { head, payload_bytes: 1000, clean }]);
        } else {
            assert!(matches!(happened[..], [ClientEvent::Payload { clean: false, .. }]), "{happened:?}");
        }
    }
    assert!(pair.complains(Lane::Main, &[0xc1, 3, 0xff, 0xff, 0xff]).contains("compressed data is broken"));
}

#[test]
fn a_server_that_agrees_to_no_compression_is_no_server_for_it() {
    let (mut pair, answer) = offered(false);
    assert!(pair.complains(Lane::Main, &answer).contains("compression"));
}
