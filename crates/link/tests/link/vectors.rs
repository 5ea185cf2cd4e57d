//! Every entry against bytes that were written by hand from the specification, whole and cut at every byte.

use crate::{binary, json, name, names, text};
use bytes::Bytes;
use serde_json::Value;
use smallvec::smallvec;
use std::collections::BTreeSet;
use std::fmt::Debug;
use stentor_link::{
    Change, Entry, Fault, FrameError, Handle, Namespace, NodeEntry, Received, SelectFlags, SendFlags,
    ServerEntry, WorkerEntry, Writer,
};

/// The number 2, the acknowledgement of 258.
const HEADER: &[u8; 8] = b"\x02\0\0\0\x02\x01\0\0";

pub(crate) fn worker_entries() -> Vec<(WorkerEntry, &'static [u8])> {
    use WorkerEntry::*;
    let (handle, namespace) = (Handle(7), Namespace(258));
    vec![
        (Hello { hello: json(r#"{"v":[1]}"#) }, b"\x01\x09\0\0\0{\"v\":[1]}"),
        (Accept { handle, headers: json("{}") }, b"\x02\x07\0\0\0\x02\0\0\0{}"),
        (Refuse { handle: Handle(0x0403_0201), response: json("{}") }, b"\x03\x01\x02\x03\x04\x02\0\0\0{}"),
        (
            Send { handle, flags: SendFlags::default(), messages: smallvec![text("2[\"a\"]")] },
            b"\x04\x07\0\0\0\0\x01\0\x0c\0\0\x002[\"a\"]",
        ),
        (
            Send {
                handle,
                flags: SendFlags { is_volatile: true, is_uncompressed: true, wants_receipt: true },
                messages: smallvec![text("é"), binary(b"\xff\0"), binary(b"")],
            },
            b"\x04\x07\0\0\0\x0b\x03\0\x04\0\0\0\xc3\xa9\x05\0\0\0\xff\0\x01\0\0\0",
        ),
        (
            Send {
                handle,
                flags: SendFlags { is_volatile: true, ..SendFlags::default() },
                messages: smallvec![],
            },
            b"\x04\x07\0\0\0\x01\0\0",
        ),
        (Close { handle, discard: false }, b"\x05\x07\0\0\0\0"),
        (Close { handle, discard: true }, b"\x05\x07\0\0\0\x01"),
        (
            Add {
                handle,
                namespace,
                id: name("id"),
                pid: name(""),
                rooms: names(["id", "r"]),
                state: json("{\"a\":1}"),
            },
            b"\x06\x07\0\0\0\x02\x01\x02\0id\0\0\x02\0\x02\0id\x01\0r\x07\0\0\0{\"a\":1}",
        ),
        (Del { handle, namespace }, b"\x07\x07\0\0\0\x02\x01"),
        (Join { handle, namespace, rooms: names(["a", ""]) }, b"\x08\x07\0\0\0\x02\x01\x02\0\x01\0a\0\0"),
        (Leave { handle, namespace, room: name("r") }, b"\x09\x07\0\0\0\x02\x01\x01\0r"),
        (
            Broadcast {
                namespace,
                broadcast: stentor_link::Broadcast { messages: smallvec![text("2")], ..Default::default() },
            },
            b"\x0a\x02\x01\0\0\0\0\0\x01\0\x02\0\0\x002",
        ),
        (
            Broadcast {
                namespace,
                broadcast: stentor_link::Broadcast {
                    is_volatile: true,
                    is_uncompressed: true,
                    is_local: true,
                    rooms: names(["r"]),
                    except: names(["x", "yy"]),
                    offset: Some(name("o1")),
                    messages: smallvec![text("51-"), binary(b"\x01")],
                },
            },
            b"\x0a\x02\x01\x17\x01\0\x01\0r\x02\0\x01\0x\x02\0yy\x02\0o1\x02\0\x06\0\0\x0051-\x03\0\0\0\x01",
        ),
        (
            Select {
                namespace,
                select: stentor_link::Select {
                    change: Change::Leave,
                    flags: SelectFlags { is_local: true, closes: false },
                    rooms: names(["r"]),
                    except: names([]),
                    targets: names(["t"]),
                },
            },
            b"\x0b\x02\x01\x01\x04\x01\0\x01\0r\0\0\x01\0\x01\0t",
        ),
        (
            Select {
                namespace,
                select: stentor_link::Select {
                    change: Change::Disconnect,
                    flags: SelectFlags { is_local: false, closes: true },
                    rooms: names([]),
                    except: names(["e"]),
                    targets: names([]),
                },
            },
            b"\x0b\x02\x01\x02\x20\0\0\x01\0\x01\0e\0\0",
        ),
        (
            Relay { namespace, link: 3, body: json("[]"), messages: smallvec![text("2")] },
            b"\x0c\x02\x01\x03\0\0\0\x02\0\0\0[]\x01\0\x02\0\0\x002",
        ),
        (State { handle, namespace, data: json("null") }, b"\x0d\x07\0\0\0\x02\x01\x04\0\0\0null"),
        (
            Persist { namespace, id: name("i"), pid: name("p"), rooms: names(["r"]), data: json("{}") },
            b"\x0e\x02\x01\x01\0i\x01\0p\x01\0\x01\0r\x02\0\0\0{}",
        ),
        (
            Restore { request: 9, handle, namespace, pid: name("p"), offset: name("o") },
            b"\x0f\x09\0\0\0\x07\0\0\0\x02\x01\x01\0p\x01\0o",
        ),
        (Watch { handle, is_watched: true }, b"\x10\x07\0\0\0\x01"),
        (Bye { bye: json("{}") }, b"\x11\x02\0\0\0{}"),
        (Nsp { namespace: Namespace(0), name: name("/chat") }, b"\x12\0\0\x05\0/chat"),
        (Config { config: json("{}") }, b"\x13\x02\0\0\0{}"),
        (Released { handle, namespace, data: Some(json("{}")) }, b"\x14\x07\0\0\0\x02\x01\x02\0\0\0{}"),
        (Released { handle, namespace: Namespace::END, data: None }, b"\x14\x07\0\0\0\xff\xff\0\0\0\0"),
        (Nop {}, b"\x15"),
        (Kept { handle }, b"\x16\x07\0\0\0"),
        (Gone { namespace }, b"\x17\x02\x01"),
    ]
}

fn server_entries() -> Vec<(ServerEntry, &'static [u8])> {
    use ServerEntry::*;
    let (handle, namespace) = (Handle(7), Namespace(258));
    let handles = vec![Handle(7), Handle(256)];
    vec![
        (Nop {}, b"\x15"),
        (Welcome { welcome: json(r#"{"v":1}"#) }, b"\x40\x07\0\0\0{\"v\":1}"),
        (Open { handle, ask: true, handshake: json("{}") }, b"\x41\x07\0\0\0\x01\x02\0\0\0{}"),
        (
            Message { handle, messages: smallvec![text("2[\"a\"]")] },
            b"\x42\x07\0\0\0\x01\0\x0c\0\0\x002[\"a\"]",
        ),
        (
            Message { handle, messages: smallvec![text("51-"), binary(b"\0")] },
            b"\x42\x07\0\0\0\x02\0\x06\0\0\x0051-\x03\0\0\0\0",
        ),
        (Upgrade { handle, transport: name("websocket") }, b"\x43\x07\0\0\0\x09\0websocket"),
        (
            Closed { handle, reason: name("ping timeout"), description: None },
            b"\x44\x07\0\0\0\x0c\0ping timeout\0\0\0\0",
        ),
        (
            Closed { handle, reason: name("x"), description: Some(json("1")) },
            b"\x44\x07\0\0\0\x01\0x\x01\0\0\x001",
        ),
        (Resume { handle, session: json("{}") }, b"\x45\x07\0\0\0\x02\0\0\0{}"),
        (Receipt { handle }, b"\x46\x07\0\0\0"),
        (
            Relayed { namespace, link: 3, body: json("[]"), messages: smallvec![] },
            b"\x47\x02\x01\x03\0\0\0\x02\0\0\0[]\0\0",
        ),
        (
            Members { namespace, change: Change::Join, handles: handles.clone(), rooms: names(["r"]) },
            b"\x48\x02\x01\0\x02\0\0\0\x07\0\0\0\0\x01\0\0\x01\0\x01\0r",
        ),
        (Kick { namespace, closes: true, handles }, b"\x49\x02\x01\x01\x02\0\0\0\x07\0\0\0\0\x01\0\0"),
        (Peers { count: 2 }, b"\x4a\x02\0"),
        (Restored { request: 9, socket: json("null") }, b"\x4b\x09\0\0\0\x04\0\0\0null"),
        (Packet { handle, kind: name("pong") }, b"\x4c\x07\0\0\0\x04\0pong"),
        (Error { error: json("{}") }, b"\x4e\x02\0\0\0{}"),
        (Pressure { handle, is_on: true }, b"\x4f\x07\0\0\0\x01"),
        (Drained {}, b"\x50"),
        (Release { handle }, b"\x51\x07\0\0\0"),
        (ConnError { error: json("{}") }, b"\x52\x02\0\0\0{}"),
        (Vacant { namespace }, b"\x53\x02\x01"),
    ]
}

/// Reads all entries of a frame.
fn node_entries() -> Vec<(NodeEntry, &'static [u8])> {
    use NodeEntry::*;
    let namespace = || name("/");
    vec![
        (
            Workers { count: 258, asks: true, last: 772, settings: None },
            b"\x01\x02\x01\x01\x04\x03\0\0\0\0\0\0\0\0\0\0",
        ),
        (
            Workers { count: 1, asks: false, last: 0, settings: Some(json("{}")) },
            b"\x01\x01\0\0\0\0\0\0\0\0\0\0\x02\0\0\0{}",
        ),
        (
            Broadcast {
                namespace: namespace(),
                recovery_ms: 5,
                number: 258,
                broadcast: stentor_link::Broadcast { messages: smallvec![text("2")], ..Default::default() },
            },
            b"\x02\x01\0/\x05\0\0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\x02\0\0\x002",
        ),
        (
            Select {
                namespace: namespace(),
                select: stentor_link::Select {
                    change: Change::Leave,
                    flags: SelectFlags { is_local: false, closes: true },
                    rooms: vec![],
                    except: vec![],
                    targets: names(["r"]),
                },
            },
            b"\x03\x01\0/\x01\x20\0\0\0\0\x01\0\x01\0r",
        ),
        (
            Relay { from: 7, to: 1, namespace: namespace(), body: json("[]"), messages: smallvec![] },
            b"\x04\x07\0\0\0\x01\0\0\0\x01\0/\x02\0\0\0[]\0\0",
        ),
        (
            Take { request: 7, namespace: namespace(), pid: name("p"), offset: name("o1") },
            b"\x05\x07\0\0\0\x01\0/\x01\0p\x02\0o1",
        ),
        (
            Taken { request: 7, socket: json("null"), missed: smallvec![text("2")] },
            b"\x06\x07\0\0\0\x04\0\0\0null\x01\0\x02\0\0\x002",
        ),
    ]
}

pub(crate) fn read<E: Entry>(frame: &[u8]) -> Result<Vec<E>, FrameError> {
    Received::new(Bytes::copy_from_slice(frame))?.collect()
}

fn check_all<E: Entry + Debug + PartialEq>(entries: Vec<(E, &'static [u8])>) {
    let mut all = (Writer::default(), HEADER.to_vec());
    for (entry, bytes) in &entries {
        let frame = [HEADER, *bytes].concat();
        let mut writer = Writer::default();
        writer.entry(entry);
        assert_eq!(writer.len(), frame.len(), "{entry:?}");
        assert_eq!(entry.encoded_len(), bytes.len(), "{entry:?}");
        let written = writer.finish(2, 258);
        assert_eq!(*written.to_bytes(), *frame, "{entry:?}");
        assert_eq!(read::<E>(&frame).unwrap(), std::slice::from_ref(entry));
        // Every shorter frame is one without the entry, or one whose entry is cut.
        for len in HEADER.len() + 1..frame.len() {
            match read::<E>(&frame[..len]) {
                Err(FrameError::Malformed { entry: named, fault: Fault::Cut, .. }) => {
                    assert_eq!(named, entry.name());
                }
                other => panic!("{entry:?}, cut after {len} bytes: {other:?}"),
            }
        }
        all.0.entry(entry);
        all.1.extend_from_slice(bytes);
    }
    // All entries in one frame.
    let frame = all.0.finish(2, 258).to_bytes();
    assert_eq!(frame, all.1);
    let mut received = Received::<E>::new(frame).unwrap();
    assert_eq!((received.number, received.ack), (2, 258));
    let read: Vec<E> = received.by_ref().map(Result::unwrap).collect();
    assert!(read.iter().eq(entries.iter().map(|(entry, _)| entry)));
    assert_eq!(received.unread_bytes(), 0);
    // The table has every type of the direction.
    let types: BTreeSet<u8> = entries.iter().map(|(_, bytes)| bytes[0]).collect();
    assert!(types.iter().eq(E::TYPES.iter().map(|(number, _)| number)), "{types:?}");
}

/// Checks that the list of entries with which packages of workers are tested is this one.
fn check_shared<E: Entry>(entries: &[(E, &'static [u8])], rows: &Value) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let own = entries.iter().map(|(entry, bytes)| (entry.name().to_owned(), hex(bytes)));
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let shared = rows.as_array().unwrap().iter().map(|row| (text(row, "entry"), text(row, "bytes")));
    assert_eq!(shared.collect::<Vec<_>>(), own.collect::<Vec<_>>());
}

#[test]
fn packages_of_workers_are_tested_with_the_same_bytes() {
    let shared: Value = serde_json::from_str(include_str!("entries.json")).unwrap();
    check_shared(&worker_entries(), &shared["worker"]);
    check_shared(&server_entries(), &shared["server"]);
}

#[test]
fn entries_of_workers_have_the_bytes_of_the_specification() {
    check_all(worker_entries());
}

#[test]
fn entries_of_the_server_have_the_bytes_of_the_specification() {
    check_all(server_entries());
}

#[test]
fn entries_of_nodes_have_these_bytes() {
    check_all(node_entries());
}

#[test]
fn names_of_entries_are_those_of_the_specification() {
    let names =
        |types: &[(u8, &'static str)]| types.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(WorkerEntry::TYPES),
        "HELLO ACCEPT REFUSE SEND CLOSE ADD DEL JOIN LEAVE BROADCAST SELECT RELAY STATE PERSIST RESTORE WATCH \
         BYE NSP CONFIG RELEASED NOP KEPT GONE"
    );
    assert_eq!(
        names(ServerEntry::TYPES),
        "NOP WELCOME OPEN MESSAGE UPGRADE CLOSED RESUME RECEIPT RELAYED MEMBERS KICK PEERS RESTORED PACKET ERROR \
         PRESSURE DRAINED RELEASE CONN_ERROR VACANT"
    );
}
