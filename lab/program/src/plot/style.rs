//! Appearance of a line, by its number: colour, dashes and mark.
//!
//! Number 0, the baseline, has a colour of its own, and is wider and never dashed. Among the others, lines with the same dashes
//! differ in colour and in mark, so that all of `STYLES` can be distinguished by colour and dashes, and without colours by dashes
//! and marks. The colours are those of Okabe and Ito (Color Universal Design, 2008) that are dark enough on white, without black,
//! which published figures have, and Tol's wine. No two are closer than 16 (ΔE, CIE 1976) for a reader who lacks one kind of cone
//! (by the matrices of Machado, Oliveira and Fernandes, 2009).

use serde::Serialize;

/// The baseline's colour, and those of the others in turn.
const BASELINE: &str = "#0072b2";
const COLOURS: [&str; 6] = ["#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255"];
/// Dash patterns in pixels, used when all colours are used: none, dashes, dots, both.
const DASHES: [&str; 4] = ["none", "9 4", "2 4", "12 4 2 4"];
/// Signs, as paths around their position: a circle, a square, triangles, a diamond, bars, a star.
pub(super) const SIGNS: [&str; 8] = [
    "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "M-.92-.92H.92V.92H-.92z",
    "M0-1.4L1.21.7H-1.21z",
    "M0-1.4L1.4 0 0 1.4-1.4 0z",
    "M0 1.4L-1.21-.7H1.21z",
    "M-1.6-.5H1.6V.5H-1.6z",
    "M-.5-1.6H.5V1.6H-.5z",
    "M0-1.6L.41-.57 1.52-.49.67.22.94 1.29 0 .7-.94 1.29-.67.22-1.52-.49-.41-.57z",
];
/// Number of lines that can be distinguished. Further ones repeat.
#[cfg(test)]
const STYLES: usize = 1 + COLOURS.len() * DASHES.len();

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Style {
    pub(super) colour: &'static str,
    pub(super) dashes: &'static str,
    sign: &'static str,
    /// Width of a line and size of a sign, in pixels.
    pub(super) breadth: u32,
    pub(super) radius: f64,
}

impl Style {
    pub(super) fn of(number: usize) -> Self {
        let sign = SIGNS[number % SIGNS.len()];
        let Some(nth) = number.checked_sub(1) else {
            return Self { colour: BASELINE, dashes: DASHES[0], sign, breadth: 4, radius: 5.0 };
        };
        let (colour, dashes) = (COLOURS[nth % COLOURS.len()], DASHES[nth / COLOURS.len() % DASHES.len()]);
        Self { colour, dashes, sign, breadth: 2, radius: 4.0 }
    }
}

#[cfg(test)]
mod tests;
