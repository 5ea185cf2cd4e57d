use super::*;

fn text(text: &str) -> Observed {
    Observed::Text(text.to_owned())
}

/// Checks the events and the answers of a server without compression for these frames of a client.
fn check(frames: &[(u8, &[u8])], expect: &[Observed], transmit: &[Vec<u8>]) {
    let bytes: Vec<u8> = frames.iter().flat_map(|(first, payload)| client_frame(*first, payload)).collect();
    let side = run(Role::Server, None, Limits::default(), &bytes);
    assert_eq!(side.seen, expect, "{frames:?}");
    assert_eq!(side.transmit, transmit.concat(), "{frames:?}");
}

fn violates(frames: &[(u8, &[u8])], before: &[Observed], error: Error) {
    check(frames, &[before, &[Observed::Violation(error)]].concat(), &[close_frame(error.close_code())]);
}

#[test]
fn an_idle_connection_takes_24_bytes() {
    assert!(size_of::<Connection>() <= 24, "{}", size_of::<Connection>());
}

#[test]
fn messages_of_every_length_are_received() {
    check(&[(0x81, b"")], &[text("")], &[]);
    check(&[(0x81, b"hello"), (0x81, b"world")], &[text("hello"), text("world")], &[]);
    check(&[(0x82, &[0xff; 200])], &[Observed::Binary(vec![0xff; 200])], &[]);
    check(&[(0x82, &[1; 125])], &[Observed::Binary(vec![1; 125])], &[]);
    check(&[(0x82, &[1; 126])], &[Observed::Binary(vec![1; 126])], &[]);
    check(&[(0x82, &[1; 65_535])], &[Observed::Binary(vec![1; 65_535])], &[]);
    check(&[(0x82, &[1; 65_536])], &[Observed::Binary(vec![1; 65_536])], &[]);
}

#[test]
fn fragments_are_joined() {
    check(&[(0x01, b"he"), (0x00, b"l"), (0x80, b"lo")], &[text("hello")], &[]);
    check(&[(0x01, b""), (0x00, b""), (0x80, b"")], &[text("")], &[]);
    check(&[(0x02, b"a"), (0x80, b""), (0x81, b"b")], &[Observed::Binary(b"a".into()), text("b")], &[]);
    // Fragments may split a character; the end of the message may not.
    check(&[(0x01, b"\xc3"), (0x80, b"\xa4")], &[text("\u{e4}")], &[]);
    check(&[(0x01, b"\xf0"), (0x00, b"\x9f\x98"), (0x80, b"\x80!")], &[text("\u{1f600}!")], &[]);
    violates(&[(0x01, b"a"), (0x80, b"\xc3")], &[], Error::BadUtf8);
    violates(&[(0x01, b"\xc3"), (0x80, b"")], &[], Error::BadUtf8);
    // Control frames between fragments are handled at once.
    check(
        &[(0x01, b"a"), (0x89, b"p"), (0x00, b"b"), (0x8a, b"q"), (0x80, b"c")],
        &[Observed::Ping, Observed::Pong(b"q".into()), text("abc")],
        &[server_frame(Opcode::Pong, b"p")],
    );
    check(
        &[(0x01, b"a"), (0x88, b"\x03\xe8bye"), (0x80, b"b")],
        &[Observed::Closed(1000, "bye".into())],
        &[server_frame(Opcode::Close, b"\x03\xe8bye")],
    );
    violates(&[(0x80, b"a")], &[], Error::UnexpectedContinuation);
    violates(&[(0x00, b"a")], &[], Error::UnexpectedContinuation);
    violates(&[(0x81, b"a"), (0x80, b"b")], &[text("a")], Error::UnexpectedContinuation);
    violates(&[(0x01, b"a"), (0x81, b"b")], &[], Error::ExpectedContinuation);
    violates(&[(0x01, b"a"), (0x02, b"b")], &[], Error::ExpectedContinuation);
}

#[test]
fn control_frames_are_answered() {
    // CVE-2016-10518, CVE-2026-45736: a pong holds the ping's payload, never other memory.
    for length in 0..=125 {
        let payload: Vec<u8> = (0..length).collect();
        check(&[(0x89, &payload)], &[Observed::Ping], &[server_frame(Opcode::Pong, &payload)]);
    }
    check(&[(0x8a, b"unasked")], &[Observed::Pong(b"unasked".into())], &[]);
    violates(&[(0x89, &[7; 126])], &[], Error::ControlTooLong);
    violates(&[(0x88, &[7; 70_000])], &[], Error::ControlTooLong);
    violates(&[(0x09, b"a"), (0x80, b"b")], &[], Error::ControlFragmented);
    violates(&[(0x08, b"")], &[], Error::ControlFragmented);
}

/// Frames before a malformed frame are delivered, frames after it are not.
#[test]
fn reserved_bits_and_opcodes() {
    for first in [0xc1, 0xa1, 0x91, 0xb1, 0xf1, 0xc9, 0xc0] {
        violates(&[(0x81, b"a"), (first, b"b"), (0x81, b"c")], &[text("a")], Error::ReservedBits);
        // CVE-2022-21676: right after the upgrade.
        violates(&[(first, b"")], &[], Error::ReservedBits);
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        let mut bytes = client_frame(0x81, b"a");
        bytes.extend_from_slice(&[0x80 | opcode, 0x80, 0, 0, 0, 0]);
        let side = run(Role::Server, None, Limits::default(), &bytes);
        assert_eq!(side.seen, [text("a"), Observed::Violation(Error::ReservedOpcode)]);
    }
}

#[test]
fn close_frames_are_echoed() {
    check(&[(0x88, b"")], &[Observed::Closed(1005, String::new())], &[server_frame(Opcode::Close, b"")]);
    violates(&[(0x88, b"\x03")], &[], Error::BadClosePayload);
    violates(&[(0x88, b"\x03\xe8\xff")], &[], Error::BadUtf8);
    let reason = "\u{e4}".repeat(61) + "!";
    let payload = [b"\x0b\xb8", reason.as_bytes()].concat();
    check(&[(0x88, &payload)], &[Observed::Closed(3000, reason)], &[server_frame(Opcode::Close, &payload)]);
    for code in
        [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999]
    {
        let payload = u16::to_be_bytes(code);
        check(&[(0x88, &payload)], &[Observed::Closed(code, String::new())], &[close_frame(code)]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        violates(&[(0x88, &u16::to_be_bytes(code))], &[], Error::BadCloseCode);
    }
    // Frames after a close are ignored.
    check(
        &[(0x88, b"\x03\xe8"), (0x81, b"a"), (0x89, b""), (0xf1, b"")],
        &[Observed::Closed(1000, String::new())],
        &[close_frame(1000)],
    );
}

#[test]
fn our_own_close_waits_for_the_peers() {
    let mut side = Side::server();
    let reason = format!("{}\u{e4}", "x".repeat(122));
    side.connection.close(4400, &reason, &mut side.transmit);
    // Truncated before the character that would not fit.
    assert_eq!(side.transmit, server_frame(Opcode::Close, &[b"\x11\x30", &[b'x'; 122][..]].concat()));
    let length = side.transmit.len();
    side.connection.close(1000, "", &mut side.transmit);
    assert!(!side.connection.is_closed());
    // Messages that the peer sent before it received our close are delivered. We send no frame after our
    // close frame.
    side.feed(&client_frame(0x81, b"late"));
    side.feed(&client_frame(0x89, b"late"));
    side.feed(&client_frame(0x88, b"\x11\x30"));
    assert_eq!(side.seen, [text("late"), Observed::Ping, Observed::Closed(4400, String::new())]);
    side.connection.close(1000, "", &mut side.transmit);
    assert_eq!(side.transmit.len(), length);
    assert!(side.connection.is_closed());

    let mut side = Side::server();
    side.connection.close(1001, "", &mut side.transmit);
    side.feed(&client_frame(0xf1, b""));
    assert_eq!(side.seen, [Observed::Violation(Error::ReservedBits)]);
    assert_eq!(side.transmit, close_frame(1001));

    for code in [0, 1005, 1006, 1015, 2999, 5000] {
        let mut side = Side::server();
        side.connection.close(code, "reason", &mut side.transmit);
        assert_eq!(side.transmit, server_frame(Opcode::Close, b""));
    }
}

#[test]
fn masks_are_required_of_clients_only() {
    let side = run(Role::Server, None, Limits::default(), &server_frame(Opcode::Text, b"a"));
    assert_eq!(side.seen, [Observed::Violation(Error::Unmasked)]);
    let side = run(Role::Client, None, Limits::default(), &client_frame(0x81, b"a"));
    assert_eq!(side.seen, [Observed::Violation(Error::Masked)]);
    let side = run(Role::Client, None, Limits::default(), &server_frame(Opcode::Text, b"a"));
    assert_eq!(side.seen, [text("a")]);
    // A mask of zeros is valid.
    let side = run(Role::Server, None, Limits::default(), &[0x81, 0x81, 0, 0, 0, 0, b'a']);
    assert_eq!(side.seen, [text("a")]);
}

#[test]
fn a_client_masks_its_answers() {
    let mut client = Side::new(Role::Client, None, Limits::default());
    client.connection.seed_masks(7);
    client.feed(&server_frame(Opcode::Ping, b"one"));
    client.feed(&server_frame(Opcode::Ping, b"two"));
    client.connection.close(1000, "done", &mut client.transmit);
    let mut server = Side::server();
    server.feed(&client.transmit);
    assert_eq!(
        server.seen,
        [Observed::Pong(b"one".into()), Observed::Pong(b"two".into()), Observed::Closed(1000, "done".into())]
    );
    assert_ne!(client.connection.next_mask(), client.connection.next_mask());
    assert_eq!(server.connection.next_mask(), None);
}

/// Malformed UTF-8 is refused at its first invalid byte, even within an incomplete frame.
#[test]
fn invalid_utf8_is_reported_at_once() {
    fn check(good: &[u8], bad: u8) {
        let frame = client_frame(0x81, &[good, &[bad], &[b'x'; 100]].concat());
        let header = frame.len() - good.len() - 101;
        for at in 0..=header + good.len() {
            let mut side = Side::server();
            side.feed(&frame[..at]);
            side.feed(&frame[at..header + good.len()]);
            assert_eq!(side.seen, [], "{good:x?} {bad:x}");
            side.feed(&frame[header + good.len()..header + good.len() + 1]);
            assert_eq!(side.seen, [Observed::Violation(Error::BadUtf8)], "{good:x?} {bad:x}");
        }
    }
    check(b"", 0xff);
    check(b"abc", 0x80);
    check(b"", 0xc0);
    check(b"", 0xf5);
    check(b"\xce\xba\xe1\xbd\xb9", 0xff);
    check(b"abc\xc3", b'x');
    check(b"\xe0", 0x80);
    check(b"\xed", 0xa0);
    check(b"\xf4", 0x90);
    check(b"\xf0\x9f\x98", b'x');
}

/// A malformed header is refused at the first byte that shows the error, before the header is complete.
#[test]
fn invalid_headers_are_reported_at_once() {
    fn check(role: Role, bytes: &[u8], error: Error) {
        let mut side = Side::new(role, Some(DEFLATE), Limits::default());
        side.feed(&bytes[..bytes.len() - 1]);
        assert_eq!(side.seen, [], "{role:?} {bytes:x?}");
        side.feed(&bytes[bytes.len() - 1..]);
        assert_eq!(side.seen, [Observed::Violation(error)], "{role:?} {bytes:x?}");
        assert_eq!(side.connection.held_bytes(), 0);
        assert!(side.held_bytes_max <= 512, "{role:?} {bytes:x?}: {}", side.held_bytes_max);
    }
    check(Role::Server, &[0xb1, 0x80], Error::ReservedBits);
    check(Role::Server, &[0x83, 0xff], Error::ReservedOpcode);
    check(Role::Server, &[0x81, 0x7f], Error::Unmasked);
    check(Role::Server, &[0x89, 0xfe], Error::ControlTooLong);
    check(Role::Server, &[0x80, 0xff], Error::UnexpectedContinuation);
    // CVE-2016-10542, CVE-2022-35922, CVE-2020-27813: a frame that declares 2^31 bytes or more, up to all 64
    // bits.
    for (declared, error) in [
        (6 << 20, Error::MessageTooBig),
        (1 << 31, Error::MessageTooBig),
        (u64::from(u32::MAX) + 1, Error::MessageTooBig),
        (i64::MAX as u64, Error::MessageTooBig),
        (1 << 63, Error::BadLength),
        (u64::MAX, Error::BadLength),
    ] {
        for first in [0x82, 0x02, 0xc2] {
            let header = |second: u8| [&[first, second][..], &declared.to_be_bytes()].concat();
            check(Role::Server, &header(0xff), error);
            check(Role::Client, &header(0x7f), error);
        }
    }
}

#[test]
fn memory_is_proportional_to_received_bytes() {
    let limits = Limits { message_bytes_max: usize::MAX, ..Limits::default() };
    let header =
        Header { fin: true, rsv1: false, opcode: Opcode::Binary, payload_bytes: 1 << 40, mask: None };
    let first = fragment(Role::Client, Opcode::Binary, b"abc", false, false);
    for bytes in [
        [&header.encode(), &b"abc"[..]].concat(),
        // The second frame's length doesn't overflow the sum.
        [&first, &[0x80, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..]].concat(),
    ] {
        let mut side = Side::new(Role::Client, None, limits);
        side.feed(&bytes);
        assert!(side.held_bytes_max <= 512, "{bytes:x?}: {}", side.held_bytes_max);
    }
}

#[test]
fn lengths_in_more_bytes_than_needed_are_accepted() {
    let zero = [0, 0, 0, 0];
    let bytes =
        [&[0x81, 0xfe, 0, 1][..], &zero, b"a", &[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 1], &zero, b"b"].concat();
    assert_eq!(run(Role::Server, None, Limits::default(), &bytes).seen, [text("a"), text("b")]);
}

#[test]
fn limits_are_enforced() {
    let limits = Limits { message_bytes_max: 10, fragments_max: 3 };
    let check = |frames: &[(u8, &[u8])], expect: &[Observed]| {
        let bytes: Vec<u8> =
            frames.iter().flat_map(|(first, payload)| client_frame(*first, payload)).collect();
        assert_eq!(run(Role::Server, None, limits, &bytes).seen, expect, "{frames:?}");
    };
    check(&[(0x82, &[1; 10])], &[Observed::Binary(vec![1; 10])]);
    check(&[(0x82, &[1; 11])], &[Observed::Violation(Error::MessageTooBig)]);
    check(&[(0x02, &[1; 10]), (0x80, b"")], &[Observed::Binary(vec![1; 10])]);
    check(&[(0x02, &[1; 10]), (0x80, b"1")], &[Observed::Violation(Error::MessageTooBig)]);
    check(&[(0x02, &[1; 4]), (0x00, &[1; 4]), (0x80, b"123")], &[Observed::Violation(Error::MessageTooBig)]);
    check(&[(0x02, b""), (0x00, b""), (0x80, b"")], &[Observed::Binary(vec![])]);
    check(
        &[(0x02, b""), (0x00, b""), (0x00, b""), (0x80, b"")],
        &[Observed::Violation(Error::TooManyFragments)],
    );
    // Control frames have their own limit and don't count as fragments.
    let ping: (u8, &[u8]) = (0x89, &[1; 20]);
    check(
        &[(0x02, &[1; 9]), ping, ping, ping, ping, (0x80, b"")],
        &[Observed::Ping, Observed::Ping, Observed::Ping, Observed::Ping, Observed::Binary(vec![1; 9])],
    );
    // The count starts again with the next message.
    check(
        &[(0x02, &[1; 10]), (0x80, b""), (0x02, &[1; 10]), (0x80, b"")],
        &[Observed::Binary(vec![1; 10]), Observed::Binary(vec![1; 10])],
    );
}

/// CVE-2026-48779: one byte per fragment, one byte per read. The connection holds the payload, not a record
/// per fragment. The default limits accept the messages of Autobahn 9.3 and 9.4 with 65,536 fragments, but
/// not their messages of 4 MiB.
#[test]
fn fragments_cost_no_memory_each() {
    for role in BOTH {
        let mut side = Side::new(role, None, Limits::default());
        for number in 0..65_536 {
            let opcode = if number == 0 { Opcode::Binary } else { Opcode::Continuation };
            assert_eq!(side.connection.is_mid_message(), number > 0);
            let frame = fragment(role, opcode, b"x", number == 65_535, false);
            frame.chunks(1).for_each(|byte| side.feed(byte));
        }
        assert!(side.held_bytes_max <= 2 * 65_536 + 256, "{role:?}: {}", side.held_bytes_max);
        assert_eq!(side.seen, [Observed::Binary(vec![b'x'; 65_536])]);
        assert_eq!((side.connection.is_mid_message(), side.connection.held_bytes()), (false, 0));
    }
}

/// CVE-2026-62389, and CVE-2026-12151 against a client: an endless message of empty fragments.
#[test]
fn endless_empty_fragments_end_at_the_limit() {
    for role in BOTH {
        let mut side = Side::new(role, None, Limits::default());
        side.feed(&fragment(role, Opcode::Text, b"a", false, false));
        let flood = fragment(role, Opcode::Continuation, b"", false, false).repeat(1000);
        let ended = (0..132).find(|_| {
            side.feed(&flood);
            side.connection.is_closed()
        });
        assert!(ended.is_some(), "{role:?}");
        assert_eq!(side.seen, [Observed::Violation(Error::TooManyFragments)], "{role:?}");
        assert_eq!(side.connection.held_bytes(), 0);
        assert!(side.held_bytes_max <= 512, "{role:?}: {}", side.held_bytes_max);
    }
}

/// `is_mid_message` controls the caller's time limit: `true` from the first byte of a frame to the end of its
/// message.
#[test]
fn an_incomplete_message_is_reported() {
    let mut side = Side::server();
    let mut check = |bytes: &[u8], expect: bool| {
        side.feed(bytes);
        assert_eq!(side.connection.is_mid_message(), expect, "{bytes:x?}");
        assert_eq!(side.connection.held_bytes() > 0, expect);
    };
    let frame = client_frame(0x81, b"hello");
    check(&frame, false);
    check(&frame[..1], true);
    check(&frame[1..4], true);
    check(&frame[4..6], true);
    check(&frame[6..7], true);
    check(&frame[7..], false);
    check(&client_frame(0x01, b""), true);
    let ping = client_frame(0x89, b"abc");
    check(&ping[..8], true);
    check(&ping[8..], true);
    check(&client_frame(0x80, b""), false);
    check(&ping[..8], true);
    check(&ping[8..], false);
    check(&client_frame(0x01, b""), true);
    check(&client_frame(0x88, b""), false);
}

/// Unmasking continues at the right byte of the mask after each piece.
#[test]
fn masks_in_pieces() {
    let payload: Vec<u8> = (0..100).collect();
    let frame = client_frame(0x82, &payload);
    for first in 0..30 {
        for second in first..40 {
            let mut side = Side::server();
            side.feed(&frame[..first]);
            side.feed(&frame[first..second]);
            side.feed(&frame[second..]);
            assert_eq!(side.seen, [Observed::Binary(payload.clone())]);
        }
    }
}

#[test]
fn receive_lone_only_accepts_one_complete_message() {
    let hello = client_frame(0x81, b"hello");
    let mut split = Vec::new();
    for first in 0..hello.len() {
        split.push(hello[..first].to_vec());
    }
    let others = [
        [&hello[..], &hello].concat(),
        client_frame(0x01, b"a"),
        client_frame(0x89, b""),
        client_frame(0x88, b""),
    ];
    for bytes in split.into_iter().chain(others) {
        let Side { mut connection, shared, mut transmit, .. } = Side::server();
        let mut input = bytes.clone();
        assert_eq!(connection.receive_lone(&shared, &mut input, &mut transmit), None, "{bytes:?}");
        assert_eq!((input, transmit), (bytes, vec![]));
    }
    let check = |frame: &[u8], expect: Observed, answer: &[u8]| {
        let Side { mut connection, shared, mut transmit, .. } = Side::server();
        let mut input = frame.to_vec();
        let received = connection.receive_lone(&shared, &mut input, &mut transmit).unwrap();
        assert_eq!((received.consumed, received.event.map(Observed::from)), (frame.len(), Some(expect)));
        assert_eq!(transmit, answer);
    };
    check(&hello, text("hello"), &[]);
    check(&client_frame(0x82, &[1; 300]), Observed::Binary(vec![1; 300]), &[]);
    check(&client_frame(0x81, b"\xff"), Observed::Violation(Error::BadUtf8), &close_frame(1007));
}

#[test]
fn masking_matches_the_naive_implementation() {
    for length in 0..40 {
        let mut data: Vec<u8> = (0..length).collect();
        apply_mask(&mut data, [1, 20, 0x80, 0xff]);
        let plain = (0..length).zip([1, 20, 0x80, 0xff].iter().cycle()).map(|(byte, key)| byte ^ key);
        assert_eq!(data, plain.collect::<Vec<_>>());
    }
}

#[test]
fn a_frame_has_the_right_header_for_each_estimate() {
    for bytes in [0, 1, 125, 126, 65_535, 65_536, 70_000] {
        for estimate in [0, 125, 126, 65_535, 65_536] {
            let (mut out, payload) = (b"before".to_vec(), vec![b'x'; bytes]);
            encode_with(&mut out, Opcode::Text, estimate, |out| out.extend_from_slice(&payload));
            let mut expect = b"before".to_vec();
            encode(&mut expect, Opcode::Text, &payload, false, None);
            assert!(out == expect, "{bytes} bytes, estimate {estimate}");
        }
    }
}

#[test]
fn headers() {
    fn check(payload_bytes: usize, expect: &[u8]) {
        assert_eq!(*server_header(Opcode::Binary, payload_bytes, false), *expect);
    }
    check(0, &[0x82, 0]);
    check(125, &[0x82, 125]);
    check(126, &[0x82, 126, 0, 126]);
    check(65_535, &[0x82, 126, 0xff, 0xff]);
    check(65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(*server_header(Opcode::Text, 5, true), [0xc1, 5]);
    let mut out = Vec::new();
    frame::encode_fragment(&mut out, Opcode::Continuation, b"ab", false, false, Some([1, 2, 3, 4]));
    assert_eq!(out, [0, 0x82, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2]);
}
