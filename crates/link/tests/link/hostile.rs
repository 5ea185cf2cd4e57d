//! Malformed frames: the error names the entry, the field and the broken rule.

use crate::vectors::read;
use crate::{binary, json};
use bytes::Bytes;
use smallvec::smallvec;
use stentor_link::{
    FRAME_BYTES_MAX, FrameError, HEADER_BYTES, Handle, Json, Message, Namespace, Received, SHARED_BYTES_MIN,
    SendFlags, ServerEntry, WorkerEntry, Writer,
};

#[test]
fn a_malformed_entry_is_refused_with_its_reason() {
    let check = |entries: &[u8], expect: &str| {
        let frame = [&[0; HEADER_BYTES], entries].concat();
        assert_eq!(read::<WorkerEntry>(&frame).unwrap_err().to_string(), expect, "{entries:?}");
    };
    check(b"\0", "the frame has an entry of the unknown type 0");
    check(b"\x18", "the frame has an entry of the unknown type 24");
    // An entry of the other direction.
    check(b"\x46\x07\0\0\0", "the frame has an entry of the unknown type 70");
    // After a valid entry.
    check(b"\x15\x07\x07\0\0\0", "DEL is malformed: `namespace` exceeds the frame");
    check(b"\x05\x07\0\0\0\x02", "CLOSE is malformed: `discard` has the unknown value 2");
    check(b"\x04\x07\0\0\0\x84\0\0", "SEND is malformed: `flags` has the unknown value 132");
    check(b"\x0a\0\0\x28", "BROADCAST is malformed: `flags` has the unknown value 40");
    check(b"\x0b\0\0\x03", "SELECT is malformed: `change` has the unknown value 3");
    check(b"\x0b\0\0\0\x01", "SELECT is malformed: `flags` has the unknown value 1");
    check(b"\x09\x07\0\0\0\0\0\x01\0\xff", "LEAVE is malformed: `room` isn't UTF-8");
    check(b"\x04\x07\0\0\0\0\x01\0\x04\0\0\0\xc3\x28", "SEND is malformed: `messages` isn't UTF-8");
    check(b"\x0d\x07\0\0\0\0\0\x01\0\0\0{", "STATE is malformed: `data` isn't JSON");
    check(b"\x0d\x07\0\0\0\0\0\0\0\0\0", "STATE is malformed: `data` isn't JSON");
    check(b"\x14\x07\0\0\0\0\0\x01\0\0\0x", "RELEASED is malformed: `data` isn't JSON");
    check(b"\x01\x01\0\0\0\xff", "HELLO is malformed: `hello` isn't UTF-8");
    // Counts and lengths that don't fit into the frame.
    check(b"\x08\x07\0\0\0\0\0\xff\xff\0\0", "JOIN is malformed: `rooms` exceeds the frame");
    check(b"\x04\x07\0\0\0\0\xff\xff\0\0\0\0", "SEND is malformed: `messages` exceeds the frame");
    check(b"\x04\x07\0\0\0\0\x01\0\xff\xff\xff\xff", "SEND is malformed: `messages` exceeds the frame");
    check(b"\x01\xff\xff\xff\xff{}", "HELLO is malformed: `hello` exceeds the frame");
}

/// Clients choose the depth of `auth` and `data`, so it doesn't end the link.
#[test]
fn json_that_is_nested_deep_reads_as_null() {
    for (levels, is_kept) in [(128, true), (129, false), (100_000, false)] {
        let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let len = u32::try_from(text.len()).unwrap().to_le_bytes();
        let frame = [&[0; HEADER_BYTES], &b"\x0d\x07\0\0\0\0\0"[..], &len, text.as_bytes()].concat();
        let data = json(if is_kept { &text } else { "null" });
        let expect = WorkerEntry::State { handle: Handle(7), namespace: Namespace(0), data };
        assert_eq!(read(&frame), Ok(vec![expect]), "{levels}");
    }
}

#[test]
fn a_count_of_handles_allocates_nothing_that_the_frame_does_not_have() {
    let frame = b"\0\0\0\0\0\0\0\0\x49\0\0\0\xff\xff\xff\xff\0\0\0\0";
    let error = read::<ServerEntry>(frame).unwrap_err();
    assert_eq!(error.to_string(), "KICK is malformed: `handles` exceeds the frame");
}

#[test]
fn a_frame_has_a_header_and_a_bounded_length() {
    for len in 0..HEADER_BYTES {
        assert_eq!(read::<WorkerEntry>(&vec![0; len]), Err(FrameError::NoHeader));
    }
    assert_eq!(read::<WorkerEntry>(&[0; HEADER_BYTES]), Ok(vec![]));
    let long = vec![0x15; FRAME_BYTES_MAX + 1];
    let error = read::<WorkerEntry>(&long).unwrap_err();
    assert_eq!(error.to_string(), "the frame has 16777217 bytes; the maximum is 16777216");
}

#[test]
fn no_entry_follows_a_malformed_one() {
    let mut received =
        Received::<WorkerEntry>::new(Bytes::from_static(b"\0\0\0\0\0\0\0\0\x15\0\x15\x15")).unwrap();
    assert_eq!(received.next(), Some(Ok(WorkerEntry::Nop {})));
    assert_eq!(received.next(), Some(Err(FrameError::UnknownType(0))));
    assert!(received.next().is_none());
}

#[test]
fn a_message_shares_the_memory_of_its_frame() {
    let frame = Bytes::from_static(b"\0\0\0\0\0\0\0\0\x04\x07\0\0\0\0\x01\0\x05\0\0\0ab");
    let entry = Received::<WorkerEntry>::new(frame.clone()).unwrap().next().unwrap().unwrap();
    let WorkerEntry::Send { messages, .. } = entry else { panic!("{entry:?}") };
    assert_eq!(messages[0], binary(b"ab"));
    assert_eq!(messages[0].data().as_ptr(), frame[20..].as_ptr());
}

#[test]
fn a_large_message_is_not_copied_into_its_frame() {
    let large = Bytes::from(vec![b'a'; SHARED_BYTES_MIN]);
    let small = large.slice(1..);
    let mut writer = Writer::default();
    let messages = smallvec![
        Message::Text(small.clone()),
        Message::Text(large.clone()),
        Message::Binary(small),
        Message::Binary(large.clone()),
        Message::Binary(large.clone()),
    ];
    let entry = WorkerEntry::Send { handle: Handle(1), flags: SendFlags::default(), messages };
    writer.entry(&entry);
    assert!(writer.has_entries());
    let frame = writer.finish(1, 0);
    assert!(!writer.has_entries());
    let shared: Vec<bool> = frame.pieces().iter().map(|piece| piece.as_ptr() == large.as_ptr()).collect();
    assert_eq!(shared, [false, true, false, true, false, true]);
    assert_eq!(frame.len(), frame.pieces().iter().map(Bytes::len).sum::<usize>());
    assert_eq!(read::<WorkerEntry>(&frame.to_bytes()), Ok(vec![entry]));
    // The next frame is independent of the last one.
    writer.entry(&WorkerEntry::Nop {});
    assert_eq!(*writer.finish(2, 1).to_bytes(), *b"\x02\0\0\0\x01\0\0\0\x15");
}

#[test]
fn only_valid_json_is_json() {
    assert_eq!(json("[1, {}]").as_str(), "[1, {}]");
    for text in ["", "{", "{}x", "nul", "'a'"] {
        assert_eq!(Json::new(text), None, "{text}");
    }
}
