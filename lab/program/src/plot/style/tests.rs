use std::collections::BTreeSet;

use super::*;

#[test]
fn lines_are_told_apart_with_colours_and_without() {
    const { assert!(STYLES >= 20) };
    let styles: Vec<(usize, Style)> = (0..STYLES).map(|number| (number, Style::of(number))).collect();
    let seen = |what: &dyn Fn(&(usize, Style)) -> String| {
        styles.iter().map(what).collect::<BTreeSet<String>>().len()
    };
    let dashes = |style: &Style| format!("{} {}", style.breadth, style.dashes);
    assert_eq!(seen(&|(_, style)| format!("{} {}", style.colour, dashes(style))), STYLES);
    assert_eq!(seen(&|(number, style)| format!("{} {}", number % SIGNS.len(), dashes(style))), STYLES);
    assert_eq!(SIGNS.iter().collect::<BTreeSet<_>>().len(), SIGNS.len());
    let judged = Style::of(0);
    let differs =
        |(_, style): &(usize, Style)| style.breadth < judged.breadth && style.colour != judged.colour;
    assert!(styles[1..].iter().all(differs));
}
