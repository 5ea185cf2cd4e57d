//! Progress messages of a bench: a line for each event, with the time since the beginning. On a terminal, a bar below shows the
//! remaining runs, the estimated time and the state of the current run. Elsewhere, the line of a run ends with the remaining runs.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::generator::Live;

/// Length of the bar in characters.
const BAR: usize = 24;
/// Escape sequences around a line that replaces the previous one. A line that is longer than the terminal's width is cut off
/// (DECAWM), because its continuation would never be cleared.
const BEGIN: &str = "\r\x1b[K\x1b[?7l";
const END: &str = "\x1b[?7h";

/// The bar on the terminal, which running loads update.
#[derive(Clone, Debug, Default)]
pub struct Bar(Arc<Mutex<String>>);

impl Bar {
    /// Writes the progress beside the bar.
    pub(super) fn show(&self, live: &Live) {
        // Standard error may be closed. The run continues then.
        let mut terminal = std::io::stderr().lock();
        let _ = write!(terminal, "{}", self.line(Some(live))).and_then(|()| terminal.flush());
    }

    /// The line, written over the previous one.
    fn line(&self, live: Option<&Live>) -> String {
        let bar = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match live {
            Some(live) => format!("{BEGIN}{bar}  {live}{END}"),
            None => format!("{BEGIN}{bar}{END}"),
        }
    }
}

pub(super) struct Progress<'a> {
    out: &'a mut dyn Write,
    /// `true` if `out` is a terminal with control sequences.
    is_terminal: bool,
    begin: Instant,
    /// Completed runs, their total time, and the expected number of runs.
    made: usize,
    took: Duration,
    total: usize,
    /// Maximum time of all runs, if runs that aren't needed are left out.
    longest: Option<Duration>,
    bar: Bar,
}

impl<'a> Progress<'a> {
    /// `out` is standard error, to which progress is written.
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        let is_terminal =
            std::io::stderr().is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb");
        let (begin, bar) = (Instant::now(), Bar::default());
        Self { out, is_terminal, begin, made: 0, took: Duration::ZERO, total: 0, longest: None, bar }
    }

    pub(super) fn say(&mut self, line: &str) {
        let at = self.begin.elapsed().as_secs();
        let clear = if self.is_terminal { "\r\x1b[K" } else { "" };
        // `out` may be closed. The run continues then.
        let _ = writeln!(self.out, "{clear}{:02}:{:02} {line}", at / 60, at % 60);
        self.draw();
    }

    /// The bar for the progress of a run. `None` without a terminal.
    pub(super) fn live(&self) -> Option<Bar> {
        self.is_terminal.then(|| self.bar.clone())
    }

    /// Sets the expected number of runs. With a maximum time, this is the maximum number.
    pub(super) fn expect(&mut self, total: usize, longest: Option<Duration>) {
        self.total = total;
        self.longest = longest;
        self.draw();
    }

    /// Subtracts runs that aren't needed.
    pub(super) fn skip(&mut self, runs: usize) {
        self.total = self.total.saturating_sub(runs);
    }

    pub(super) fn made(&mut self, line: &str, took: Duration) {
        self.made += 1;
        self.took += took;
        // The last lines of a failed server stay on their own lines.
        let (first, rest) =
            line.split_once('\n').map_or((line, String::new()), |(first, rest)| (first, format!("\n{rest}")));
        match (self.is_terminal, self.left()) {
            (false, Some(left)) => self.say(&format!("{first} ({left}){rest}")),
            _ => self.say(line),
        }
    }

    /// The remaining time in words, if the remaining runs take as long as the completed ones, and not longer than they may.
    fn left(&self) -> Option<String> {
        let left = self.total.saturating_sub(self.made);
        if self.made == 0 || left == 0 {
            return None;
        }
        let expected = self.took.div_f64(self.made as f64).mul_f64(left as f64);
        let allowed = self.longest.map_or(Duration::MAX, |longest| longest.saturating_sub(self.took));
        let seconds = expected.min(allowed).as_secs();
        let most = if self.longest.is_some() { "up to " } else { "" };
        let runs = if left == 1 { "run" } else { "runs" };
        Some(match seconds {
            0..60 => format!("{most}{left} {runs} left, about {seconds} s"),
            _ => format!("{most}{left} {runs} left, about {} min", seconds.div_ceil(60)),
        })
    }

    fn draw(&mut self) {
        if !self.is_terminal {
            return;
        }
        let mut bar = String::new();
        if self.made < self.total {
            let done = BAR * self.made / self.total;
            let left = self.left().map(|left| format!(", {left}")).unwrap_or_default();
            let (done, open) = ("█".repeat(done), "░".repeat(BAR - done));
            bar = format!("{done}{open} {}/{}{left}", self.made, self.total);
        }
        *self.bar.0.lock().unwrap_or_else(PoisonError::into_inner) = bar;
        let _ = write!(self.out, "{}", self.bar.line(None));
        let _ = self.out.flush();
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(self.out, "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests;
