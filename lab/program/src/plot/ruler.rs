//! Positions of values along an axis, and its labels.

use std::ops::Range;

use crate::bench::grouped;

/// Maximum number of labels of an axis.
const TICKS_MAX: usize = 7;
/// A published figure is drawn if it is at most this multiple of the largest measured one.
const BEYOND: f64 = 4.0;

/// The distribution of values along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linearly from 0.
    Linear,
    /// Logarithmic. Values that aren't above 0 aren't drawn.
    Log,
    /// Percentiles by the share beyond them, so that 99 and 99.9 are as far apart as 90 and 99. 100 is one step
    /// further.
    Percentile,
    /// These names, at 0, 1, 2 and so on.
    Named(Vec<String>),
}

/// An axis: its range and its labels as positions, and the pixels of its ends.
pub(super) struct Ruler {
    range: Range<f64>,
    ticks: Vec<(f64, String)>,
    /// The position of percentile 100.
    top: f64,
    scale: Scale,
    pub(super) pixels: Range<f64>,
}

impl Ruler {
    /// An axis for these measured values, and for published values that aren't too far beyond.
    pub(super) fn new(
        scale: &Scale,
        measured: &[f64],
        published: &[f64],
        end: Option<f64>,
        pixels: Range<f64>,
    ) -> Self {
        let greatest = measured.iter().copied().fold(0.0, f64::max);
        let drawn = |value: &&f64| **value <= greatest * BEYOND || *scale == Scale::Log;
        let values: Vec<f64> = measured.iter().chain(published.iter().filter(drawn)).copied().collect();
        let most = end.unwrap_or(values.iter().copied().fold(0.0, f64::max));
        let mut ruler = Self { range: 0.0..1.0, ticks: Vec::new(), top: 1.0, scale: scale.clone(), pixels };
        match scale {
            Scale::Linear => {
                if most > 0.0 {
                    ruler.range.end = most * if end.is_some() { 1.0 } else { 1.04 };
                }
                ruler.ticks = even(ruler.range.end).map(|place| (place, short(place))).collect();
            }
            Scale::Log => {
                let least =
                    values.iter().copied().filter(|value| *value > 0.0).fold(f64::MAX, f64::min).min(most);
                if least > 0.0 {
                    ruler.range = (least * 0.8).log10()..(most * 1.25).log10();
                }
                ruler.ticks = decades(&ruler.range);
            }
            Scale::Percentile => {
                let finite = values.iter().copied().filter(|value| *value < 100.0).fold(0.0, f64::max);
                ruler.top = ruler.place(finite) + 1.0;
                let known = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];
                let there = known.into_iter().filter(|known| values.contains(known));
                let label = |of: f64| if of >= 100.0 { "max".to_owned() } else { of.to_string() };
                ruler.ticks = there.map(|percent| (ruler.place(percent), label(percent))).collect();
                ruler.range = 0.0..ruler.place(most) + 0.05;
            }
            Scale::Named(names) => {
                let last = names.len().saturating_sub(1).max(1) as f64;
                ruler.range = -0.1..last + 0.1;
                let every = names.len().div_ceil(TICKS_MAX).max(1);
                let named = names.iter().enumerate().step_by(every);
                ruler.ticks = named.map(|(nth, name)| (nth as f64, name.clone())).collect();
            }
        }
        ruler
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Named(_) => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Percentile if value >= 100.0 => self.top,
            Scale::Percentile => -(1.0 - value.max(0.0) / 100.0).log10(),
        }
    }

    fn pixel(&self, place: f64) -> f64 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        self.pixels.start + share.clamp(0.0, 1.0) * (self.pixels.end - self.pixels.start)
    }

    /// The pixel of a value. Values beyond the end get that of the end. `None` if the value can't be drawn.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        (self.scale != Scale::Log || value > 0.0).then(|| self.pixel(self.place(value)))
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        self.range.start <= self.place(value) && self.place(value) <= self.range.end
    }

    /// The labels with their pixels.
    pub(super) fn labels(&self) -> Vec<(f64, &str)> {
        self.ticks.iter().map(|(place, label)| (self.pixel(*place), label.as_str())).collect()
    }
}

/// Labels of a linear axis, from 0.
fn even(most: f64) -> impl Iterator<Item = f64> {
    let rough = most / TICKS_MAX as f64;
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= rough).unwrap_or(10.0);
    (0..=TICKS_MAX).map(move |nth| nth as f64 * digit * power).take_while(move |place| *place <= most)
}

/// Labels of a logarithmic axis: the powers of ten, and also 2 and 5 times these if there are few.
fn decades(range: &Range<f64>) -> Vec<(f64, String)> {
    let (first, last) = (range.start.floor() as i32, range.end.ceil() as i32);
    let digits: &[f64] = match last - first {
        ..=2 => &[1.0, 2.0, 5.0],
        3 => &[1.0, 3.0],
        _ => &[1.0],
    };
    let values = (first..=last).flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
    values.map(|value| (value.log10(), short(value))).filter(|(place, _)| range.contains(place)).collect()
}

/// A label for a value.
pub(super) fn short(value: f64) -> String {
    let plain = |value: f64| {
        let digits = if value.abs() < 0.01 { 4 } else { 2 };
        let text = format!("{value:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        text.to_owned()
    };
    match value.abs() {
        1e6.. => plain(value / 1e6) + "M",
        1e4.. => plain(value / 1e3) + "k",
        1e3.. => grouped(value, 0),
        _ => plain(value),
    }
}

#[cfg(test)]
mod tests;
