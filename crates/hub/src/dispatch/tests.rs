use super::*;
use crate::budget::LiveBytes;
use crate::key::Key;
use crate::publication::{Document, Epoch};
use bytes::Bytes;

#[test]
fn a_set_of_cores_has_the_inserted_cores() {
    let mut set = CoreSet::default();
    for core in [255, 0, 63, 64, 128] {
        set.set(core, true);
    }
    set.set(64, false);
    assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 128, 255]);
    for core in [0, 63, 128, 255] {
        set.set(core, false);
    }
    assert!(set.is_empty() && set.iter().next().is_none());
    let mut other = CoreSet::default();
    other.set(70, true);
    set.set(3, true);
    set.add(&other);
    assert_eq!(set.iter().collect::<Vec<_>>(), [3, 70]);
}

#[test]
fn versions_behind() {
    fn check(since: Option<(u64, u64)>, expect: u16) {
        let position = Position { epoch: Epoch(7), offset: 100_000 };
        let (key, state) = (Key::parse("k").unwrap(), FeedState::Live);
        let document =
            Arc::new(Document { body: Bytes::new(), json: false, content_type: "text/plain".into() });
        let body = Body::Snapshot { key, position, state, snapshot_reason: None, document };
        let snapshot = Some(Publication::new(1, false, body, &LiveBytes::default()));
        let current: Current<()> = Current { snapshot, state: None };
        let since = since.map(|(epoch, offset)| Position { epoch: Epoch(epoch), offset });
        assert_eq!(current.behind(since), expect, "{since:?}");
    }
    check(Some((7, 100_000)), 0);
    check(Some((7, 99_999)), 1);
    // The client returns after an hour. No patches reach back that far, but the epoch is the same.
    check(Some((7, 1)), FAR);
    check(Some((7, 100_000 - u64::from(FAR) + 1)), FAR - 1);
    // Versions that never existed, and no version.
    check(Some((7, 0)), UNKNOWN);
    check(Some((7, 100_001)), UNKNOWN);
    check(Some((8, 99_999)), UNKNOWN);
    check(None, UNKNOWN);
    assert_eq!(Current::<()>::default().behind(Some(Position { epoch: Epoch(7), offset: 1 })), UNKNOWN);
}

#[test]
fn a_message_has_exactly_the_named_exceptions() {
    let [one, two, three] = [1, 2, 3].map(|index| SessionId { index, generation: 0 });
    let room = Room::plain("r").unwrap();
    assert!(Emit::default().has_no_exceptions() && Emit::volatile().has_no_exceptions());
    let some = Emit::default().except_session(0, one).except_session(1, two);
    let all = some.clone().except_session(0, three).except_room(room.clone());
    assert_eq!(all.excepted_sessions(0).collect::<Vec<_>>(), [one, three]);
    assert_eq!(some.excepted_sessions(0).collect::<Vec<_>>(), [one], "a copy is another's own");
    assert_eq!((all.excepted_rooms(), some.excepted_rooms()), (&[room][..], &[][..]));
    assert_eq!(all.bytes(), 3 * size_of::<(CoreId, SessionId)>() + size_of::<Room>());
}
