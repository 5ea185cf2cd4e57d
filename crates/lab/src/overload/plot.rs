//! A [`Report`] drawn: age, deliveries, and memory over time, one below the other, with the phases behind them. An SVG that needs
//! nothing else and is read on any background.

use super::{Report, Sample};
use crate::plot::{Axis, Line, Plot, Scale, Shade, svg};

/// Of one plot, pixels.
const HEIGHT: u32 = 130;

/// A line's name, and what it is at a look.
type Of = (&'static str, fn(&Sample) -> f64);

/// One of the pictures: what it shows, what is to be read up, and its lines.
const PLOTS: [(&str, &str, &[Of]); 4] = [
    (
        "age of what clients have",
        "ms",
        &[
            ("median", |sample| sample.age_p50_ms),
            ("p99", |sample| sample.age_p99_ms),
            ("oldest", |sample| sample.age_max_ms),
        ],
    ),
    ("documents delivered", "a second", &[("delivered", |sample| sample.delivered_hz)]),
    ("memory of the server with its memfds", "MB", &[("server", |sample| sample.server_bytes as f64 / 1e6)]),
    ("the kernel's TCP buffers, both ends", "MB", &[("kernel", |sample| sample.kernel_bytes as f64 / 1e6)]),
];

/// See the module's documentation.
pub fn plot(report: &Report) -> String {
    let shades = report.phases.iter().map(|phase| Shade {
        from: phase.from_s,
        to: phase.to_s,
        says: [format!("{} ×", phase.multiple), format!("{:.1}/s", phase.offered_hz)],
    });
    let shades: Vec<Shade> = shades.collect();
    let plots = PLOTS.map(|(title, unit, lines)| {
        let lines = lines.iter().enumerate().map(|(number, (name, of))| Line {
            name: (*name).to_owned(),
            // None of them is the judged one, whose breadth would hide what is close together.
            number: number + 1,
            points: report.samples.iter().map(|sample| (sample.at_s, of(sample))).collect(),
        });
        let (across, up) = (Axis::new("seconds", Scale::Linear), Axis::new(unit, Scale::Linear));
        let mut plot = Plot::new(title, across, up, lines.collect());
        (plot.height, plot.shades) = (HEIGHT, shades.clone());
        plot.shades_are = ["offered, × capacity", "versions a second"];
        plot
    });
    let told = if report.lost == 0 { "nobody was".to_owned() } else { format!("{} were", report.lost) };
    let (clients, kilobytes) = (report.clients, report.document_bytes as f64 / 1e3);
    svg(&format!("{clients} clients, a document of {kilobytes:.0} kB; {told} disconnected"), &plots)
}
