//! A [`Report`] drawn: age, deliveries, and memory over time, one below the other, with the phases behind them. An SVG that needs
//! nothing else and is read on any background.

use std::fmt::Write;

use super::{Report, Sample};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 58.0;
const PANEL: f64 = 122.0;
const GAP: f64 = 50.0;
/// Between the top of a panel's place and its uppermost line: its title.
const TITLE: f64 = 24.0;
const BOTTOM: f64 = 34.0;
/// Lines across a panel.
const TICKS: u32 = 4;

/// Told apart without colours as well, by their dashes.
const LINES: [(&str, &str); 3] = [("#1f6fb4", ""), ("#c8501e", "6 3"), ("#5b6670", "2 3")];

/// A line's name, and what it is at a look.
type Line = (&'static str, fn(&Sample) -> f64);

/// One of the pictures: what it shows, and its lines.
struct Panel {
    title: &'static str,
    lines: &'static [Line],
}

const PANELS: [Panel; 4] = [
    Panel {
        title: "age of what clients have, ms",
        lines: &[
            ("median", |sample| sample.age_p50_ms),
            ("p99", |sample| sample.age_p99_ms),
            ("oldest", |sample| sample.age_max_ms),
        ],
    },
    Panel { title: "documents delivered a second", lines: &[("delivered", |sample| sample.delivered_hz)] },
    Panel {
        title: "memory of the server with its memfds, MB",
        lines: &[("server", |sample| sample.server_bytes as f64 / 1e6)],
    },
    Panel {
        title: "the kernel's TCP buffers, both ends, MB",
        lines: &[("kernel", |sample| sample.kernel_bytes as f64 / 1e6)],
    },
];

/// See the module's documentation.
pub fn plot(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string doesn't fail.
    let _ = write_plot(&mut out, report);
    out
}

fn write_plot(out: &mut String, report: &Report) -> std::fmt::Result {
    let height = TOP + PANELS.len() as f64 * (PANEL + GAP) - GAP + TITLE + BOTTOM;
    let end_s = report.phases.last().map_or(1.0, |phase| phase.to_s);
    let x = |at_s: f64| LEFT + at_s / end_s * (WIDTH - LEFT - RIGHT);
    let (clients, kilobytes) = (report.clients, report.document_bytes as f64 / 1e3);
    let told = if report.lost == 0 { "nobody was".to_owned() } else { format!("{} were", report.lost) };
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Age of data, deliveries and memory while a document changes up to ten times as often as it can be \
         delivered\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#333\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{clients} clients, a document of {kilobytes:.0} kB; {told} \
         disconnected</text>"
    )?;
    let below = height - BOTTOM;
    for (nth, phase) in report.phases.iter().enumerate() {
        let (from, to) = (x(phase.from_s), x(phase.to_s));
        let fill = if nth.is_multiple_of(2) { "#f3f6f9" } else { "#e6edf4" };
        writeln!(
            out,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"/>\n\
             <text x=\"{:.1}\" y=\"40\" text-anchor=\"middle\">{} × capacity</text>\n\
             <text x=\"{:.1}\" y=\"54\" text-anchor=\"middle\" fill=\"#59636e\">{:.1} versions/s</text>",
            TOP + 2.0,
            to - from,
            below - TOP - 2.0,
            (from + to) / 2.0,
            phase.multiple,
            (from + to) / 2.0,
            phase.offered_hz
        )?;
    }
    for (nth, panel) in PANELS.iter().enumerate() {
        write_panel(out, panel, report, TOP + nth as f64 * (PANEL + GAP) + TITLE, &x)?;
    }
    for nth in 0..=6 {
        let at_s = end_s * f64::from(nth) / 6.0;
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at_s:.0} s</text>",
            x(at_s),
            height - BOTTOM + 16.0
        )?;
    }
    writeln!(out, "</svg>")
}

fn write_panel(
    out: &mut String,
    panel: &Panel,
    report: &Report,
    top: f64,
    x: &dyn Fn(f64) -> f64,
) -> std::fmt::Result {
    let greatest =
        panel.lines.iter().flat_map(|(_, value)| report.samples.iter().map(value)).fold(0.0, f64::max);
    let up = round_up(greatest);
    let y = |value: f64| top + PANEL - value / up * PANEL;
    for tick in 0..=TICKS {
        let value = up * f64::from(tick) / f64::from(TICKS);
        let at = y(value);
        writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#cfd6dd\"/><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            short(value)
        )?;
    }
    write!(out, "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"600\">{}", top - 6.0, panel.title)?;
    for ((name, _), (colour, dashes)) in panel.lines.iter().zip(LINES) {
        if panel.lines.len() > 1 {
            let mark = match dashes {
                "" => "—",
                "6 3" => "– –",
                _ => "···",
            };
            write!(out, "<tspan dx=\"14\" font-weight=\"400\" fill=\"{colour}\">{mark} {name}</tspan>")?;
        }
    }
    writeln!(out, "</text>")?;
    for ((_, value), (colour, dashes)) in panel.lines.iter().zip(LINES) {
        let points: Vec<String> = report
            .samples
            .iter()
            .map(|sample| format!("{:.1},{:.1}", x(sample.at_s), y(value(sample))))
            .collect();
        writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
            points.join(" ")
        )?;
    }
    Ok(())
}

/// The next of 1, 2, 4, 8 and their tenfolds, so that an axis has round figures.
fn round_up(value: f64) -> f64 {
    let ten = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 2.0, 4.0, 8.0].map(|step| step * ten).into_iter().find(|step| *step >= value).unwrap_or(ten * 10.0)
}

fn short(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
