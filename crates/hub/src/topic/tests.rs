use super::*;

#[test]
fn a_room_is_never_a_feed_of_the_same_name() {
    let feed = Topic::from(Key::parse("scores").unwrap());
    let room = Topic::from(Room::plain("scores").unwrap());
    assert_ne!(feed, room);
    assert_ne!(Room::new("/a", "b").unwrap(), Room::new("/", "ab").unwrap());
    assert_eq!(Room::plain(""), Err(RoomError::Empty));
    assert_eq!(Room::plain(&"r".repeat(257)), Err(RoomError::TooLong));
}

#[test]
fn the_room_of_all_members_cant_be_named() {
    let everybody = Room::all_members("/").unwrap();
    assert!(everybody.is_all_members() && !Room::plain("*").unwrap().is_all_members());
    assert_eq!((everybody.namespace(), everybody.name()), ("/", ""));
    assert_ne!(everybody, Room::all_members("/chat").unwrap());
    assert_eq!(everybody.sibling(""), Err(RoomError::Empty));
    assert_eq!(everybody.sibling("r"), Room::plain("r"));
    assert_eq!(Room::all_members(""), Err(RoomError::Empty));
    assert_eq!(Room::all_members(&"n".repeat(257)), Err(RoomError::TooLong));
}

#[test]
fn rooms() {
    fn check(names: &[&str], expect: Result<&[&str], RoomError>) {
        let rooms = Rooms::new("/n", names.iter().copied());
        let named = rooms.as_ref().map(|rooms| rooms.iter().map(Room::name).collect::<Vec<_>>());
        assert_eq!(named.as_deref().map_err(|error| **error), expect, "{names:?}");
        if let Ok(rooms) = rooms {
            assert!(rooms.iter().all(|room| room.namespace() == "/n"));
            assert_eq!(rooms.first().name(), names[0]);
            assert_eq!(rooms.only(), (rooms.iter().count() == 1).then(|| rooms.first()));
        }
    }
    check(&["a"], Ok(&["a"]));
    check(&["b", "a"], Ok(&["b", "a"]));
    check(&["b", "a", "b"], Ok(&["b", "a"]));
    check(&[], Err(RoomError::Empty));
    check(&["a", ""], Err(RoomError::Empty));
    check(&["a", &"r".repeat(257)], Err(RoomError::TooLong));
    assert_eq!(Rooms::from(Room::plain("a").unwrap()), Rooms::new("/", ["a"]).unwrap());
}
