use super::*;

fn user(issuer: &str, subject: &str) -> Principal {
    Principal { issuer: issuer.into(), subject: subject.into() }
}

#[test]
fn a_key_counts_per_user_and_room_for_five_minutes() {
    let ledger = Arc::new(Ledger::new(1 << 20));
    let (keys, now) = (PublishedKeys::new([1, 2], 20, ledger.clone()), Instant::now());
    let (room, other) = (Room::plain("a").unwrap(), Room::plain("b").unwrap());
    let (ann, ben) = (user("i", "ann"), user("i", "ben"));
    let (other_issuer, nameless) = (user("j", "ann"), user("", ""));
    let record = |now, user, room, key| keys.record(now, (user, 1), (room, key), false);
    assert_eq!(record(now, Some(&ann), &room, "k"), Recorded::New);
    assert_eq!(record(now, Some(&ann), &room, "k"), Recorded::Published);
    for (user, room, key) in [
        (Some(&ben), &room, "k"),
        (Some(&other_issuer), &room, "k"),
        (Some(&nameless), &room, "k"),
        (None, &room, "k"),
        (Some(&ann), &other, "k"),
        (Some(&ann), &room, "l"),
    ] {
        assert_eq!(record(now, user, room, key), Recorded::New, "{user:?} {room:?} {key}");
    }
    assert_eq!(ledger.bytes(), 7 * KEY_BYTES);
    assert_eq!(record(now + TTL - Duration::from_nanos(1), Some(&ann), &room, "k"), Recorded::Published);
    assert_eq!(record(now + TTL, Some(&ann), &room, "k"), Recorded::New);
    assert_eq!(ledger.bytes(), KEY_BYTES);
}

#[test]
fn no_key_is_forgotten_early() {
    let (keys, now) = (PublishedKeys::new([1, 2], 2, Arc::new(Ledger::new(1 << 20))), Instant::now());
    let room = Room::plain("a").unwrap();
    let record = |now, address, key| keys.record(now, (None, address), (&room, key), false);
    assert_eq!([record(now, 1, "1"), record(now, 2, "2")], [Recorded::New; 2]);
    assert_eq!(record(now, 3, "3"), Recorded::Full);
    assert_eq!(record(now, 1, "1"), Recorded::Published);
    assert_eq!(record(now + TTL, 3, "3"), Recorded::New);
}

/// Users count by themselves, and anonymous clients by their address.
#[test]
fn a_source_with_many_keys_leaves_room_for_others() {
    let ledger = Arc::new(Ledger::new(1 << 20));
    let (keys, now) = (PublishedKeys::new([1, 2], 80, ledger.clone()), Instant::now());
    let room = Room::plain("a").unwrap();
    let fill = |now, user: Option<&Principal>, address: u64| {
        let key = |n: usize| format!("{address} {n}");
        let is_new = |n: &usize| keys.record(now, (user, address), (&room, &key(*n)), false) == Recorded::New;
        (0..100).take_while(is_new).count()
    };
    let (ann, ben) = (user("i", "ann"), user("i", "ben"));
    assert_eq!(fill(now, None, 7), 40);
    assert_eq!(fill(now, Some(&ann), 7), 20);
    assert_eq!(fill(now, Some(&ann), 8), 0, "a user has one share, whatever the address");
    assert_eq!(fill(now, Some(&ben), 7), 10);
    assert_eq!(fill(now, None, 8), 5);
    assert_eq!(fill(now + TTL, None, 8), 40, "keys that are forgotten don't count");
    assert_eq!(ledger.bytes(), 40 * KEY_BYTES);
}

#[test]
fn a_publication_that_went_to_another_node_first_may_have_been_published() {
    let (keys, now) = (PublishedKeys::new([1, 2], 2, Arc::new(Ledger::new(1 << 20))), Instant::now());
    let room = Room::plain("a").unwrap();
    let record = |is_foreign| keys.record(now, (None, 1), (&room, "k"), is_foreign);
    assert_eq!([record(true), record(true)], [Recorded::Unknown; 2], "it isn't recorded");
    assert_eq!(record(false), Recorded::New);
    assert_eq!(record(true), Recorded::Published);
}
