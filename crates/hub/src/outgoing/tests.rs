use super::*;

fn check(changes: &[(&str, bool)], expect: &[(&str, bool)]) {
    let mut outbound: Outbound<()> = Outbound::new(2, [1, 2]);
    for (room, has_members) in changes {
        outbound.set_level(1, &Room::plain(room).unwrap(), *has_members);
    }
    assert_eq!(outbound.to(1).len(), expect.len(), "{changes:?}");
    let mut got = Vec::new();
    while let Some(Dispatch::Interest { room, has_members }) = outbound.to(1).pop_front() {
        got.push((room.name().to_owned(), has_members));
    }
    let expect: Vec<_> =
        expect.iter().map(|(room, has_members)| ((*room).to_owned(), *has_members)).collect();
    assert_eq!(got, expect, "{changes:?}");
    assert!(outbound.to(1).is_empty() && outbound.to(1).numbers.is_empty());
}

#[test]
fn an_undone_change_isnt_sent() {
    check(&[("a", true)], &[("a", true)]);
    check(&[("a", true), ("a", false)], &[]);
    check(&[("a", true), ("a", false), ("a", true)], &[("a", true)]);
    check(&[("a", true), ("b", true), ("c", true), ("a", false)], &[("c", true), ("b", true)]);
    check(
        &[("a", true), ("b", true), ("c", true), ("a", false), ("c", false), ("a", true)],
        &[("b", true), ("a", true)],
    );
    let loops: Vec<_> = (0..1_000).flat_map(|_| [("a", true), ("a", false)]).collect();
    check(&loops, &[]);
}

#[test]
fn interest_is_resent_after_a_refusal() {
    let room = Room::plain("a").unwrap();
    for (before, after, expect) in [
        (&[][..], &[][..], false),
        (&[false][..], &[][..], false),
        (&[][..], &[true][..], true),
        (&[true, false][..], &[true, false, true][..], true),
    ] {
        let mut outbound: Outbound<()> = Outbound::new(2, [1, 2]);
        before.iter().for_each(|has_members| outbound.set_level(1, &room, *has_members));
        outbound.resend_interest(1, &room);
        after.iter().for_each(|has_members| outbound.set_level(1, &room, *has_members));
        let told = outbound.to(1).pop_front();
        let Some(Dispatch::Interest { has_members, .. }) = told else { panic!("{before:?} {after:?}") };
        assert_eq!(has_members, expect, "{before:?} {after:?}");
        assert!(outbound.to(1).is_empty());
    }
}

#[test]
fn a_message_that_couldnt_be_passed_on_stays_first() {
    let mut outbound: Outbound<()> = Outbound::new(2, [1, 2]);
    let [a, b] = ["a", "b"].map(|name| Room::plain(name).unwrap());
    outbound.push(1, Dispatch::Leave(a.clone().into()));
    outbound.set_level(1, &a, true);
    outbound.set_level(1, &b, true);
    let first = outbound.to(1).pop_front().unwrap();
    outbound.to(1).put_back(first);
    assert_eq!(outbound.to(1).len(), 3);
    outbound.set_level(1, &a, false);
    for expect in [("a", false), ("b", true)] {
        let Some(Dispatch::Interest { room, has_members }) = outbound.to(1).pop_front() else { panic!() };
        assert_eq!((room.name(), has_members), expect);
    }
    let bytes = outbound.to(1).weight_bytes();
    let leave = outbound.to(1).pop_front().unwrap();
    assert_eq!((outbound.to(1).weight_bytes(), bytes), (0, leave.weight_bytes()));
    outbound.to(1).put_back(leave);
    assert_eq!(outbound.to(1).weight_bytes(), bytes);
}
