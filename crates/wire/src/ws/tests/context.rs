//! Messages of a client that keeps its context between messages (RFC 7692 section 7.1.1).

use flate2::{Compress, Compression, FlushCompress};

use super::deflate::sample;
use super::*;

const CONTEXT: Negotiated = Negotiated { client_keeps_context: true, ..DEFLATE };
const WINDOW_BYTES: usize = 32 * 1024;

/// Compresses these messages with one context and returns their payloads.
fn with_context(messages: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut compress = Compress::new(Compression::best(), false);
    let compressed = messages.iter().map(|message| {
        if message.is_empty() {
            return vec![0];
        }
        let before = compress.total_in();
        let mut out = Vec::with_capacity(message.len() * 2 + 100);
        compress.compress_vec(message, &mut out, FlushCompress::Sync).unwrap();
        assert_eq!(compress.total_in() - before, message.len() as u64);
        out.truncate(out.len() - 4);
        out
    });
    compressed.collect()
}

fn server(deflate: Negotiated) -> Side {
    Side::new(Role::Server, Some(deflate), Limits::default())
}

#[test]
fn a_message_may_refer_to_earlier_ones() {
    // Some messages exceed the window, some fill it, and each is repeated.
    let all = sample(100_000);
    let pieces =
        [&all[..40], &all[..40], b"", &all[..33_000], &all[600..32_900], &all[..60_000], &all[30_000..]];
    let payloads = with_context(&pieces);
    assert!(payloads[1].len() < 10 && payloads[4].len() < 1000, "they do refer to them");
    let mut bytes = Vec::new();
    for payload in &payloads {
        bytes.extend(client_frame(0xc2, payload));
        // Uncompressed messages and pings don't change the context.
        bytes.extend(client_frame(0x82, b"plain"));
        bytes.extend(client_frame(0x89, b""));
    }
    let side = run(Role::Server, Some(CONTEXT), Limits::default(), &bytes);
    let expect = pieces.iter().flat_map(|piece| {
        [Observed::Binary(piece.to_vec()), Observed::Binary(b"plain".into()), Observed::Ping]
    });
    assert_eq!(side.seen, expect.collect::<Vec<_>>());
    // Without the window, the second message can't be inflated.
    let mut side = server(DEFLATE);
    side.feed(&bytes);
    assert_eq!(side.seen.last(), Some(&Observed::Violation(Error::BadDeflate)));
}

#[test]
fn a_fragmented_message_may_refer_to_earlier_ones() {
    let payloads = with_context(&[&b"the same again"[..]; 3]);
    let mut bytes = client_frame(0xc1, &payloads[0]);
    for payload in &payloads[1..] {
        let (first, second) = payload.split_at(1);
        bytes.extend(client_frame(0x41, first));
        bytes.extend(client_frame(0x80, second));
    }
    let side = run(Role::Server, Some(CONTEXT), Limits::default(), &bytes);
    assert_eq!(side.seen, vec![Observed::Text("the same again".into()); 3]);
}

#[test]
fn a_reference_to_more_than_was_sent_is_an_error() {
    let mut side = server(CONTEXT);
    side.feed(&client_frame(0xc2, &with_context(&[b"gone"])[0]));
    let too_far = &with_context(&[b"abcdefgh", b"abcdefgh"])[1];
    side.feed(&client_frame(0xc2, too_far));
    assert_eq!(side.seen.last(), Some(&Observed::Violation(Error::BadDeflate)));
    assert!(side.connection.holds_nothing());
}

/// The window is allocated with the first compressed message, as large as needed, up to 32 kB.
#[test]
fn the_window_grows_with_the_sent_messages() {
    let mut side = server(CONTEXT);
    side.feed(&client_frame(0x81, b"plain"));
    assert!(side.connection.holds_nothing());
    let short = Deflater::new(6).deflate(&[b'x'; 100], 15).to_vec();
    side.feed(&client_frame(0xc1, &short));
    assert!(side.connection.holds_context() && !side.connection.is_mid_message());
    let fixed = side.connection.held_bytes() - 128;
    assert!(fixed < 400, "{fixed}");
    for length in [1000, 20_000, 32_768, 100_000, 5] {
        let payload = Deflater::new(6).deflate(&sample(length), 15).to_vec();
        side.feed(&client_frame(0xc2, &payload));
        assert!(!side.connection.is_mid_message());
        assert!(side.connection.held_bytes() <= fixed + WINDOW_BYTES, "{}", side.connection.held_bytes());
    }
    assert_eq!(side.connection.held_bytes(), fixed + WINDOW_BYTES);
    side.shared.take_stepped_bytes();
    side.feed(&client_frame(0xc1, &short));
    assert_eq!(
        side.shared.take_stepped_bytes(),
        2 * 100 + 512,
        "inflating, delivering, and copying the window"
    );
    // A client without context takeover, and the peer of a server, need no window.
    let mut without = server(DEFLATE);
    without.feed(&client_frame(0xc1, &short));
    assert!(without.connection.holds_nothing());
    side.feed(&client_frame(0x88, b""));
    assert!(side.connection.holds_nothing());
}

/// A message that is inflated in steps starts again if another connection has used the inflater meanwhile.
#[test]
fn a_window_survives_the_loss_of_the_step_slot() {
    let all = sample(30_000);
    let payloads = with_context(&[&all, &all]);
    let mut side = server(CONTEXT);
    side.feed(&client_frame(0xc2, &payloads[0]));
    side.shared.set_steps(StepLimits { inflate_bytes_max: 10_000, deliver_bytes_max: usize::MAX });
    let mut input = client_frame(0xc2, &payloads[1]);
    let received = side.connection.receive(&mut side.shared, &mut input, &mut side.transmit);
    assert_eq!(received.event, None);
    side.connection.leave_step_slot();
    side.feed(&[]);
    assert_eq!(side.seen, vec![Observed::Binary(all.clone()); 2]);
}

/// A message that ends with a final block (RFC 7692 section 7.2.3.4) is followed by a message with or without
/// references.
#[test]
fn a_final_block_ends_no_context() {
    let hello = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
    let again = with_context(&[b"Hello", b"Hello"]).remove(1);
    let bytes = [&hello[..], &again, &hello].map(|payload| client_frame(0xc1, payload)).concat();
    let side = run(Role::Server, Some(CONTEXT), Limits::default(), &bytes);
    assert_eq!(side.seen, vec![Observed::Text("Hello".into()); 3]);
}
