//! Frames of the application link.

use bytes::Bytes;
use stentor_link::{Entry, NodeEntry, Received, ServerEntry, WorkerEntry, Writer};

/// Checks that decoded entries can be encoded, and decode to the same entries again.
pub fn frame(data: &[u8]) {
    check::<WorkerEntry>(data);
    check::<ServerEntry>(data);
    check::<NodeEntry>(data);
}

fn check<E: Entry + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Ok(received) = Received::<E>::new(Bytes::copy_from_slice(data)) else { return };
    let (number, ack) = (received.number, received.ack);
    let entries: Vec<E> = received.map_while(Result::ok).collect();
    let mut writer = Writer::default();
    entries.iter().for_each(|entry| writer.entry(entry));
    let written = writer.finish(number, ack).to_bytes();
    assert_eq!(written, data[..written.len()]);
    let again: Vec<E> = Received::new(written).expect("the header is there").map_while(Result::ok).collect();
    assert_eq!(again, entries);
}
