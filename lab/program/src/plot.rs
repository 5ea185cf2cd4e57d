//! Charts as SVG. This module decides their appearance; the callers decide their content.
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
use serde::Deserialize;

/// Width of a picture in pixels, and the left edge of the legend.
const WIDTH: u32 = 790;
const LEGEND: f64 = 550.0;
/// Left and right edge and height of the drawing area; the title is above it, the axis below.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 538.0;
const HEIGHT: f64 = 262.0;
const TITLE: f64 = 24.0;
const AXIS: f64 = 50.0;
/// Height of a line of the legend.
const ENTRY: f64 = 19.0;
/// Maximum number of signs on a line with more than twice as many points. Other lines have one at each point.
const SIGNS_OF_LINE: usize = 9;
/// Maximum number of characters of a name in the legend.
const NAME_MAX: usize = 30;

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

/// The start of a picture with a white background.
fn opened(label: &str, width: u32, height: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{label}\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#3c424a\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    )
}

/// Escapes text for SVG.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Draws a plot as SVG. Returns an empty text if there is nothing to draw.
pub(crate) fn svg(plot: &Plot) -> String {
    if plot.lines.iter().all(|line| line.points.is_empty()) {
        return String::new();
    }
    let mut who: Vec<&str> = plot.marks.iter().map(|mark| mark.who.as_str()).collect();
    who.dedup();
    let entries = plot.lines.len() + who.len() + usize::from(!who.is_empty());
    let title = if plot.title.is_empty() { 0.0 } else { TITLE };
    let height = title + (HEIGHT + AXIS).max((entries + 1) as f64 * ENTRY);
    let (x, y) = rulers(plot, title + 8.0);
    let label = escaped(&format!("{} over {}", plot.up.0, plot.across.0));
    let mut canvas =
        Canvas { out: opened(&label, WIDTH, height as usize), x, y, entry_at: title + 16.0, letters: b'a' };
    canvas.text((LEFT, 18.0), "font-size=\"14\" font-weight=\"bold\"", &plot.title);
    canvas.axes(plot);
    // The first line, the baseline's, is drawn over all others.
    let drawn = || plot.lines.iter().filter(|line| !line.points.is_empty());
    drawn().rev().for_each(|line| canvas.line(line));
    drawn().for_each(|line| canvas.line_entry(line));
    for line in plot.lines.iter().filter(|line| line.points.is_empty()) {
        canvas.entry(&format!("{}: no valid figures", line.name), 0.0, "");
    }
    if !plot.marks.is_empty() {
        canvas.entry("published:", 0.0, "");
    }
    for (nth, mark) in plot.marks.iter().enumerate() {
        // One sign and one legend entry for all figures of one publisher.
        let same = plot.marks.iter().position(|other| other.who == mark.who).unwrap_or(nth);
        canvas.mark(mark, same, same == nth);
    }
    canvas.out + "</svg>\n"
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

/// A picture in progress.
struct Canvas {
    out: String,
    x: Ruler,
    y: Ruler,
    /// Position of the next legend entry, and the letter of the next published line or band.
    entry_at: f64,
    letters: u8,
}

impl Canvas {
    fn text(&mut self, (x, y): (f64, f64), more: &str, text: &str) {
        if !text.is_empty() {
            self.out += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {more}>{}</text>\n", escaped(text));
        }
    }

    fn stroke(&mut self, points: &[(f64, f64)], colour: &str, breadth: u32, dashes: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.out += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{breadth}\" \
             stroke-dasharray=\"{dashes}\"/>\n",
            points.join(" ")
        );
    }

    /// A sign with this text as its tooltip.
    fn sign(&mut self, (x, y): (f64, f64), nth: usize, radius: f64, colour: &str, says: &str) {
        self.out += &format!(
            "<path d=\"{}\" transform=\"translate({x:.1},{y:.1}) scale({radius})\" fill=\"{colour}\"><title>{}</title></path>\n",
            SIGNS[nth % SIGNS.len()],
            escaped(says)
        );
    }

    fn axes(&mut self, plot: &Plot) {
        let (bottom, top) = (self.y.pixels.start, self.y.pixels.end);
        let labels = |ruler: &Ruler| -> Vec<(f64, String)> {
            ruler.labels().map(|(at, label)| (at, label.to_owned())).collect()
        };
        for (at, label) in labels(&self.x) {
            self.stroke(&[(at, bottom), (at, top)], "#e0e4e8", 1, "none");
            self.text((at, bottom + 16.0), "text-anchor=\"middle\" font-size=\"12\"", &label);
        }
        for (at, label) in labels(&self.y) {
            self.stroke(&[(LEFT, at), (RIGHT, at)], "#e0e4e8", 1, "none");
            self.text((LEFT - 6.0, at + 4.0), "text-anchor=\"end\" font-size=\"12\"", &label);
        }
        self.stroke(&[(LEFT, top), (LEFT, bottom), (RIGHT, bottom)], "#a0a8b0", 1, "none");
        let middle = f64::midpoint(bottom, top);
        self.text((f64::midpoint(LEFT, RIGHT), bottom + 34.0), "text-anchor=\"middle\"", &plot.across.0);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 14 {middle})\"");
        self.text((14.0, middle), &turned, &plot.up.0);
        if let Some(limit) = plot.limit.filter(|limit| self.y.holds(*limit))
            && let Some(at) = self.y.at(limit)
        {
            self.stroke(&[(LEFT, at), (RIGHT, at)], "#cc0000", 1, "6 4");
            let style = "text-anchor=\"end\" font-size=\"12\" fill=\"#cc0000\"";
            self.text((RIGHT, at - 4.0), style, &short(limit));
        }
    }

    fn line(&mut self, line: &Line) {
        let style = Style::of(line.number);
        let place = |(x, y): &(f64, f64)| Some(((self.x.at(*x)?, self.y.at(*y)?), (*x, *y)));
        let points: Vec<((f64, f64), (f64, f64))> = line.points.iter().filter_map(place).collect();
        let places: Vec<(f64, f64)> = points.iter().map(|(at, _)| *at).collect();
        self.stroke(&places, style.colour, style.breadth, style.dashes);
        let every = if points.len() <= 2 * SIGNS_OF_LINE { 1 } else { points.len() / SIGNS_OF_LINE };
        // Lines with points at the same places have their signs at different places.
        let offset = if every > 1 { line.number % SIGNS.len() * every / SIGNS.len() } else { 0 };
        for (at, (across, up)) in points.iter().skip(offset).step_by(every) {
            let says = format!("{}: {} at {}", line.name, short(*up), short(*across));
            self.sign(*at, line.number, style.radius, style.colour, &says);
        }
    }

    fn mark(&mut self, mark: &Mark, nth: usize, is_first: bool) {
        let (place, who) = (mark.place, mark.who.as_str());
        let is_held = place.across().is_none_or(|across| self.x.holds(across))
            && place.up().is_none_or(|(low, _)| self.y.holds(low));
        let x = place.across().and_then(|across| self.x.at(across));
        let y = place.up().and_then(|(low, high)| Some((self.y.at(low)?, self.y.at(high)?)));
        let (bottom, top) = (self.y.pixels.start, self.y.pixels.end);
        match (x, y) {
            _ if !is_held => return self.entry(&format!("→ {who}"), 0.0, "fill=\"#000000\""),
            (Some(x), Some((low, high))) => {
                if low != high {
                    self.stroke(&[(x, low), (x, high)], "#000000", 3, "none");
                    self.sign((x, high), nth, 4.0, "#000000", who);
                }
                self.sign((x, low), nth, 5.0, "#000000", who);
                if is_first {
                    self.sign((LEGEND + 28.0, self.entry_at), nth, 5.0, "#000000", who);
                    self.entry(who, 56.0, "fill=\"#000000\"");
                }
                return;
            }
            (None, Some((low, high))) => {
                let (width, height) = (RIGHT - LEFT, low - high);
                self.out += &format!(
                    "<rect x=\"{LEFT}\" y=\"{high:.1}\" width=\"{width}\" height=\"{height:.1}\" fill-opacity=\"0.08\"/>\n"
                );
                self.stroke(&[(LEFT, low), (RIGHT, low)], "#000000", 1, "5 4");
                self.stroke(&[(LEFT, high), (RIGHT, high)], "#000000", 1, "5 4");
            }
            (Some(x), None) => self.stroke(&[(x, bottom), (x, top)], "#000000", 1, "5 4"),
            (None, None) => return,
        }
        let letter = char::from(self.letters);
        self.letters = if letter == 'z' { b'a' } else { self.letters + 1 };
        let at = (x.unwrap_or(LEFT) + 4.0, y.map_or(top + 12.0, |(_, high)| high - 3.0));
        self.text(at, "font-size=\"12\" fill=\"#000000\"", &letter.to_string());
        self.entry(&format!("{letter}  {who}"), 0.0, "fill=\"#000000\"");
    }

    fn line_entry(&mut self, line: &Line) {
        let (style, at) = (Style::of(line.number), self.entry_at);
        self.stroke(&[(LEGEND + 8.0, at), (LEGEND + 48.0, at)], style.colour, style.breadth, style.dashes);
        self.sign((LEGEND + 28.0, at), line.number, style.radius, style.colour, &line.name);
        // All names are dark, because some line colours are too light for text.
        self.entry(&line.name, 56.0, if line.number == 0 { "font-weight=\"bold\"" } else { "" });
    }

    /// Adds an entry to the legend.
    fn entry(&mut self, text: &str, left: f64, more: &str) {
        let mut text = text.to_owned();
        if text.chars().count() > NAME_MAX {
            text = text.chars().take(NAME_MAX - 1).chain(['…']).collect();
        }
        let at = (LEGEND + left.max(8.0), self.entry_at + 4.0);
        self.text(at, &format!("font-size=\"12\" {more}"), &text);
        self.entry_at += ENTRY;
    }
}

#[cfg(test)]
mod tests;
