//! Random bytes that are read, and random changes of valid frames.

use crate::vectors::read;
use bytes::Bytes;
use stentor_link::{Entry, FrameError, Received, ServerEntry, WorkerEntry, Writer};

/// Entries that can be read can be written, and then read the same.
fn check<E: Entry + std::fmt::Debug + PartialEq>(frame: &[u8]) -> usize {
    let Ok(received) = Received::<E>::new(Bytes::copy_from_slice(frame)) else { return 0 };
    let (number, ack) = (received.number, received.ack);
    let mut writer = Writer::default();
    let entries: Vec<E> = received.map_while(Result::ok).collect();
    entries.iter().for_each(|entry| writer.entry(entry));
    let written = writer.finish(number, ack).to_bytes();
    // The encoding is unique, but that a JSON text may be left out.
    assert_eq!(written, frame[..written.len()]);
    assert_eq!(read::<E>(&written).as_ref(), Ok(&entries));
    entries.len()
}

#[test]
fn random_entries_read_the_same_after_they_were_written() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut found = 0;
    for _ in 0..50_000 {
        let mut frame = vec![0; 8];
        // Small numbers make lengths and counts that often fit.
        while frame.len() < 40 {
            frame.push(match rng.u8(..4) {
                0 => rng.u8(..),
                1 => rng.u8(..4),
                2 => rng.u8(1..22),
                _ => 0,
            });
        }
        found += check::<WorkerEntry>(&frame);
        frame[8] = frame[8].wrapping_add(63);
        found += check::<ServerEntry>(&frame);
    }
    assert!(found > 5_000, "{found}");
}

#[test]
fn frames_with_changed_bytes_are_read_or_refused() {
    let valid = b"\x01\0\0\0\0\0\0\0\x06\x07\0\0\0\0\0\x02\0id\0\0\x02\0\x02\0id\x01\0r\x07\0\0\0{\"a\":1}\
                  \x0a\0\0\x17\x01\0\x01\0r\x02\0\x01\0x\x02\0yy\x02\0o1\x02\0\x06\0\0\x0051-\x03\0\0\0\x01\x15";
    assert_eq!(read::<WorkerEntry>(valid).map(|entries| entries.len()), Ok(3));
    let mut refused = 0;
    for at in 8..valid.len() {
        for value in 0..=255 {
            let mut frame = valid.to_vec();
            frame[at] = value;
            check::<WorkerEntry>(&frame);
            let result: Result<Vec<_>, FrameError> = read::<WorkerEntry>(&frame);
            refused += usize::from(result.is_err());
        }
    }
    assert!(refused > 1_000, "{refused}");
}
