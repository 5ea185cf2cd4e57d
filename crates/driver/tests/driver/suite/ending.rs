//! The ways to end a connection.

use super::pair::{Pair, Seen, pattern};
use std::io::ErrorKind;
use std::time::Duration;
use stentor_driver::{ConnId, Frame, Meter, Sending};

/// A linger that must not run out.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) fn the_end_of_the_peer_is_reported_once(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.client.send(near, [Frame::from_static(b"last words")]);
    pair.client.finish(near, LONG);
    pair.until(|pair| pair.server.saw(&Seen::PeerFinished(far)));
    assert_eq!(pair.server.bytes(far), b"last words");
    pair.barrier();
    assert_eq!(pair.server.count(&Seen::PeerFinished(far)), 1);
    assert_eq!(pair.server.closed(far), None);
    assert_eq!(pair.server.driver.connections(), 1);
}

pub(crate) fn a_half_closed_peer_can_still_be_sent_to(mut pair: Pair) {
    // The trait has no half-close. `finish` closes the sending half and discards received bytes.
    let (far, near) = pair.connected();
    pair.client.finish(near, LONG);
    pair.until(|pair| pair.server.saw(&Seen::PeerFinished(far)));
    let sending = pair.server.send(far, [Frame::owned(pattern(pair.large_bytes, 1))]);
    pair.until(|pair| sending == Sending::Done || pair.server.saw(&Seen::Sent(far)));
    assert_eq!(pair.client.closed(near), None);
    pair.server.finish(far, LONG);
    pair.until(|pair| pair.server.closed(far) == Some(None) && pair.client.closed(near) == Some(None));
    assert_eq!((pair.server.driver.connections(), pair.client.driver.connections()), (0, 0));
}

pub(crate) fn a_pause_delays_the_end(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.driver.pause(far);
    pair.client.send(near, [Frame::from_static(b"bye")]);
    pair.client.close(near);
    pair.barrier();
    assert!(!pair.server.saw(&Seen::PeerFinished(far)) && pair.server.bytes(far).is_empty());
    pair.server.driver.resume(far);
    pair.until(|pair| pair.server.saw(&Seen::PeerFinished(far)));
    assert_eq!(pair.server.bytes(far), b"bye");
}

pub(crate) fn the_end_is_reported_to_a_paused_connection(mut pair: Pair) {
    let (far, near) = pair.connected();
    let ends = |pair: &Pair| pair.server.count(&Seen::EndPending(far));
    pair.server.driver.pause(far);
    pair.client.send(near, [Frame::from_static(b"bye")]);
    pair.barrier();
    assert_eq!(ends(&pair), 0);
    // The client's end is reported once. The server can still send.
    pair.client.finish(near, LONG);
    pair.until(|pair| ends(pair) == 1);
    assert_eq!(pair.server.send(far, [Frame::from_static(b"read")]), Sending::Done);
    pair.barrier();
    assert_eq!(ends(&pair), 1, "once");
    // Each further pause reports the end again, with or without a `resume` before it.
    pair.server.driver.pause(far);
    pair.until(|pair| ends(pair) == 2);
    pair.server.driver.resume(far);
    pair.server.driver.pause(far);
    pair.until(|pair| ends(pair) == 3);
    assert!(pair.server.bytes(far).is_empty() && !pair.server.saw(&Seen::PeerFinished(far)));
    // When the paused connection moves to another driver, that driver reports the end as well.
    let moved = pair.server.detach(far).map(|detached| pair.other.attach(detached));
    let moved = moved.expect("nothing is in flight");
    pair.until(|pair| pair.other.saw(&Seen::EndPending(moved)));
    pair.other.driver.resume(moved);
    pair.until(|pair| pair.other.saw(&Seen::PeerFinished(moved)));
    assert_eq!(pair.other.bytes(moved), b"bye");
    // The end has been read, so the next pause doesn't report it.
    pair.other.driver.pause(moved);
    pair.barrier();
    assert_eq!(pair.other.count(&Seen::EndPending(moved)), 1);
}

pub(crate) fn finish_sends_frames_in_flight(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    let bytes = pattern(pair.large_bytes, 2);
    assert_eq!(pair.server.send(far, [Frame::owned(bytes.clone())]), Sending::InFlight);
    pair.server.finish(far, LONG);
    // For the caller the connection is closed from now on.
    assert_eq!(pair.server.driver.in_flight_bytes(far), 0);
    assert_eq!(pair.server.send(far, [Frame::from_static(b"too late")]), Sending::Done);
    assert!(pair.server.detach(far).is_none());
    assert_eq!(pair.server.driver.connections(), 1);
    pair.barrier();
    pair.client.driver.resume(near);
    pair.until(|pair| pair.client.saw(&Seen::PeerFinished(near)));
    assert!(pair.client.bytes(near) == bytes);
    assert_eq!(pair.server.closed(far), None, "it waits for the peer's end");
    pair.client.send(near, [Frame::from_static(b"discarded")]);
    pair.client.close(near);
    pair.until(|pair| pair.server.closed(far).is_some());
    assert_eq!(pair.server.closed(far), Some(None));
    assert!(pair.server.bytes(far).is_empty() && !pair.server.saw(&Seen::Sent(far)));
    assert_eq!(pair.server.driver.connections(), 0);
}

pub(crate) fn finish_after_the_peer_is_immediate(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.client.finish(near, LONG);
    pair.until(|pair| pair.server.saw(&Seen::PeerFinished(far)));
    pair.server.finish(far, LONG);
    pair.until(|pair| pair.server.closed(far) == Some(None) && pair.client.closed(near) == Some(None));
}

pub(crate) fn finish_discards_received_bytes(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.driver.pause(far);
    assert_eq!(pair.client.send(near, [Frame::owned(pattern(pair.large_bytes, 3))]), Sending::InFlight);
    pair.server.finish(far, LONG);
    pair.until(|pair| pair.client.saw(&Seen::Sent(near)) && pair.client.saw(&Seen::PeerFinished(near)));
    pair.client.close(near);
    pair.until(|pair| pair.server.closed(far) == Some(None));
}

pub(crate) fn finish_gives_up_on_a_peer_that_never_reads(mut pair: Pair) {
    let meter = Meter::default();
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    let frame = Frame::shared(&[&pattern(pair.large_bytes, 4)], &meter);
    assert_eq!(pair.server.send(far, [frame]), Sending::InFlight);
    let begun = pair.server.driver.now();
    pair.server.finish(far, Duration::from_millis(120));
    pair.until(|pair| pair.server.closed(far).is_some());
    assert_eq!(pair.server.closed(far), Some(None));
    assert!(pair.server.driver.now() - begun >= Duration::from_millis(120));
    assert_eq!((pair.server.driver.connections(), meter.bytes()), (0, 0));
    // A truncated stream must not look complete.
    pair.client.driver.resume(near);
    pair.until(|pair| pair.client.closed(near) == Some(Some(ErrorKind::ConnectionReset)));
    assert!(!pair.client.saw(&Seen::PeerFinished(near)));
}

pub(crate) fn finish_gives_up_on_a_peer_that_never_ends(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.send(far, [Frame::from_static(b"all of it")]);
    pair.server.finish(far, Duration::from_millis(50));
    pair.until(|pair| pair.server.closed(far) == Some(None));
    pair.until(|pair| pair.client.saw(&Seen::PeerFinished(near)));
    assert_eq!(pair.client.bytes(near), b"all of it");
    assert_eq!(pair.client.closed(near), None);
}

pub(crate) fn close_reaches_only_the_peer(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.close(far);
    assert_eq!(pair.server.driver.connections(), 0);
    pair.until(|pair| pair.client.saw(&Seen::PeerFinished(near)));
    pair.barrier();
    assert_eq!(pair.server.closed(far), None);
}

/// Makes a connection whose client end has unread bytes, so that its close is a reset.
#[track_caller]
fn with_unread_bytes(pair: &mut Pair) -> (ConnId, ConnId) {
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    pair.server.send(far, [Frame::from_static(b"unread")]);
    pair.barrier();
    (far, near)
}

pub(crate) fn a_reset_closes(mut pair: Pair) {
    let (far, near) = with_unread_bytes(&mut pair);
    pair.client.close(near);
    pair.until(|pair| pair.server.closed(far).is_some());
    assert_eq!(pair.server.closed(far), Some(Some(ErrorKind::ConnectionReset)));
    assert!(!pair.server.saw(&Seen::PeerFinished(far)));
    assert_eq!(pair.server.driver.connections(), 0);
}

pub(crate) fn a_reset_reaches_a_paused_connection(mut pair: Pair) {
    let (far, near) = with_unread_bytes(&mut pair);
    pair.server.driver.pause(far);
    pair.client.close(near);
    pair.until(|pair| pair.server.closed(far) == Some(Some(ErrorKind::ConnectionReset)));
}

pub(crate) fn a_reset_reaches_a_connection_paused_while_it_is_read(mut pair: Pair) {
    let (far, near) = with_unread_bytes(&mut pair);
    // The server receives the bytes and the reset at once, and has read some of the bytes.
    pair.client.driver.send_bytes(near, &pattern(pair.large_bytes / 8, 6));
    pair.pass(Duration::from_millis(20));
    pair.client.close(near);
    pair.pass(Duration::from_millis(20));
    pair.server.turn(Some(Duration::ZERO));
    pair.server.driver.pause(far);
    pair.until(|pair| pair.server.closed(far) == Some(Some(ErrorKind::ConnectionReset)));
}

#[track_caller]
fn assert_reset_while_sending(pair: &Pair, far: ConnId) {
    let error = pair.server.closed(far).flatten();
    assert!(matches!(error, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)), "{error:?}");
    assert!(!pair.server.saw(&Seen::Sent(far)));
}

pub(crate) fn a_reset_ends_sends_in_flight(mut pair: Pair) {
    let meter = Meter::default();
    let (far, near) = pair.connected();
    pair.client.driver.pause(near);
    let frame = Frame::shared(&[&pattern(pair.large_bytes, 5)], &meter);
    assert_eq!(pair.server.send(far, [frame]), Sending::InFlight);
    pair.barrier();
    pair.client.close(near);
    pair.until(|pair| pair.server.closed(far).is_some());
    assert_reset_while_sending(&pair, far);
    assert_eq!(meter.bytes(), 0);
}

pub(crate) fn a_failed_send_is_reported_later(mut pair: Pair) {
    let (far, near) = with_unread_bytes(&mut pair);
    pair.client.close(near);
    // The server may not have received the reset yet, so it sends until it has.
    let mut in_flight = false;
    pair.until(|pair| {
        if pair.server.closed(far).is_none() && !in_flight {
            in_flight = pair.server.send(far, [Frame::from_static(b"anybody?")]) == Sending::InFlight;
        }
        pair.server.closed(far).is_some()
    });
    assert_reset_while_sending(&pair, far);
}

pub(crate) fn a_stale_id_does_nothing(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    let (old, old_near) = pair.connect(addr);
    pair.server.close(old);
    pair.client.close(old_near);
    let (far, near) = pair.connect(addr);
    assert_ne!(old, far);
    assert_eq!(old.index(), far.index(), "the index is free again");
    let driver = &mut pair.server.driver;
    assert_eq!(driver.send(old, &mut vec![Frame::from_static(b"ghost")]), Sending::Done);
    assert_eq!(driver.send_bytes(old, b"ghost"), Sending::Done);
    assert_eq!(driver.in_flight_bytes(old), 0);
    driver.pause(old);
    driver.resume(old);
    driver.finish(old, Duration::ZERO);
    driver.close(old);
    assert!(driver.detach(old).is_none());
    assert_eq!(driver.connections(), 1);
    pair.client.send(near, [Frame::from_static(b"alive")]);
    pair.until(|pair| pair.server.bytes(far) == b"alive");
    pair.server.send(far, [Frame::from_static(b"too")]);
    pair.until(|pair| pair.client.bytes(near) == b"too");
}
