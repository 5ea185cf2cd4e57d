//! Receiving: flow control, buffers, fairness, moving a connection.

use super::pair::{Pair, Seen, pattern};
use std::collections::HashSet;
use stentor_driver::{Frame, Sending};

pub(crate) fn a_paused_connection_is_not_read(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.driver.pause(far);
    assert_eq!(pair.client.send(near, [Frame::from_static(b"one")]), Sending::Done);
    pair.barrier();
    assert!(pair.server.bytes(far).is_empty());
    pair.server.driver.resume(far);
    pair.until(|pair| pair.server.bytes(far) == b"one");
    // The same with a connection that is paused twice and resumed twice.
    pair.server.driver.pause(far);
    pair.server.driver.pause(far);
    pair.client.send(near, [Frame::from_static(b"two")]);
    pair.barrier();
    assert_eq!(pair.server.bytes(far), b"one");
    pair.server.driver.resume(far);
    pair.server.driver.resume(far);
    pair.until(|pair| pair.server.bytes(far) == b"onetwo");
}

pub(crate) fn a_pause_may_fall_into_the_middle(mut pair: Pair) {
    let (far, near) = pair.connected();
    let bytes = pattern(pair.large_bytes / 4, 1);
    pair.client.send(near, [Frame::owned(bytes.clone())]);
    for part in 1..=8 {
        pair.until(|pair| pair.server.bytes(far).len() >= part * bytes.len() / 15);
        pair.server.driver.pause(far);
        let so_far = pair.server.bytes(far).len();
        pair.barrier();
        assert_eq!(pair.server.bytes(far).len(), so_far);
        pair.server.driver.resume(far);
    }
    pair.until(|pair| pair.server.bytes(far).len() == bytes.len());
    assert!(pair.server.bytes(far) == bytes);
}

pub(crate) fn no_connection_starves(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    let loud: Vec<_> = (0..4).map(|_| pair.connect(addr)).collect();
    let (quiet_far, quiet_near) = pair.connect(addr);
    let bytes = pattern(pair.large_bytes / 3, 2);
    for (_, near) in &loud {
        pair.client.send(*near, [Frame::owned(bytes.clone())]);
    }
    for round in 1..=10 {
        pair.client.send(quiet_near, [Frame::from_static(b".")]);
        pair.until(|pair| pair.server.bytes(quiet_far).len() == round);
    }
    // Every turn of every case checks that each connection is read at most once per turn.
    pair.until(|pair| loud.iter().all(|(far, _)| pair.server.bytes(*far).len() == bytes.len()));
    assert!(loud.iter().all(|(far, _)| pair.server.bytes(*far) == bytes));
}

pub(crate) fn buffers_are_lent_and_used_again(mut pair: Pair) {
    let addr = pair.server.listen("127.0.0.1:0");
    let (far, near) = pair.connect(addr);
    let (far_2, near_2) = pair.connect(addr);
    pair.server.keep = Some(Vec::new());
    pair.client.send(near, [Frame::from_static(b"first")]);
    pair.until(|pair| pair.server.bytes(far) == b"first");
    pair.client.send(near_2, [Frame::from_static(b"second")]);
    pair.until(|pair| pair.server.bytes(far_2) == b"second");
    let kept = pair.server.keep.take().unwrap();
    let parts = |conn| kept.iter().filter(move |part| part.0 == conn).flat_map(|part| part.1.iter().copied());
    assert!(parts(far).eq(*b"first") && parts(far_2).eq(*b"second"), "a buffer that is lent is written to");
    let lent: HashSet<usize> = pair.server.addresses.drain(..).collect();
    assert_eq!(lent.len(), kept.len());
    for (_, buffer) in kept {
        pair.server.driver.recycle(buffer);
    }
    for round in 1..=5 {
        pair.client.send(near, [Frame::from_static(b"+")]);
        pair.until(|pair| pair.server.bytes(far).len() == 5 + round);
    }
    let again: HashSet<usize> = pair.server.addresses.iter().copied().collect();
    assert!(again.len() < 5, "each read has a buffer of its own");
}

pub(crate) fn a_lent_buffer_can_be_written_to(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.server.keep = Some(Vec::new());
    pair.client.send(near, [Frame::from_static(b"\x01\x02\x03")]);
    pair.until(|pair| pair.server.bytes(far).len() == 3);
    for (_, mut buffer) in pair.server.keep.take().unwrap() {
        let before = buffer.to_vec();
        buffer.iter_mut().for_each(|byte| *byte ^= 0xff);
        assert!(buffer.iter().zip(before).all(|(now, before)| *now == !before));
        pair.server.driver.recycle(buffer);
    }
}

pub(crate) fn a_connection_moves_with_bytes_unread(mut pair: Pair) {
    let (far, near) = pair.connected();
    pair.client.send(near, [Frame::from_static(b"before")]);
    pair.until(|pair| pair.server.bytes(far) == b"before");
    pair.server.driver.pause(far);
    pair.client.send(near, [Frame::from_static(b"while")]);
    pair.barrier();
    pair.server.driver.resume(far);
    let detached = pair.server.detach(far).unwrap();
    assert_eq!(pair.server.driver.connections(), 0);
    pair.client.send(near, [Frame::from_static(b"under way")]);
    pair.barrier();
    let moved = pair.other.attach(detached);
    pair.until(|pair| pair.other.bytes(moved) == b"whileunder way");
    // Both directions work, and the new driver reports the end.
    assert_eq!(pair.other.send(moved, [Frame::from_static(b"here")]), Sending::Done);
    pair.until(|pair| pair.client.bytes(near) == b"here");
    pair.client.close(near);
    pair.until(|pair| pair.other.saw(&Seen::PeerFinished(moved)));
    assert!(!pair.server.saw(&Seen::PeerFinished(far)));
    // The connection moves back after its end. The first driver doesn't report the end again.
    let detached = pair.other.detach(moved).unwrap();
    let back = pair.server.attach(detached);
    pair.barrier();
    assert!(!pair.server.saw(&Seen::PeerFinished(back)));
}

pub(crate) fn a_dropped_detached_connection_is_closed(mut pair: Pair) {
    let (far, near) = pair.connected();
    drop(pair.server.detach(far).unwrap());
    pair.until(|pair| pair.client.saw(&Seen::PeerFinished(near)));
}

pub(crate) fn a_detached_connection_crosses_threads(pair: Pair) {
    fn is_send<T: Send>() {}
    is_send::<stentor_driver::DetachedConnection>();
    is_send::<stentor_driver::Waker>();
    is_send::<Frame>();
    drop(pair);
}
