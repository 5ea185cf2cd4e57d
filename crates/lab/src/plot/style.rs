//! What a line looks like, by its number: colour, dashes and sign.
//!
//! Number 0, the judged server, has a colour of its own, and is broader and never dashed. Of the others, those with the same
//! dashes differ in colour and in sign, so that all of `STYLES` are told apart by colour and dashes, and without colours by
//! dashes and signs. The colours are those of Okabe and Ito (Color Universal Design, 2008) that are dark enough on white, without
//! black, which published figures have, and Tol's wine: no two are closer than 16 (ΔE, CIE 1976) to whoever lacks one kind
//! of cone (by the matrices of Machado, Oliveira and Fernandes, 2009).

use plotters::prelude::*;

/// The judged server's, and the others' in turn.
const JUDGED: RGBColor = RGBColor(0, 114, 178);
const COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(136, 34, 85),
];
/// Drawn and left out in turn, pixels, when all colours are used: none, dashes, dots, both.
const DASHES: [&[f64]; 4] = [&[], &[9.0, 4.0], &[2.0, 4.0], &[12.0, 4.0, 2.0, 4.0]];
/// Different signs.
pub(super) const SIGNS: usize = 8;
/// Numbers whose lines can be told apart; then they repeat.
#[cfg(test)]
const STYLES: usize = 1 + COLOURS.len() * DASHES.len();

/// How broad a line is, pixels.
const BREADTH: u32 = 2;
const BREADTH_OF_JUDGED: u32 = 4;
/// How large a sign is, pixels.
const SIGN: f64 = 4.0;
const SIGN_OF_JUDGED: f64 = 5.0;

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) colour: RGBColor,
    dashes: &'static [f64],
    breadth: u32,
    number: usize,
}

impl Style {
    /// Of the line with this number.
    pub(super) fn of(number: usize) -> Self {
        let Some(nth) = number.checked_sub(1) else {
            return Self { colour: JUDGED, dashes: DASHES[0], breadth: BREADTH_OF_JUDGED, number };
        };
        Self {
            colour: COLOURS[nth % COLOURS.len()],
            dashes: DASHES[nth / COLOURS.len() % DASHES.len()],
            breadth: BREADTH,
            number,
        }
    }

    pub(super) fn is_judged(&self) -> bool {
        self.number == 0
    }

    pub(super) fn stroke(&self) -> ShapeStyle {
        self.colour.stroke_width(self.breadth)
    }

    /// The pieces of a line that are drawn.
    pub(super) fn pieces(&self, line: &[(i32, i32)]) -> Vec<Vec<(i32, i32)>> {
        pieces(line, self.dashes)
    }

    /// Its sign, around its place, in pixels.
    pub(super) fn sign(&self) -> Vec<(i32, i32)> {
        sign(self.number, if self.is_judged() { SIGN_OF_JUDGED } else { SIGN })
    }
}

/// What is drawn of a line, where so much of it is drawn and left out in turn; all, where nothing is said.
fn pieces(line: &[(i32, i32)], dashes: &[f64]) -> Vec<Vec<(i32, i32)>> {
    if dashes.is_empty() {
        return vec![line.to_vec()];
    }
    let mut pieces: Vec<Vec<(i32, i32)>> = line.first().map(|first| vec![*first]).into_iter().collect();
    let (mut nth, mut left) = (0, dashes[0]);
    let is_drawn = |nth: usize| nth.is_multiple_of(2);
    for ends in line.windows(2) {
        let (from, to) = (ends[0], ends[1]);
        let (across, up) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
        let length = across.hypot(up);
        let mut walked = 0.0;
        while length - walked > left {
            walked += left;
            let share = walked / length;
            let at = (
                (f64::from(from.0) + across * share).round() as i32,
                (f64::from(from.1) + up * share).round() as i32,
            );
            match (is_drawn(nth), pieces.last_mut()) {
                (true, Some(piece)) => piece.push(at),
                _ => pieces.push(vec![at]),
            }
            nth = (nth + 1) % dashes.len();
            left = dashes[nth];
        }
        left -= length - walked;
        if let (true, Some(piece)) = (is_drawn(nth), pieces.last_mut()) {
            piece.push(to);
        }
    }
    pieces.retain(|piece| piece.len() > 1);
    pieces
}

/// One of [`SIGNS`], around its place, in pixels.
pub(super) fn sign(number: usize, radius: f64) -> Vec<(i32, i32)> {
    let round = |corners: usize, turn: f64, radius: f64| -> Vec<(f64, f64)> {
        let angle = |nth: usize| (nth as f64 / corners as f64 + turn) * std::f64::consts::TAU;
        (0..corners).map(|nth| (angle(nth).sin() * radius, -angle(nth).cos() * radius)).collect()
    };
    let points = match number % SIGNS {
        0 => round(12, 0.0, radius),
        1 => round(4, 0.125, radius * 1.3),
        2 => round(3, 0.0, radius * 1.4),
        3 => round(4, 0.0, radius * 1.4),
        4 => round(3, 0.5, radius * 1.4),
        5 => vec![(-1.6, -0.5), (1.6, -0.5), (1.6, 0.5), (-1.6, 0.5)]
            .into_iter()
            .map(|(x, y): (f64, f64)| (x * radius, y * radius))
            .collect(),
        6 => vec![(-0.5, -1.6), (0.5, -1.6), (0.5, 1.6), (-0.5, 1.6)]
            .into_iter()
            .map(|(x, y): (f64, f64)| (x * radius, y * radius))
            .collect(),
        _ => {
            let (out, within) = (round(5, 0.0, radius * 1.6), round(5, 0.1, radius * 0.7));
            out.into_iter().zip(within).flat_map(|(out, within)| [out, within]).collect()
        }
    };
    points.into_iter().map(|(x, y)| (x.round() as i32, y.round() as i32)).collect()
}

#[cfg(test)]
mod tests;
