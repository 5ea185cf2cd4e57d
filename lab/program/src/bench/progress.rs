//! Progress messages of a bench: a line for each event, with the time since the beginning. On a terminal, a bar below shows the
//! remaining runs, the estimated time and the state of the current run. Elsewhere, the line of a run ends with the remaining runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The bar on the terminal. Its message is the state of the running load.
pub use indicatif::ProgressBar as Bar;
use indicatif::{ProgressDrawTarget, ProgressStyle};

/// The bar, the numbers of completed and expected runs, the remaining time, and the state.
const TEMPLATE: &str = "{bar:24} {pos}/{len}{prefix}  {msg}";

pub(super) struct Progress<'a> {
    out: &'a mut dyn Write,
    /// `true` if there is a terminal, which shows the bar.
    is_terminal: bool,
    begin: Instant,
    /// Total time of the completed runs, and the maximum time of all runs, if runs that aren't needed are left out.
    took: Duration,
    longest: Option<Duration>,
    bar: Bar,
}

impl<'a> Progress<'a> {
    /// `out` is standard error, to which progress is written.
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        let is_terminal =
            std::io::stderr().is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb");
        let bar = Bar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("█░"));
        }
        Self { out, is_terminal, begin: Instant::now(), took: Duration::ZERO, longest: None, bar }
    }

    pub(super) fn say(&mut self, line: &str) {
        let at = self.begin.elapsed().as_secs();
        // `out` may be closed. The run continues then.
        let _ = self.bar.suspend(|| writeln!(self.out, "{:02}:{:02} {line}", at / 60, at % 60));
    }

    /// The bar for the progress of a run. `None` without a terminal.
    pub(super) fn live(&self) -> Option<Bar> {
        self.is_terminal.then(|| self.bar.clone())
    }

    /// Sets the expected number of runs. With a maximum time, this is the maximum number.
    pub(super) fn expect(&mut self, total: usize, longest: Option<Duration>) {
        self.longest = longest;
        self.bar.set_length(total as u64);
        if self.is_terminal && total > 0 {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Subtracts runs that aren't needed.
    pub(super) fn skip(&mut self, runs: usize) {
        self.bar.set_length(self.bar.length().unwrap_or(0).saturating_sub(runs as u64));
    }

    pub(super) fn made(&mut self, line: &str, took: Duration) {
        self.took += took;
        self.bar.inc(1);
        self.bar.set_message("");
        let left = self.left();
        self.bar.set_prefix(left.as_ref().map_or(String::new(), |left| format!(", {left}")));
        // The last lines of a failed server stay on their own lines.
        let (first, rest) =
            line.split_once('\n').map_or((line, String::new()), |(first, rest)| (first, format!("\n{rest}")));
        match left.filter(|_| !self.is_terminal) {
            Some(left) => self.say(&format!("{first} ({left}){rest}")),
            None => self.say(line),
        }
    }

    /// The remaining time in words, if the remaining runs take as long as the completed ones, and not longer than they may.
    fn left(&self) -> Option<String> {
        let made = self.bar.position();
        let left = self.bar.length()?.checked_sub(made).filter(|left| *left > 0)?;
        let expected = self.took.div_f64(made as f64).mul_f64(left as f64);
        let allowed = self.longest.map_or(Duration::MAX, |longest| longest.saturating_sub(self.took));
        let seconds = expected.min(allowed).as_secs();
        let most = if self.longest.is_some() { "up to " } else { "" };
        let runs = if left == 1 { "run" } else { "runs" };
        Some(match seconds {
            0..60 => format!("{most}{left} {runs} left, about {seconds} s"),
            _ => format!("{most}{left} {runs} left, about {} min", seconds.div_ceil(60)),
        })
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests;
