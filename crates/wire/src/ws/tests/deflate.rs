use flate2::{Compress, Compression, FlushCompress};

use super::*;

const BYTES_MAX: usize = 1_000_000;

/// Makes compressible bytes with repetitions at all distances.
pub(super) fn sample(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut out: Vec<u8> = Vec::with_capacity(length);
    while out.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let back = (state >> 8) as usize % 30_000 + 1;
        if state >> 28 < 8 && back <= out.len() {
            let from = out.len() - back;
            out.extend_from_within(from..(from + 20).min(from + back));
        } else {
            out.extend_from_slice(&state.to_be_bytes());
        }
    }
    out.truncate(length);
    out
}

#[test]
fn deflated_data_inflates() {
    let mut inflater = Inflater::new();
    for level in [0, 1, 6, 9, 200] {
        let mut deflater = Deflater::new(level);
        for window_bits in [0, 9, 10, 12, 15, 16] {
            for length in [0, 1, 2, 3, 10, 511, 512, 513, 1000, 40_000, 200_000] {
                let payload = sample(length);
                let deflated = deflater.deflate(&payload, window_bits);
                assert!(!deflated.ends_with(&[0, 0, 0xff, 0xff]));
                assert_eq!(
                    inflater.inflate(deflated, BYTES_MAX),
                    Ok(&payload[..]),
                    "{level} {window_bits} {length}"
                );
            }
        }
    }
}

#[test]
fn frames_are_shared_because_no_context_is_kept() {
    let mut deflater = Deflater::new(6);
    let first = deflater.deflate(b"the same again", 15).to_vec();
    assert_eq!(deflater.deflate(b"the same again", 15), first);
}

/// RFC 7692 sections 7.2.3.1 to 7.2.3.6.
#[test]
fn examples_of_the_rfc_inflate() {
    let mut inflater = Inflater::new();
    for bytes in [
        &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
        &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
        &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
        &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
    ] {
        assert_eq!(inflater.inflate(bytes, BYTES_MAX), Ok(&b"Hello"[..]), "{bytes:x?}");
    }
    assert_eq!(inflater.inflate(&[0x00], BYTES_MAX), Ok(&b""[..]));
    assert_eq!(Deflater::new(6).deflate(b"", 15), [0x00]);
    assert_eq!(Deflater::new(6).deflate(b"Hello", 15), [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    // The fragments of 7.2.3.1, as frames.
    let frames =
        [client_frame(0x41, &[0xf2, 0x48, 0xcd]), client_frame(0x80, &[0xc9, 0xc9, 0x07, 0x00])].concat();
    let side = run(Role::Server, Some(DEFLATE), Limits::default(), &frames);
    assert_eq!(side.seen, [Observed::Text("Hello".into())]);
}

/// A window of 512 bytes is respected at every level.
#[test]
fn a_small_window_is_respected() {
    let payload = sample(60_000);
    for level in 1..=9 {
        let mut deflater = Deflater::new(level);
        for window_bits in 9..=15 {
            let longest = distance::longest(deflater.deflate(&payload, window_bits));
            assert!(longest <= 1 << window_bits, "level {level}, {window_bits} bits: {longest}");
            // The measurement works, and the window is used.
            assert!(longest > 1 << (window_bits - 2), "level {level}, {window_bits} bits: {longest}");
        }
    }
    assert_eq!(distance::longest(Deflater::new(0).deflate(&payload, 9)), 0);
}

#[test]
fn inflating_stops_at_the_limit() {
    let mut deflater = Deflater::new(9);
    for (length, limit) in [(10_000_000, 1_000_000), (5000, 4999), (1, 0), (4097, 4096)] {
        let mut inflater = Inflater::new();
        let bomb = deflater.deflate(&vec![0; length], 15).to_vec();
        assert_eq!(inflater.inflate(&bomb, limit), Err(Error::MessageTooBig));
        assert!(inflater.held_bytes() <= limit.max(4096) + 1, "{}", inflater.held_bytes());
        // A message of exactly the limit is accepted, and the inflater still works.
        assert_eq!(inflater.inflate(&bomb, length).map(<[u8]>::len), Ok(length));
        assert_eq!(inflater.inflate(&[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], 5), Ok(&b"Hello"[..]));
    }
}

/// CVE-2016-10544, CVE-2018-1000518, CVE-2026-62963, CVE-2026-39804, and CVE-2026-1526 against a client: data
/// that deflates to a thousandth, in one frame, in fragments and in small reads.
#[test]
fn bombs_are_refused() {
    let bomb = Deflater::new(9).deflate(&vec![b'x'; 64_000_000], 15).to_vec();
    assert!(bomb.len() < 100_000);
    let (first, second) = bomb.split_at(bomb.len() / 2);
    for role in BOTH {
        for frames in [
            fragment(role, Opcode::Text, &bomb, true, true),
            [
                fragment(role, Opcode::Text, first, false, true),
                fragment(role, Opcode::Continuation, second, true, false),
            ]
            .concat(),
        ] {
            let mut side = Side::new(role, Some(DEFLATE), Limits::default());
            frames.chunks(1000).for_each(|piece| side.feed(piece));
            assert_eq!(side.seen, [Observed::Violation(Error::MessageTooBig)], "{role:?}");
            assert_eq!(side.connection.held_bytes(), 0);
            assert!(side.held_bytes_max <= 2 * bomb.len() + 512, "{role:?}: {}", side.held_bytes_max);
        }
    }
}

/// CVE-2026-85024: malformed data after a message that was too big, on another connection with the same
/// inflater.
#[test]
fn a_refused_message_leaves_the_inflater_usable() {
    let mut deflater = Deflater::new(6);
    let bomb = deflater.deflate(&[0; 5_000_000], 15).to_vec();
    let good = deflater.deflate(b"good", 15).to_vec();
    let expect_good = Observed::Binary(b"good".into());
    let mut shared = Shared::new(Limits::default());
    for (payload, expect) in [
        (&bomb[..], Observed::Violation(Error::MessageTooBig)),
        (b"\xff\xff\xff", Observed::Violation(Error::BadDeflate)),
        (&good, expect_good.clone()),
        (&bomb[..bomb.len() / 2], Observed::Violation(Error::MessageTooBig)),
        (&good, expect_good),
    ] {
        let mut side = Side { shared, ..Side::new(Role::Client, Some(DEFLATE), Limits::default()) };
        side.feed(&fragment(Role::Client, Opcode::Binary, payload, true, true));
        assert_eq!(side.seen, [expect]);
        side.feed(b"\xff\xff\xff");
        shared = side.shared;
    }
}

#[test]
fn broken_data_is_refused() {
    let mut inflater = Inflater::new();
    for bytes in [
        &[0xff, 0xff, 0xff][..],
        &[0x06],
        &[0x00, 0x05, 0x00, 0xfa, 0xfe, 1, 2, 3, 4, 5],
        &[0x02, 0x48, 0x7f],
    ] {
        assert_eq!(inflater.inflate(bytes, BYTES_MAX), Err(Error::BadDeflate), "{bytes:x?}");
    }
    // A distance before the start of the message: no context is kept from the previous message.
    let mut compress = Compress::new(Compression::best(), false);
    let mut both = Vec::with_capacity(1000);
    compress.compress_vec(&sample(300), &mut both, FlushCompress::Sync).unwrap();
    let first = both.len();
    compress.compress_vec(&sample(300), &mut both, FlushCompress::Sync).unwrap();
    assert!(inflater.inflate(&both[..first - 4], BYTES_MAX).is_ok());
    assert_eq!(inflater.inflate(&both[first..both.len() - 4], BYTES_MAX), Err(Error::BadDeflate));
}

/// A truncated message isn't read as a shorter one.
#[test]
fn truncated_data_is_refused() {
    let payload = sample(3000);
    let deflated = Deflater::new(6).deflate(&payload, 15).to_vec();
    let mut inflater = Inflater::new();
    for end in 1..deflated.len() - 1 {
        assert_eq!(inflater.inflate(&deflated[..end], BYTES_MAX), Err(Error::BadDeflate), "{end}");
    }
}

/// Final blocks (RFC 7692 section 7.2.3.4) are accepted up to a limit.
#[test]
fn final_blocks_are_accepted() {
    let mut inflater = Inflater::new();
    let hello = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    assert_eq!(inflater.inflate(&hello, BYTES_MAX), Ok(&b"Hello"[..]));
    assert_eq!(inflater.inflate(&[&hello[..], &[0]].concat(), BYTES_MAX), Ok(&b"Hello"[..]));
    assert_eq!(inflater.inflate(&[&hello[..], &hello].concat(), BYTES_MAX), Ok(&b"HelloHello"[..]));
    assert_eq!(inflater.inflate(&[0x03, 0x00].repeat(65), BYTES_MAX), Ok(&b""[..]));
    assert_eq!(inflater.inflate(&[0x03, 0x00].repeat(66), BYTES_MAX), Err(Error::BadDeflate));
}

#[test]
fn compressed_messages_are_received() {
    let check = |frames: &[(u8, &[u8])], expect: &[Observed]| {
        let bytes: Vec<u8> =
            frames.iter().flat_map(|(first, payload)| client_frame(*first, payload)).collect();
        let limits = Limits { message_bytes_max: 20, ..Limits::default() };
        assert_eq!(run(Role::Server, Some(DEFLATE), limits, &bytes).seen, expect, "{frames:x?}");
    };
    let mut deflater = Deflater::new(6);
    let hello = deflater.deflate(b"hello", 15).to_vec();
    let bad_text = deflater.deflate(b"hell\xff", 15).to_vec();
    let bomb = deflater.deflate(&[b'x'; 21], 15).to_vec();
    let text = Observed::Text("hello".into());
    check(&[(0xc1, &hello), (0xc1, &hello)], &[text.clone(), text.clone()]);
    check(&[(0xc2, &bad_text)], &[Observed::Binary(b"hell\xff".into())]);
    check(&[(0xc1, &bad_text)], &[Observed::Violation(Error::BadUtf8)]);
    check(&[(0xc1, &bomb)], &[Observed::Violation(Error::MessageTooBig)]);
    check(&[(0x42, &bomb[..2]), (0x80, &bomb[2..])], &[Observed::Violation(Error::MessageTooBig)]);
    check(&[(0xc2, &[0; 21])], &[Observed::Violation(Error::MessageTooBig)]);
    check(&[(0xc2, b"\xff\xff")], &[Observed::Violation(Error::BadDeflate)]);
    check(
        &[(0x41, &hello[..1]), (0x89, b""), (0x00, &hello[1..2]), (0x80, &hello[2..]), (0x81, b"plain")],
        &[Observed::Ping, text.clone(), Observed::Text("plain".into())],
    );
    check(&[(0xc1, b"\x00"), (0xc1, b"")], &[Observed::Text("".into()), Observed::Text("".into())]);
    // RSV1 belongs to a message's first frame.
    check(&[(0x41, &hello[..1]), (0xc0, &hello[1..])], &[Observed::Violation(Error::ReservedBits)]);
    check(&[(0xc9, b"")], &[Observed::Violation(Error::ReservedBits)]);
}
