//! A report as plain text.

use std::fmt;

use super::{CaseReport, Metric, Pace, Report};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "alternating runs, fresh processes; congestion control {}{}",
            self.congestion,
            match self.pace {
                Pace::Full => "",
                Pace::Fast => "; fast: shorter spans, three pairs",
                Pace::Quick => "; QUICK: for a look, not for a claim",
            }
        )?;
        writeln!(
            f,
            "ratio: the first server's figure divided by this one's, median of pairs [interval]; * a difference \
             that may be claimed"
        )?;
        for case in &self.cases {
            writeln!(f)?;
            case.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.title)?;
        let mut rows = vec![vec!["server".to_owned()]];
        for metric in &self.metrics {
            rows[0].extend([metric.label().to_owned(), "ratio".to_owned()]);
        }
        rows[0].push("sound".to_owned());
        for server in &self.servers {
            let mut row = vec![server.name.clone()];
            for metric in &self.metrics {
                row.push(server.medians.get(metric).map_or("–".to_owned(), |value| metric.format(*value)));
                row.push(server.comparisons.get(metric).map_or(String::new(), |comparison| {
                    let ratio = comparison.ratio;
                    let mark = if comparison.differs { "*" } else { "" };
                    format!("{:.2} [{:.2}, {:.2}]{mark}", ratio.median, ratio.low, ratio.high)
                }));
            }
            let sound = server.trials.iter().filter(|trial| trial.doubts.is_empty()).count();
            row.push(format!("{sound}/{}", server.trials.len()));
            rows.push(row);
        }
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in &rows {
            let mut line = String::from("  ");
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        for verdict in &self.verdicts {
            let sign = if verdict.metric.larger_is_better() { '≥' } else { '≤' };
            let bound = match verdict.against {
                Some(against) => format!("{sign} {} × {against}", (verdict.bound * 1e3).round() / 1e3),
                None => format!("{sign} {}", verdict.metric.format(verdict.bound)),
            };
            let (word, measured) = match verdict.measured {
                None => ("NOT MEASURED", "no sound pair of runs".to_owned()),
                Some(measured) => {
                    let word = if verdict.reached { "reached" } else { "MISSED" };
                    let figure = match verdict.against {
                        Some(_) => format!("{measured:.2}"),
                        None => Metric::format(verdict.metric, measured),
                    };
                    (word, figure)
                }
            };
            writeln!(f, "  {word}: {} {bound}: {measured}", verdict.metric.label())?;
        }
        for server in &self.servers {
            for (nth, trial) in server.trials.iter().enumerate() {
                if let Some(what) = &trial.unmeasured {
                    writeln!(f, "  {} run {}: {what}", server.name, nth + 1)?;
                }
                for doubt in &trial.doubts {
                    let what = if doubt.latency_only { "times invalid" } else { "invalid" };
                    writeln!(f, "  {} run {}: {what}: {}", server.name, nth + 1, doubt.what)?;
                }
            }
        }
        Ok(())
    }
}
