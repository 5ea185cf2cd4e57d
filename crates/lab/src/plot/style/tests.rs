use std::collections::BTreeSet;

use super::*;

#[test]
fn lines_are_told_apart_with_colours_and_without() {
    const { assert!(STYLES >= 20) };
    let styles: Vec<Style> = (0..STYLES).map(Style::of).collect();
    let seen = |what: &dyn Fn(&Style) -> String| styles.iter().map(what).collect::<BTreeSet<String>>().len();
    let dashes = |style: &Style| format!("{} {:?}", style.breadth, style.dashes);
    assert_eq!(seen(&|style| format!("{:?} {}", style.colour, dashes(style))), STYLES);
    assert_eq!(seen(&|style| format!("{:?} {}", sign(style.number, SIGN), dashes(style))), STYLES);
    let judged = Style::of(0);
    assert!(styles[1..].iter().all(|style| style.breadth < judged.breadth && style.colour != judged.colour));
}

#[test]
fn dashes_go_around_corners() {
    let check = |line: &[(i32, i32)], dashes: &[f64], expect: &[&[(i32, i32)]]| {
        assert_eq!(pieces(line, dashes), expect, "{line:?} {dashes:?}");
    };
    check(&[(0, 0), (10, 0)], &[], &[&[(0, 0), (10, 0)]]);
    check(&[(0, 0), (10, 0)], &[4.0, 2.0], &[&[(0, 0), (4, 0)], &[(6, 0), (10, 0)]]);
    check(&[(0, 0), (3, 0), (3, 9)], &[5.0, 2.0], &[&[(0, 0), (3, 0), (3, 2)], &[(3, 4), (3, 9)]]);
    check(&[(0, 0), (0, 5), (0, 20)], &[2.0, 8.0], &[&[(0, 0), (0, 2)], &[(0, 10), (0, 12)]]);
    check(&[(7, 7)], &[2.0, 8.0], &[]);
    check(&[], &[2.0, 8.0], &[]);
}
