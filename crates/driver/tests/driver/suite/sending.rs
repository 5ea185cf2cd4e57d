//! Sending: order, backpressure, ownership of data in flight.

use super::pair::{Pair, Seen, pattern};
use stentor_driver::{ConnId, FILE_FRAME_BYTES_MIN, Frame, Meter, Sending};

pub(crate) fn echo(mut pair: Pair) {
    let (far, near) = pair.connected();
    for round in 0..50 {
        let message = pattern(round * 7 + 1, round as u64);
        assert_eq!(pair.client.driver.send_bytes(near, &message), Sending::Done);
        pair.until(|pair| pair.server.bytes(far).len() == message.len());
        let back = pair.server.received.remove(&far).unwrap();
        assert_eq!(back, message);
        assert_eq!(pair.server.send(far, [Frame::owned(back)]), Sending::Done);
        pair.until(|pair| pair.client.bytes(near).len() == message.len());
        assert_eq!(pair.client.received.remove(&near), Some(message));
    }
    assert_eq!(pair.client.log, [Seen::Connected(near)]);
}

pub(crate) fn nothing_is_sent_at_once(mut pair: Pair) {
    let (far, near) = pair.connected();
    assert_eq!(pair.client.send(near, []), Sending::Done);
    assert_eq!(pair.client.send(near, [Frame::owned(vec![]), Frame::from_static(b"")]), Sending::Done);
    assert_eq!(pair.client.driver.send_bytes(near, b""), Sending::Done);
    let some = [Frame::from_static(b""), Frame::from_static(b"x"), Frame::owned(vec![])];
    assert_eq!(pair.client.send(near, some), Sending::Done);
    pair.until(|pair| pair.server.bytes(far) == b"x");
}

/// Sends with `send` to a client that doesn't read, then lets the client read.
#[track_caller]
fn stall(mut pair: Pair, send: impl FnOnce(&mut Pair, ConnId) -> (Sending, Vec<u8>)) {
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    let (sending, expected) = send(&mut pair, far);
    assert_eq!(sending, Sending::InFlight);
    pair.barrier();
    let stalled = pair.server.driver.in_flight_bytes(far);
    assert!(stalled > 0 && stalled <= expected.len(), "{stalled} of {}", expected.len());
    assert!(pair.client.bytes(near).is_empty());
    pair.client.driver.resume(near);
    let mut last = stalled;
    pair.until(|pair| {
        let left = pair.server.driver.in_flight_bytes(far);
        assert!(left <= last, "what is in flight grows");
        last = left;
        pair.client.bytes(near).len() == expected.len() && pair.server.saw(&Seen::Sent(far))
    });
    assert_eq!(pair.server.driver.in_flight_bytes(far), 0);
    assert!(pair.client.bytes(near) == expected, "the bytes differ");
    pair.barrier();
    assert_eq!(pair.server.count(&Seen::Sent(far)), 1);
}

pub(crate) fn a_slow_reader_stalls_one_frame(pair: Pair) {
    stall(pair, |pair, far| {
        let bytes = pattern(pair.large_bytes, 1);
        (pair.server.send(far, [Frame::owned(bytes.clone())]), bytes)
    });
}

pub(crate) fn a_slow_reader_stalls_bytes(pair: Pair) {
    stall(pair, |pair, far| {
        let bytes = pattern(pair.large_bytes, 2);
        (pair.server.driver.send_bytes(far, &bytes), bytes)
    });
}

pub(crate) fn a_slow_reader_stalls_a_file(pair: Pair) {
    stall(pair, |pair, far| {
        let bytes = pattern(pair.large_bytes, 3);
        let (front, back) = bytes.split_at(1000);
        (pair.server.send(far, [Frame::shared(&[front, back], &Meter::default())]), bytes)
    });
}

/// Makes 3,000 frames of every kind with unusual lengths.
fn assortment(meter: &Meter) -> (Vec<Frame>, Vec<u8>) {
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for nth in 0..3000 {
        let len = match nth % 500 {
            499 => FILE_FRAME_BYTES_MIN + nth,
            498 => FILE_FRAME_BYTES_MIN - 1,
            _ => nth * 13 % 701,
        };
        let bytes = pattern(len, nth as u64);
        expected.extend_from_slice(&bytes);
        frames.push(match nth % 3 {
            _ if len >= FILE_FRAME_BYTES_MIN => Frame::shared(&[&bytes], meter),
            0 => Frame::owned(bytes),
            1 => Frame::shared(&[&bytes], meter),
            _ => Frame::from_static(b""),
        });
        if nth % 3 == 2 && len < FILE_FRAME_BYTES_MIN {
            expected.truncate(expected.len() - len);
        }
    }
    (frames, expected)
}

pub(crate) fn thousands_of_frames_leave_in_order(mut pair: Pair) {
    let meter = Meter::default();
    let (far, near) = pair.connected();
    let (frames, expected) = assortment(&meter);
    let sending = pair.server.send(far, frames);
    pair.until(|pair| pair.client.bytes(near).len() == expected.len());
    pair.until(|pair| sending == Sending::Done || pair.server.saw(&Seen::Sent(far)));
    assert!(pair.client.bytes(near) == expected);
    assert_eq!(meter.bytes(), 0, "a frame outlives its send");
}

pub(crate) fn thousands_of_frames_stall_and_go_on(pair: Pair) {
    let meter = Meter::default();
    let watch = meter.clone();
    stall(pair, move |pair, far| {
        let (frames, expected) = assortment(&meter);
        let frames: Vec<Frame> = (0..8).flat_map(|_| frames.iter().cloned()).collect();
        assert!(meter.bytes() < expected.len(), "clones are counted");
        (pair.server.send(far, frames), expected.repeat(8))
    });
    assert_eq!(watch.bytes(), 0, "a frame outlives its send");
}

pub(crate) fn both_ways_at_once(mut pair: Pair) {
    let (far, near) = pair.connected();
    let (down, up) = (pattern(pair.large_bytes, 4), pattern(pair.large_bytes, 5));
    assert_eq!(pair.server.send(far, [Frame::owned(down.clone())]), Sending::InFlight);
    assert_eq!(pair.client.send(near, [Frame::owned(up.clone())]), Sending::InFlight);
    pair.until(|pair| {
        pair.client.bytes(near).len() == pair.large_bytes && pair.server.bytes(far).len() == pair.large_bytes
    });
    assert!(pair.client.bytes(near) == down && pair.server.bytes(far) == up);
    pair.until(|pair| pair.server.saw(&Seen::Sent(far)) && pair.client.saw(&Seen::Sent(near)));
}

pub(crate) fn the_next_send_follows_the_last(mut pair: Pair) {
    let (far, near) = pair.connected();
    let mut expected = Vec::new();
    let mut sends = 0;
    pair.until(|pair| {
        if sends < 40 && pair.server.driver.in_flight_bytes(far) == 0 {
            let bytes = pattern(pair.large_bytes / 40 + sends, sends as u64);
            expected.extend_from_slice(&bytes);
            pair.server.send(far, [Frame::owned(bytes)]);
            sends += 1;
        }
        sends == 40 && pair.client.bytes(near).len() == expected.len()
    });
    assert!(pair.client.bytes(near) == expected);
}

pub(crate) fn two_sends_at_once_are_a_bug(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    assert_eq!(pair.server.send(far, [Frame::owned(pattern(pair.large_bytes, 6))]), Sending::InFlight);
    let second = std::panic::AssertUnwindSafe(|| pair.server.send(far, [Frame::from_static(b"x")]));
    assert!(std::panic::catch_unwind(second).is_err());
}

pub(crate) fn closing_releases_frames_in_flight(mut pair: Pair) {
    let meter = Meter::default();
    for large in [pair.large_bytes / 12, pair.large_bytes] {
        let (far, near) = pair.connected();
        pair.client.driver.pause(near);
        let frame = Frame::shared(&[&pattern(large, 7)], &meter);
        pair.server.send(far, std::iter::repeat_n(frame, 20));
        assert_eq!(meter.bytes(), large);
        pair.server.close(far);
        pair.until(|_| meter.bytes() == 0);
    }
}
