//! Rooms with history.

use crate::{Fixture, KEEP, Node, START, room, sleep_ms};
use bytes::Bytes;
use std::time::Duration;
use stentor_cluster::engine::{EngineError, Reply, Request};
use stentor_hub::{HistoryLimits, Position, Room};

fn append(room: &Room, payload: &'static str) -> Request {
    Request::Append { room: room.clone(), payload: payload.into(), idempotency_key: None, limits: KEEP }
}

pub(crate) async fn offsets_are_consecutive_from_one(fixture: &impl Fixture) {
    let (a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let r = room("r");
    assert_eq!(a.head(&r).await, None);
    let first = a.append(&r, "1").await;
    assert_eq!(first.offset, 1);
    for offset in 2..20 {
        let node = if offset % 2 == 0 { &b } else { &a };
        assert_eq!(node.append(&r, "x").await, Position { offset, ..first });
    }
    // Sends appends without waiting for answers.
    let appends: Vec<_> = (0..200).map(|_| a.engine.request(append(&r, "y"))).collect();
    for (i, append) in appends.into_iter().enumerate() {
        assert_eq!(append.await, Ok(Reply::Position(Position { offset: 20 + i as u64, ..first })));
    }
    let other = room("other");
    assert_eq!(b.append(&other, "1").await.offset, 1);
    let rooms = vec![other.clone(), room("none"), r];
    let Reply::Heads(heads) = b.request(Request::Heads { rooms }).await else { panic!() };
    assert_eq!(
        heads.iter().map(|head| head.map(|head| head.offset)).collect::<Vec<_>>(),
        [Some(1), None, Some(219)]
    );
}

pub(crate) async fn appended_messages_arrive_with_their_positions(fixture: &impl Fixture) {
    let (mut a, mut b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let r = room("r");
    a.join(&r).await;
    b.join(&r).await;
    let first = a.append(&r, "1").await;
    let second = b.append(&r, "").await;
    for node in [&mut a, &mut b] {
        assert_eq!(node.message().await, (r.clone().into(), Some(first), "1".into()));
        assert_eq!(node.message().await, (r.clone().into(), Some(second), "".into()));
    }
}

pub(crate) async fn history_is_read_from_a_position(fixture: &impl Fixture) {
    let node = Node::connect(fixture).await;
    let r = room("r");
    let (head, messages, truncated) = node.history(&r, START, 10).await;
    assert!(head.is_none_or(|head| head.offset == 0) && messages.is_empty() && truncated, "{head:?}");
    let mut head = START;
    for payload in ["1", "2", "3", "4"] {
        head = node.append(&r, payload).await;
    }
    let all: Vec<Bytes> = ["1", "2", "3", "4"].map(Bytes::from).to_vec();
    let at = |offset| Position { offset, ..head };
    let check = async |since, messages_max, messages: &[Bytes], truncated| {
        let history = node.history(&r, since, messages_max).await;
        assert_eq!(history, (Some(head), messages.to_vec(), truncated), "{since:?}");
    };
    check(at(0), 10, &all, false).await;
    check(at(0), 3, &all[..3], false).await;
    check(at(2), 10, &all[2..], false).await;
    check(at(4), 10, &[], false).await;
    // Positions of another epoch, and one past the newest message.
    check(START, 10, &all, true).await;
    check(at(5), 10, &all, true).await;
    check(START, 2, &all[..2], true).await;
}

pub(crate) async fn history_is_trimmed_by_each_limit(fixture: &impl Fixture) {
    let node = Node::connect(fixture).await;
    for (name, limits, kept) in [
        ("messages", HistoryLimits { publications_max: 2, ..KEEP }, &["ccc", "dd"][..]),
        ("bytes", HistoryLimits { bytes_max: 7, ..KEEP }, &["ccc", "dd"]),
        ("age", HistoryLimits { age_max: Duration::from_millis(300), ..KEEP }, &["dd"]),
        ("none", HistoryLimits { publications_max: 0, ..KEEP }, &[]),
        ("larger", HistoryLimits { bytes_max: 1, ..KEEP }, &[]),
    ] {
        let r = room(name);
        for payload in ["a", "bbb", "ccc"] {
            node.append_with(&r, payload, None, limits).await;
        }
        if name == "age" {
            sleep_ms(400).await;
        }
        let head = node.append_with(&r, "dd", None, limits).await;
        assert_eq!(head.offset, 4);
        let expected: Vec<Bytes> = kept.iter().map(|payload| Bytes::from(*payload)).collect();
        let since = |offset| Position { offset, ..head };
        assert_eq!(node.history(&r, since(0), 10).await, (Some(head), expected.clone(), true), "{name}");
        let oldest = 4 - kept.len() as u64;
        assert_eq!(node.history(&r, since(oldest), 10).await, (Some(head), expected, false), "{name}");
    }
}

pub(crate) async fn messages_expire_without_a_further_one(fixture: &impl Fixture) {
    let node = Node::connect(fixture).await;
    let r = room("r");
    let old = node.append(&r, "old").await;
    sleep_ms(2_200).await;
    let new = node.append(&r, "new").await;
    let start = Position { offset: 0, ..old };
    let age_max = Duration::from_millis(2_000);
    let read = async |since| node.history_of(&r, since, 1, age_max).await;
    assert_eq!(read(start).await, (Some(new), vec!["new".into()], true));
    assert_eq!(read(old).await, (Some(new), vec!["new".into()], false));
    sleep_ms(2_200).await;
    assert_eq!(read(old).await, (Some(new), vec![], true));
    assert_eq!(read(new).await, (Some(new), vec![], false));
    let both = vec!["old".into(), "new".into()];
    assert_eq!(node.history(&r, start, 10).await, (Some(new), both, false));
}

pub(crate) async fn an_idempotency_key_has_one_effect(fixture: &impl Fixture) {
    let (mut a, b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let (r, other) = (room("r"), room("other"));
    a.join(&r).await;
    let first = a.append_with(&r, "first", Some("k"), KEEP).await;
    assert_eq!(b.append_with(&r, "again", Some("k"), KEEP).await, first);
    assert_eq!(b.append_with(&other, "elsewhere", Some("k"), KEEP).await.offset, 1);
    let second = a.append_with(&r, "second", Some("k2"), KEEP).await;
    assert_eq!(second.offset, 2);
    assert_eq!(a.append_with(&r, "again", Some("k"), KEEP).await, first);
    assert_eq!(a.message().await.2, "first");
    assert_eq!(a.message().await.2, "second");
    assert_eq!(a.head(&r).await, Some(second));
}

/// Ends an epoch twice. Engines that never return to an epoch don't support the request, and keep the epoch.
pub(crate) async fn an_epoch_ends_once(fixture: &impl Fixture) {
    let node = Node::connect(fixture).await;
    let r = room("r");
    let first = node.append(&r, "first").await;
    let end = |epoch| node.try_request(Request::EndEpoch { room: r.clone(), epoch });
    if let Err(error) = end(first.epoch).await {
        assert_eq!(error, EngineError::Unsupported);
        assert_eq!(node.append(&r, "second").await, Position { offset: first.offset + 1, ..first });
        return;
    }
    let second = node.append(&r, "second").await;
    assert_eq!((second.offset, second.epoch == first.epoch), (1, false));
    // A second node may end the same epoch: the request has no further effect.
    assert_eq!(end(first.epoch).await, Ok(Reply::Done));
    assert_eq!(node.history(&r, START, 10).await, (Some(second), vec!["second".into()], true));
}

pub(crate) async fn a_server_without_its_data_begins_another_epoch(fixture: &impl Fixture) {
    let before = Node::connect(fixture).await;
    let r = room("r");
    let old = before.append_with(&r, "old", Some("k"), KEEP).await;
    fixture.forget().await;
    drop(before);
    let node = Node::connect(fixture).await;
    // The server has lost the idempotency key.
    let new = node.append_with(&r, "new", Some("k"), KEEP).await;
    assert_eq!(new.offset, 1);
    assert_ne!(new.epoch, old.epoch);
    assert_eq!(node.history(&r, old, 10).await, (Some(new), vec!["new".into()], true));
}

/// Reads begin while messages are appended, and the node's interest ends and begins again.
pub(crate) async fn messages_missing_in_a_history_arrive_live(fixture: &impl Fixture) {
    let (writer, mut reader) = (Node::connect(fixture).await, Node::connect(fixture).await);
    for i in 0..60 {
        let r = room(&(i / 3).to_string());
        let first = writer.engine.request(append(&r, "x"));
        reader.engine.set_interest(r.clone().into(), true);
        let read = reader.engine.request(Request::History {
            room: r.clone(),
            since: START,
            messages_max: 10,
            age_max: KEEP.age_max,
        });
        let second = writer.engine.request(append(&r, "x"));
        let (first, read, second) = tokio::join!(first, read, second);
        let (Ok(Reply::History(read)), Ok(Reply::Position(last))) = (read, second) else { panic!() };
        assert!(first.is_ok());
        let mut head = read.head.map_or(0, |head| head.offset);
        while head < last.offset {
            let (channel, position, _) = reader.message().await;
            let position = position.unwrap();
            if channel == r.clone().into() && position.offset > head {
                assert_eq!(position.offset, head + 1);
                head = position.offset;
            }
        }
        reader.engine.set_interest(r.into(), false);
    }
}

pub(crate) async fn appends_of_several_nodes_have_one_order<F: Fixture>(fixture: &F) {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::connect(fixture).await);
    }
    let r = room("r");
    for node in &nodes {
        node.join(&r).await;
    }
    let appends: Vec<_> = (0..90_usize)
        .map(|i| {
            let (payload, idempotency_key) = (i.to_string().into(), Some(i.to_string().into()));
            let append = Request::Append { room: r.clone(), payload, idempotency_key, limits: KEEP };
            nodes[i % 3].engine.request(append)
        })
        .collect();
    let mut offsets = Vec::new();
    for append in appends {
        let Reply::Position(position) = append.await.unwrap() else { panic!() };
        offsets.push(position.offset);
    }
    for first in 0..3 {
        assert!(
            offsets.iter().skip(first).step_by(3).is_sorted(),
            "those of a node in its order: {offsets:?}"
        );
    }
    for node in &mut nodes {
        let mut arrived = Vec::new();
        for _ in 0..90 {
            let (_, position, payload) = node.message().await;
            let i: usize = str::from_utf8(&payload).unwrap().parse().unwrap();
            assert_eq!(position.unwrap().offset, offsets[i]);
            arrived.push(offsets[i]);
        }
        if !F::DELIVERS_IN_ORDER {
            arrived.sort_unstable();
        }
        assert_eq!(arrived, (1..=90).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_large_message_is_kept_and_arrives(fixture: &impl Fixture) {
    let (a, mut b) = (Node::connect(fixture).await, Node::connect(fixture).await);
    let r = room("r");
    b.join(&r).await;
    let limits = HistoryLimits { bytes_max: 64 << 20, ..KEEP };
    let large: Bytes = (0..5 << 20).map(|i: u32| (i % 251) as u8).collect();
    for (offset, payload) in [(1, Bytes::from("small")), (2, large.clone()), (3, "small".into())] {
        let append =
            Request::Append { room: r.clone(), payload: payload.clone(), idempotency_key: None, limits };
        let Reply::Position(position) = a.request(append).await else { panic!() };
        assert_eq!(position.offset, offset);
        let (_, arrived, content) = b.message().await;
        assert!(arrived == Some(position) && content == payload, "{arrived:?}: {} bytes", content.len());
    }
    let (_, messages, truncated) =
        b.history(&r, Position { offset: 0, ..b.head(&r).await.unwrap() }, 10).await;
    assert!(messages.len() == 3 && messages[1] == large && !truncated);
}
