use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn line(positions: &[Position<'_>]) -> String {
    let mut out = Vec::new();
    write_position_id(&mut out, positions.iter().cloned());
    String::from_utf8(out).unwrap()
}

fn at(key: &str, epoch: u64, offset: u64) -> Position<'_> {
    Position { key: key.into(), epoch, offset }
}

#[test]
fn ids_are_written() {
    assert_eq!(line(&[]), "");
    assert_eq!(line(&[at("a/b", 0x3f2a_9c01, 27)]), "id: a/b!3f2a9c01!1b\n");
    assert_eq!(
        line(&[at("a", 1, 0), at("b=~@:+,-._", 0xffff_ffff, u64::MAX)]),
        "id: a!1!0;b=~@:+,-._!ffffffff!ffffffffffffffff\n"
    );
    // Invalid keys are left out.
    for key in ["", &"k".repeat(KEY_BYTES_MAX + 1)] {
        assert_eq!(line(&[at(key, 1, 1)]), "", "{key:?}");
        assert_eq!(line(&[at("x", 1, 1), at(key, 1, 1), at("y", 1, 1)]), "id: x!1!1;y!1!1\n", "{key:?}");
    }
}

#[test]
fn keys_are_percent_encoded() {
    let check = |key: &str, id: &str| {
        assert_eq!(line(&[at("x", 1, 1), at(key, 2, 3)]), format!("id: x!1!1;{id}!2!3\n"));
        let id = format!("x!1!1;{id}!2!3");
        assert_eq!(Positions::parse(&id).of(key), Some(at(key, 2, 3)), "{id}");
    };
    check("a!b;c", "a%21b%3Bc");
    check("S\u{e3}o Paulo/50%", "S%C3%A3o%20Paulo/50%25");
    check("a\r\nid: b", "a%0D%0Aid:%20b");
    check("%41", "%2541");
    check("o'b*{}\"<\\>", "o%27b%2A%7B%7D%22%3C%5C%3E");
    let longest = "\u{e4}".repeat(KEY_BYTES_MAX / 2);
    check(&longest, &"%C3%A4".repeat(KEY_BYTES_MAX / 2));
    // Clients may encode more or less than the server.
    let positions = Positions::parse("a%2Fb!1!2;o'b!*!3!4");
    assert_eq!(
        (positions.of("a/b"), positions.of("o'b!*")),
        (Some(at("a/b", 1, 2)), Some(at("o'b!*", 3, 4)))
    );
}

#[test]
fn ids_are_read() {
    fn check(id: &str, expect: &[Position<'_>]) {
        assert_eq!(Positions::parse(id).iter().collect::<Vec<_>>(), expect, "{id:?}");
    }
    check("a/b!3f2a9c01!1b", &[at("a/b", 0x3f2a_9c01, 27)]);
    check("a!0!0;b!FFFFFFFF!000001", &[at("a", 0, 0), at("b", 0xffff_ffff, 1)]);
    for garbage in [
        "",
        ";",
        "!",
        "!!",
        "a",
        "a!1",
        "a!1!",
        "a!!1",
        "!1!1",
        "a!1!1;",
        ";a!1!1",
        "a!1!1;;b!1!1",
        "a!+1!1",
        "a!1!-1",
        "a!g!1",
        "a!1ffffffffffffffff!1",
        "a!1!1ffffffffffffffff",
        "a!1!1;b",
        "a b!1!1",
        "\u{e4}!1!1",
        "a!1!1 ",
        "42",
        "a!1!1\n",
        "a%!1!1",
        "a%2!1!1",
        "a%zz!1!1",
        "a%ff!1!1",
    ] {
        check(garbage, &[]);
    }
    let positions = Positions::parse("a!1!2;b!3!4;a!5!6");
    assert_eq!(
        (positions.of("a"), positions.of("b"), positions.of("c")),
        (Some(at("a", 1, 2)), Some(at("b", 3, 4)), None)
    );
}

#[test]
fn ids_are_bounded() {
    // The limit on the number keeps the first positions.
    let keys: Vec<String> = (0..1000).map(|number| format!("k{number}")).collect();
    let positions: Vec<Position<'_>> = keys.iter().map(|key| at(key, 1, 1)).collect();
    let id = line(&positions);
    let id = id.strip_prefix("id: ").unwrap().trim_end();
    assert_eq!(Positions::parse(id).iter().collect::<Vec<_>>(), positions[..POSITIONS_MAX]);
    assert_eq!(Positions::parse(&format!("{id};x!1!1")).iter().count(), 0);
    // The limit on the size: a shorter entry may still fit.
    let long = "k".repeat(KEY_BYTES_MAX);
    let mut positions = vec![at(&long, 0xffff_ffff, u64::MAX); 16];
    positions.push(at("short", 1, 1));
    let id = line(&positions);
    let id = id.strip_prefix("id: ").unwrap().trim_end();
    assert!(id.len() <= ID_BYTES_MAX && id.ends_with(";short!1!1"), "{}", id.len());
    assert_eq!(Positions::parse(id).iter().count(), 15);
    assert_eq!(Positions::parse(&"a!1!1;".repeat(10_000)).iter().count(), 0);
    let one = format!("{long}!1!1");
    assert_eq!(Positions::parse(&[&*one; 15].join(";")).iter().count(), 15);
    assert_eq!(Positions::parse(&[&*one; 16].join(";")).iter().count(), 0);
    assert_eq!(Positions::parse(&format!("k{one}")).iter().count(), 0);
}

/// The id may arrive separately, right before a shared event.
#[test]
fn an_id_joins_a_shared_event() {
    let mut stream = line(&[at("a", 1, 2), at("b", 3, 4)]).into_bytes();
    write_event(&mut stream, &Event { event: Some("snapshot"), data: "{}", ..Event::default() });
    let id = "a!1!2;b!3!4";
    assert_eq!(decode(1000, [&stream[..]]), (vec![seen("snapshot", "{}", id)], None, id.to_owned()));
}

proptest! {
    #[test]
    fn written_ids_are_read(list in vec(("[A-Za-z0-9._~@:=+,/-]{1,20}|\\PC{1,20}", any::<u64>(), any::<u64>()), 1..10)) {
        let positions: Vec<Position<'_>> = list.iter().map(|(key, epoch, offset)| at(key, *epoch, *offset)).collect();
        let line = line(&positions);
        let id = line.strip_prefix("id: ").unwrap().strip_suffix('\n').unwrap();
        prop_assert_eq!(Positions::parse(id).iter().collect::<Vec<_>>(), positions);
    }

    #[test]
    fn arbitrary_input_is_rejected_or_valid(id in "[ab!;%0-9a-f]{0,30}") {
        let positions: Vec<Position<'_>> = Positions::parse(&id).iter().collect();
        if !positions.is_empty() {
            prop_assert_eq!(positions.len(), id.split(';').count());
        }
    }
}
