use super::*;
use crate::backlog::Backlog;
use crate::{FILE_FRAME_BYTES_MIN, Meter};
use fastrand::Rng;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

/// Returns a number below 2 to the `bits`, evenly distributed over the orders of magnitude.
fn magnitude(random: &mut Rng, bits: u32) -> u64 {
    let bound = 1 << random.u32(..bits);
    random.u64(..bound)
}

/// Sends frames of the given lengths through a small socket, whose other end reads at random.
fn check(seed: u64, lens: &[usize]) {
    let kind = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, kind, None).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 5000).unwrap();
    let mut random = Rng::with_seed(seed);
    let (mut frames, mut expected) = (Vec::new(), Vec::new());
    for len in lens {
        let bytes: Vec<u8> = (0..*len).map(|_| random.u8(..)).collect();
        expected.extend_from_slice(&bytes);
        frames.push(if random.bool() {
            Frame::owned(bytes)
        } else {
            Frame::shared(&[&bytes], &Meter::default())
        });
    }
    let mut backlog = Backlog::of(&mut frames, Cursor::default(), &Meter::default());
    let (mut cork, mut received, mut buffer) = (Vec::new(), Vec::new(), vec![0; 9000]);
    loop {
        let progress = backlog.transmit(|frames, cursor| transmit(near.as_fd(), frames, cursor, &mut cork));
        let len = random.usize(1..=buffer.len());
        if let Ok((read, _)) = recv(&far, &mut buffer[..len], RecvFlags::empty()) {
            received.extend_from_slice(&buffer[..read]);
        } else if progress == Progress::Done {
            break;
        }
        assert!(!matches!(progress, Progress::Failed(_)), "seed {seed}, {lens:?}: {progress:?}");
    }
    assert!(received == expected, "seed {seed}, {lens:?}");
    assert_eq!(backlog.bytes(), 0, "seed {seed}, {lens:?}");
}

#[test]
fn all_bytes_are_sent_in_order() {
    check(0, &[]);
    check(0, &[0, 0, 1, 0]);
    check(0, &[CORK_BYTES; 3]);
    check(0, &[64; 3000]);
    check(0, &[SMALL_BYTES; CORK_BYTES / SMALL_BYTES + 1]);
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let lens: Vec<usize> = (0..magnitude(&mut random, 8))
            .map(|_| match random.u64(..12) {
                0 => 0,
                1 => FILE_FRAME_BYTES_MIN + random.usize(..5),
                _ => magnitude(&mut random, 13) as usize,
            })
            .collect();
        check(seed, &lens);
    }
}
