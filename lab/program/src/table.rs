//! Tables: as text for a terminal, and as rows for the templates of pages and lists.

use std::fmt;

use serde::Serialize;

/// Heading of a column that belongs to the previous one. A page has both in one cell (`parts.html`), so that it fits on
/// a phone.
pub(crate) const RATIO: &str = "ratio";

/// Rows below a heading. A row may be shorter than the heading.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new<T: Into<String>>(heading: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self(Vec::new());
        table.push(heading);
        table
    }

    pub(crate) fn push<T: Into<String>>(&mut self, row: impl IntoIterator<Item = T>) {
        self.0.push(row.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for row in &self.0 {
            let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
            writeln!(f, "  {}", cells.collect::<Vec<String>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
