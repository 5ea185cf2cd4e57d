//! Tables as text for a terminal and as HTML for a page.

use std::fmt;

/// Heading of a column that belongs to the previous one: a page has both in one cell, so that it fits a phone.
pub(crate) const RATIO: &str = "ratio";
/// Longer cells count as text, even if they begin with a digit.
const FIGURE_BYTES_MAX: usize = 30;

/// Rows below a heading. A row may be shorter than the heading.
#[derive(Clone, Debug)]
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

    pub(crate) fn markdown(&self) -> String {
        let row = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut rows: Vec<String> = self.0.iter().map(row).collect();
        rows.insert(1, "|---".repeat(self.0[0].len()) + "|\n");
        rows.concat()
    }

    /// As HTML. Figures are aligned to the right.
    pub(crate) fn html(&self) -> String {
        let mut out =
            String::from("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table\"><table>");
        for (nth, row) in self.0.iter().enumerate() {
            out.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                if self.0[0].get(column).is_some_and(|heading| heading == RATIO) {
                    if nth > 0 && !cell.is_empty() {
                        out += &format!("<small>{}</small>", escaped(cell));
                    }
                    continue;
                }
                let is_figure = cell.len() <= FIGURE_BYTES_MAX
                    && cell.starts_with(|first: char| first.is_ascii_digit() || "–≤≥".contains(first));
                out.push_str(match (nth, column) {
                    (0, _) => "<th scope=\"col\">",
                    (_, 0) => "<th scope=\"row\">",
                    _ if is_figure => "<td class=\"figure\">",
                    _ => "<td>",
                });
                out.push_str(&escaped(cell));
            }
        }
        out + "</table></div>"
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

/// Escapes text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
