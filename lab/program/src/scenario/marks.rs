//! Published figures in plots with the same axes.

use super::SCENARIOS;
use super::declared::{Over, Published, PublishedMark};
use crate::plot::Mark;

/// The published figures of a scenario for a plot of a case, or of cases with a common name.
pub(super) fn marks(scenario: &str, case: &str, over: Over) -> Vec<Mark> {
    let published =
        SCENARIOS.iter().filter(|known| known.name == scenario).flat_map(|known| &known.published);
    let marks = published.flat_map(|one| one.marks.iter().map(move |mark| (one, mark)));
    let drawn = marks.filter(|(_, mark)| mark.over == over && mark.is_of(case));
    let label = |(one, mark): (&Published, &PublishedMark)| {
        let figure = mark.figure.as_ref().unwrap_or(&one.figure);
        let who = if figure.is_empty() { one.who.clone() } else { format!("{}, {figure}", one.who) };
        Mark { who, place: mark.place }
    };
    drawn.map(label).collect()
}

#[cfg(test)]
mod tests;
