//! Charts as SVG. This module computes places, and the templates have the markup; the callers decide the content.
//!
//! Lines differ in colour, dashes and marks, so that they can be distinguished without colours ([`style`]). A server
//! has the same number in all plots of a page. The baseline, number 0, is the widest line and on top. Pointing at a
//! mark shows its values. Published figures are black: points, or dashed lines and bands with a letter. A published
//! figure that would compress the measured ones on a linear axis is only named in the legend, behind an arrow.
//!
//! Deliberately absent: scripts, and dark colours (the background is white, so it is readable on any page).

mod bars;
mod ruler;
mod style;

pub(crate) use self::bars::bars;
pub(crate) use self::ruler::Scale;
use self::ruler::{Ruler, short};
use self::style::{SIGNS, Style};
use crate::templates::render;
use minijinja::{Value, context};
use serde::Deserialize;

/// In pixels: left and right edge and height of the drawing area; the title is above it, the axis below.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 538.0;
const HEIGHT: f64 = 262.0;
const TITLE: f64 = 24.0;
const AXIS: f64 = 50.0;
/// Height of a line of the legend.
const ENTRY: f64 = 19.0;
/// Maximum number of signs on a line with more than twice as many points. Other lines have one at each point.
const SIGNS_OF_LINE: usize = 9;

/// Label of an axis, with the unit, and its scale.
pub(crate) type Axis = (String, Scale);

/// The line of one server.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The server's number, which selects colour, dashes and sign. The baseline's is 0.
    pub(crate) number: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Server, date, and the figure if the place alone doesn't show it.
    pub(crate) who: String,
    pub(crate) place: Place,
}

/// The position of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    Point(f64, f64),
    /// At a value of the horizontal axis, or between two, a range of the vertical axis.
    Span(f64, (f64, f64)),
    /// A range of the vertical axis over the whole width. Both ends may be the same.
    Band(f64, f64),
    Across(f64),
}

impl Place {
    fn across(self) -> Option<f64> {
        match self {
            Self::Point(across, _) | Self::Span(across, _) | Self::Across(across) => Some(across),
            Self::Band(..) => None,
        }
    }

    fn up(self) -> Option<(f64, f64)> {
        match self {
            Self::Point(_, up) => Some((up, up)),
            Self::Span(_, range) => Some(range),
            Self::Band(low, high) => Some((low, high)),
            Self::Across(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// The heading, possibly empty.
    pub(crate) title: String,
    pub(crate) across: Axis,
    pub(crate) up: Axis,
    pub(crate) lines: Vec<Line>,
    pub(crate) marks: Vec<Mark>,
    /// A threshold. Values beyond twice the threshold are drawn at the edge.
    pub(crate) limit: Option<f64>,
}

impl Plot {
    pub(crate) fn new(title: impl Into<String>, across: Axis, up: Axis, lines: Vec<Line>) -> Self {
        Self { title: title.into(), across, up, lines, marks: Vec::new(), limit: None }
    }
}

/// Draws a plot as SVG. Returns an empty text if there is nothing to draw.
pub(crate) fn svg(plot: &Plot) -> String {
    if plot.lines.iter().all(|line| line.points.is_empty()) {
        return String::new();
    }
    let mut who: Vec<&str> = plot.marks.iter().map(|mark| mark.who.as_str()).collect();
    who.dedup();
    let entries = plot.lines.len() + who.len() + usize::from(!who.is_empty());
    let title_height = if plot.title.is_empty() { 0.0 } else { TITLE };
    let (x, y) = rulers(plot, title_height + 8.0);
    let lines: Vec<Value> = plot.lines.iter().map(|line| line.values(&x, &y)).collect();
    let marks = plot.marks.iter().enumerate().map(|(nth, mark)| {
        let first = plot.marks.iter().position(|other| other.who == mark.who).unwrap_or(nth);
        let (across, up) = (mark.place.across(), mark.place.up());
        context! {
            who => mark.who, is_first => first == nth, sign => SIGNS[first % SIGNS.len()],
            is_held => across.is_none_or(|across| x.holds(across)) && up.is_none_or(|(low, _)| y.holds(low)),
            x => across.and_then(|across| x.at(across)),
            y => up.and_then(|(low, high)| Some((y.at(low)?, y.at(high)?))),
        }
    });
    let marks: Vec<Value> = marks.collect();
    let limit =
        plot.limit.filter(|limit| y.holds(*limit)).and_then(|limit| Some((y.at(limit)?, short(limit))));
    let values = context! {
        title_height, lines, marks, limit,
        title => plot.title, across => plot.across.0, up => plot.up.0,
        height => title_height + (HEIGHT + AXIS).max((entries + 1) as f64 * ENTRY),
        left => LEFT, right => RIGHT, bottom => y.pixels.start, top => y.pixels.end,
        x_labels => x.labels(), y_labels => y.labels(),
    };
    render("plot.xml", &values) + "\n"
}

impl Line {
    /// The values of this line in the template.
    fn values(&self, x: &Ruler, y: &Ruler) -> Value {
        let place = |(across, up): &(f64, f64)| Some(((x.at(*across)?, y.at(*up)?), (*across, *up)));
        let placed: Vec<_> = self.points.iter().filter_map(place).collect();
        let points: Vec<(f64, f64)> = placed.iter().map(|(at, _)| *at).collect();
        let every = if points.len() <= 2 * SIGNS_OF_LINE { 1 } else { points.len() / SIGNS_OF_LINE };
        // Lines with points at the same places have their signs at different places.
        let offset = if every > 1 { self.number % SIGNS.len() * every / SIGNS.len() } else { 0 };
        let signs = placed.iter().skip(offset).step_by(every);
        let sign = |((x, y), (across, up)): &(_, (f64, f64))| {
            (*x, *y, format!("{} at {}", short(*up), short(*across)))
        };
        let signs: Vec<(f64, f64, String)> = signs.map(sign).collect();
        context! { name => self.name, number => self.number, style => Style::of(self.number), points, signs }
    }
}

/// The axes of a plot whose upper edge is known.
fn rulers(plot: &Plot, top: f64) -> (Ruler, Ruler) {
    let measured = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        plot.lines.iter().flat_map(|line| line.points.iter().map(of)).collect()
    };
    let across: Vec<f64> = plot.marks.iter().filter_map(|mark| mark.place.across()).collect();
    let up: Vec<f64> =
        plot.marks.iter().filter_map(|mark| mark.place.up()).flat_map(|(low, high)| [low, high]).collect();
    let end = plot.limit.map(|limit| limit * 2.0);
    (
        Ruler::new(&plot.across.1, &measured(|point| point.0), &across, None, LEFT..RIGHT),
        Ruler::new(&plot.up.1, &measured(|point| point.1), &up, end, top + HEIGHT..top),
    )
}

#[cfg(test)]
mod tests;
