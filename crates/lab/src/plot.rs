//! Charts as SVG, by the library `plotters`. Here it is decided what a chart looks like; what is drawn, and what it means, is the
//! callers'.
//!
//! Lines are told apart by colour and dashes, and by the signs on them, so also without colours ([`style`]); whoever has a number
//! keeps these in all plots of a page. The judged server, number 0, is the broadest and on top. Published figures are black: points, or dashed lines and bands with a letter. One so far beyond what was measured
//! that on an even axis nothing would be seen of that is only named in the legend, behind an arrow.
//!
//! Deliberately absent: scripts, and dark colours (the background is white, so it can be read on any page).

mod bars;
mod ruler;
mod style;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use self::bars::bars;
pub(crate) use self::ruler::Scale;
use self::ruler::{Places, Ruler, short};
use self::style::{SIGNS, Style, sign};
use crate::table::escaped;

/// A picture's width, pixels, and that of its legend.
const WIDTH: u32 = 790;
const LEGEND: u32 = 240;
/// Height of what is drawn, of a plot's title, and of a line of the legend.
const HEIGHT: u32 = 270;
const TITLE: u32 = 24;
const ENTRY: i32 = 19;
/// Room for the labels of an axis.
const LABELS_ACROSS: u32 = 42;
const LABELS_UP: u32 = 62;
/// Signs on a line that has more than twice as many points; else each has one.
const SIGNS_OF_LINE: usize = 9;
/// Characters of a name in the legend.
const NAME_MAX: usize = 30;
/// Where a line in the legend begins and ends, and where its name begins.
const SAMPLE: (i32, i32) = (8, 48);
const NAME: i32 = 56;

const TEXT: RGBColor = RGBColor(60, 66, 74);
const GRID: RGBColor = RGBColor(224, 228, 232);
const LIMIT: RGBColor = RGBColor(204, 0, 0);

/// An axis.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What is to be read at it, with the unit.
    pub(crate) name: String,
    /// How values lie on it.
    pub(crate) scale: Scale,
}

impl Axis {
    pub(crate) fn new(name: impl Into<String>, scale: Scale) -> Self {
        Self { name: name.into(), scale }
    }
}

/// What is drawn of one server.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Its number, which chooses colour, dashes and sign; the judged server's is 0.
    pub(crate) number: usize,
    /// What is drawn, in order.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Of whom, when, and what where the place alone doesn't tell.
    pub(crate) who: String,
    /// Where it is.
    pub(crate) place: Place,
}

/// Where a published figure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// At a point.
    Point(f64, f64),
    /// Above a value across, from one value up to another.
    Span(f64, (f64, f64)),
    /// From one value up to another, wherever across. Both may be the same.
    Band(f64, f64),
    /// At a value across.
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

/// One plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// What stands above it; it may be empty.
    pub(crate) title: String,
    /// Its axes.
    pub(crate) across: Axis,
    pub(crate) up: Axis,
    /// What was measured.
    pub(crate) lines: Vec<Line>,
    /// What was published.
    pub(crate) marks: Vec<Mark>,
    /// Where something is decided. What is beyond twice that isn't told apart.
    pub(crate) limit: Option<f64>,
}

impl Plot {
    /// One of what was measured.
    pub(crate) fn new(title: impl Into<String>, across: Axis, up: Axis, lines: Vec<Line>) -> Self {
        Self { title: title.into(), across, up, lines, marks: Vec::new(), limit: None }
    }

    fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    fn full_height(&self) -> u32 {
        let mut who: Vec<&str> = self.marks.iter().map(|mark| mark.who.as_str()).collect();
        who.dedup();
        let entries = self.lines.len() + who.len() + usize::from(!who.is_empty());
        let legend = (entries as u32 + 1) * ENTRY as u32;
        let title = if self.title.is_empty() { 0 } else { TITLE };
        title + (HEIGHT + LABELS_ACROSS).max(legend)
    }
}

type Refused = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Places, Places>>;

/// A plot as SVG. Empty where there is nothing to draw.
pub(crate) fn svg(plot: &Plot) -> String {
    if plot.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, plot.full_height())).into_drawing_area();
        // Writing to a string doesn't fail.
        let _ = draw_titled(&root, plot).and_then(|()| root.present());
    }
    let label = escaped(&format!("{} over {}", plot.up.name, plot.across.name));
    text.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1)
}

fn draw_titled(root: &Area<'_>, plot: &Plot) -> Result<(), Refused> {
    root.fill(&WHITE)?;
    let title = if plot.title.is_empty() { 0 } else { TITLE };
    let (above, area) = root.split_vertically(title);
    if title > 0 {
        let style = font(14).style(FontStyle::Bold).color(&TEXT);
        above.draw_text(&plot.title, &style, (LABELS_UP as i32, 6))?;
    }
    let (area, legend) = area.split_horizontally(WIDTH - LEGEND);
    let (area, _) = area.split_vertically(HEIGHT + LABELS_ACROSS);
    draw(root, &area, &legend, plot)
}

/// So many pixels high; the library's SVG divides by the share of a line that it takes letters to be.
fn font(size: u32) -> FontDesc<'static> {
    ("sans-serif", f64::from(size) * 1.24).into_font()
}

fn draw(root: &Area<'_>, area: &Area<'_>, legend: &Area<'_>, plot: &Plot) -> Result<(), Refused> {
    let measured = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        plot.lines.iter().flat_map(|line| line.points.iter().map(of)).collect()
    };
    let across: Vec<f64> = plot.marks.iter().filter_map(|mark| mark.place.across()).collect();
    let up: Vec<f64> =
        plot.marks.iter().filter_map(|mark| mark.place.up()).flat_map(|(low, high)| [low, high]).collect();
    let x = Ruler::new(&plot.across.scale, &measured(|point| point.0), &across, None);
    let y = Ruler::new(&plot.up.scale, &measured(|point| point.1), &up, plot.limit.map(|limit| limit * 2.0));
    let mut chart = ChartBuilder::on(area)
        .margin_top(8)
        .margin_right(12)
        .margin_left(4)
        .x_label_area_size(LABELS_ACROSS)
        .y_label_area_size(LABELS_UP)
        .build_cartesian_2d(x.coordinate(), y.coordinate())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(RGBColor(160, 168, 176))
        .label_style(font(12).color(&TEXT))
        .axis_desc_style(font(13).color(&TEXT))
        .x_desc(plot.across.name.as_str())
        .y_desc(plot.up.name.as_str())
        .draw()?;
    let mut entries = Entries { area: legend, nth: 0 };
    if let Some(limit) = plot.limit.filter(|limit| y.holds(*limit)) {
        let (left, right, at) = (x.range.start, x.range.end, y.place(limit));
        chart.draw_series(DashedLineSeries::new([(left, at), (right, at)], 6, 4, LIMIT.stroke_width(1)))?;
        let style = font(12).color(&LIMIT).pos(Pos::new(HPos::Right, VPos::Bottom));
        chart.draw_series([Text::new(short(limit), (right, at), style)])?;
    }
    draw_lines(root, &chart, (&x, &y), plot, &mut entries)?;
    draw_marks(&mut chart, (&x, &y), plot, &mut entries)
}

fn draw_lines(
    root: &Area<'_>,
    chart: &Chart<'_, '_>,
    (x, y): (&Ruler, &Ruler),
    plot: &Plot,
    entries: &mut Entries<'_, '_>,
) -> Result<(), Refused> {
    let drawn = || plot.lines.iter().filter(|line| !line.points.is_empty());
    // The judged server's, the first, over all others.
    for line in drawn().rev() {
        let style = Style::of(line.number);
        let is_drawn = |point: &&(f64, f64)| y.scale != Scale::Log || point.1 > 0.0;
        let is_there = |point: &&(f64, f64)| x.scale != Scale::Log || point.0 > 0.0;
        let points: Vec<(i32, i32)> = (line.points.iter().filter(is_drawn).filter(is_there))
            .map(|point| chart.backend_coord(&(x.within(point.0), y.within(point.1))))
            .collect();
        stroke(root, &points, style)?;
        let every = if points.len() <= 2 * SIGNS_OF_LINE { 1 } else { points.len() / SIGNS_OF_LINE };
        // Not all at the same places, where all have points.
        let offset = if every > 1 { line.number % SIGNS * every / SIGNS } else { 0 };
        for at in points.iter().skip(offset).step_by(every) {
            root.draw(&(EmptyElement::at(*at) + Polygon::new(style.sign(), style.colour.filled())))?;
        }
    }
    drawn().try_for_each(|line| entries.line(&line.name, Style::of(line.number)))
}

/// Draws a line through these places of `area`, pixels.
fn stroke(area: &Area<'_>, points: &[(i32, i32)], style: Style) -> Result<(), Refused> {
    style.pieces(points).into_iter().try_for_each(|piece| area.draw(&PathElement::new(piece, style.stroke())))
}

fn draw_marks(
    chart: &mut Chart<'_, '_>,
    (x, y): (&Ruler, &Ruler),
    plot: &Plot,
    entries: &mut Entries<'_, '_>,
) -> Result<(), Refused> {
    let (left, right) = (x.range.start, x.range.end);
    let (bottom, top) = (y.range.start, y.range.end);
    if !plot.marks.is_empty() {
        entries.says("published:", TEXT)?;
    }
    let mut letters = ('a'..='z').cycle();
    let mut known: Vec<&str> = Vec::new();
    for mark in &plot.marks {
        // One sign, and one entry, for all figures of one.
        let before = known.iter().position(|who| *who == mark.who);
        let nth = before.unwrap_or(known.len());
        if before.is_none() {
            known.push(&mark.who);
        }
        let holds = mark.place.across().is_none_or(|across| x.holds(across))
            && mark.place.up().is_none_or(|(low, _)| y.holds(low));
        if !holds {
            entries.says(&format!("→ {}", mark.who), BLACK)?;
            continue;
        }
        let thin = BLACK.stroke_width(1);
        match mark.place {
            Place::Point(across, up) => {
                let at = (x.place(across), y.place(up));
                let shape = Polygon::new(sign(nth, 5.0), BLACK.mix(0.85).filled());
                chart.draw_series([EmptyElement::at(at) + shape])?;
                if before.is_none() {
                    entries.sign(&mark.who, nth)?;
                }
                continue;
            }
            Place::Span(across, (low, high)) => {
                let (at, low, high) = (x.place(across), y.place(low), y.within(high));
                chart.draw_series(LineSeries::new([(at, low), (at, high)], BLACK.stroke_width(3)))?;
                let shape = |up| EmptyElement::at((at, up)) + Polygon::new(sign(nth, 4.0), BLACK.filled());
                chart.draw_series([shape(low), shape(high)])?;
                if before.is_none() {
                    entries.sign(&mark.who, nth)?;
                }
                continue;
            }
            Place::Band(low, high) => {
                let (low, high) = (y.place(low), y.within(high));
                chart
                    .draw_series([Rectangle::new([(left, low), (right, high)], BLACK.mix(0.08).filled())])?;
                for up in [low, high] {
                    chart.draw_series(DashedLineSeries::new([(left, up), (right, up)], 5, 4, thin))?;
                }
                let letter = letters.next().unwrap_or('a');
                let style = font(12).color(&BLACK).pos(Pos::new(HPos::Left, VPos::Bottom));
                chart.draw_series([
                    EmptyElement::at((left, high)) + Text::new(letter.to_string(), (4, -1), style)
                ])?;
                entries.says(&format!("{letter}  {}", mark.who), BLACK)?;
            }
            Place::Across(across) => {
                let at = x.place(across);
                chart.draw_series(DashedLineSeries::new([(at, bottom), (at, top)], 5, 4, thin))?;
                let letter = letters.next().unwrap_or('a');
                let style = font(12).color(&BLACK).pos(Pos::new(HPos::Left, VPos::Top));
                chart.draw_series([
                    EmptyElement::at((at, top)) + Text::new(letter.to_string(), (3, 1), style)
                ])?;
                entries.says(&format!("{letter}  {}", mark.who), BLACK)?;
            }
        }
    }
    Ok(())
}

/// The legend, entry by entry.
struct Entries<'a, 'b> {
    area: &'a Area<'b>,
    nth: i32,
}

impl Entries<'_, '_> {
    fn line(&mut self, name: &str, style: Style) -> Result<(), Refused> {
        let middle = 16 + ENTRY * self.nth;
        stroke(self.area, &[(SAMPLE.0, middle), (SAMPLE.1, middle)], style)?;
        let shape = Polygon::new(style.sign(), style.colour.filled());
        self.area.draw(&(EmptyElement::at((i32::midpoint(SAMPLE.0, SAMPLE.1), middle)) + shape))?;
        // In a dark colour all of them: some of the lines' are too light to be read.
        self.text(name, NAME, TEXT, if style.is_judged() { FontStyle::Bold } else { FontStyle::Normal })
    }

    fn sign(&mut self, who: &str, nth: usize) -> Result<(), Refused> {
        let shape = Polygon::new(sign(nth, 5.0), BLACK.mix(0.85).filled());
        let middle = (i32::midpoint(SAMPLE.0, SAMPLE.1), 16 + ENTRY * self.nth);
        self.area.draw(&(EmptyElement::at(middle) + shape))?;
        self.text(who, NAME, BLACK, FontStyle::Normal)
    }

    fn says(&mut self, what: &str, colour: RGBColor) -> Result<(), Refused> {
        self.text(what, SAMPLE.0, colour, FontStyle::Normal)
    }

    fn text(&mut self, text: &str, left: i32, colour: RGBColor, weight: FontStyle) -> Result<(), Refused> {
        let mut text = text.to_owned();
        if text.chars().count() > NAME_MAX {
            text = text.chars().take(NAME_MAX - 1).chain(['…']).collect();
        }
        let style = font(12).style(weight).color(&colour).pos(Pos::new(HPos::Left, VPos::Center));
        self.area.draw_text(&text, &style, (left, 16 + ENTRY * self.nth))?;
        self.nth += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
