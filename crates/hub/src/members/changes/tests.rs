use super::*;

const JOINED: Option<Absence> = None;
const LEFT: Option<Absence> = Some(Absence::Unsubscribed);

fn session(index: u32) -> SessionId {
    SessionId { index, generation: 1 }
}

/// Takes the changes for a home core, by session.
fn taken(changes: &mut Changes, home: CoreId) -> Vec<(u32, Option<Absence>)> {
    let mut taken = Vec::new();
    changes.take(home, &mut taken);
    let mut taken: Vec<_> = taken.iter().map(|change| (change.session.index, change.absence)).collect();
    taken.sort_unstable_by_key(|(index, _)| *index);
    taken
}

#[test]
fn undone_changes_are_never_reported() {
    let check = |steps: &[Option<Absence>], expect: &[(u32, Option<Absence>)]| {
        let (mut changes, room) = (Changes::new(1, [1, 2]), Room::plain("room").unwrap());
        steps.iter().for_each(|absence| changes.set(0, &room, session(7), *absence));
        assert_eq!(changes.is_empty(), expect.is_empty(), "{steps:?}");
        assert_eq!(changes.bytes() > 0, !expect.is_empty(), "{steps:?}");
        assert_eq!(taken(&mut changes, 0), expect, "{steps:?}");
        assert!(changes.is_empty() && taken(&mut changes, 0).is_empty(), "{steps:?}");
    };
    check(&[JOINED], &[(7, JOINED)]);
    check(&[LEFT], &[(7, LEFT)]);
    check(&[JOINED, LEFT], &[]);
    check(&[LEFT, JOINED], &[]);
    check(&[JOINED, LEFT, JOINED], &[(7, JOINED)]);
    check(&[LEFT, JOINED, Some(Absence::Ended)], &[(7, Some(Absence::Ended))]);
}

#[test]
fn rooms_sessions_and_home_cores_are_kept_apart() {
    let mut changes = Changes::new(2, [1, 2]);
    let [one, other] = ["one", "other"].map(|name| Room::plain(name).unwrap());
    changes.set(0, &one, session(1), JOINED);
    changes.set(0, &one, session(2), JOINED);
    changes.set(1, &other, session(1), LEFT);
    assert_eq!(taken(&mut changes, 0), [(1, JOINED), (2, JOINED)]);
    assert!(!changes.is_empty());
    // A taken change is known to the home core, so its end must be reported.
    changes.set(0, &one, session(1), LEFT);
    assert_eq!(taken(&mut changes, 0), [(1, LEFT)]);
    assert_eq!(taken(&mut changes, 1), [(1, LEFT)]);
    assert!(changes.is_empty());
}
