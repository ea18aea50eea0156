//! Aligned text tables: names to the left, numbers to the right, two spaces between, nothing else.

use crate::diagnostic::{visible, width};

/// The alignment of a column's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table that is being filled.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns: `("port", Left)`.
    pub(crate) fn new<S: Into<String>>(columns: impl IntoIterator<Item = (S, Align)>) -> Self {
        let headings = columns.into_iter().map(|(name, align)| (visible(&name.into()), align)).collect();
        Self { headings, rows: Vec::new() }
    }

    /// Adds a row. Missing cells are empty; extra cells are left out.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<_> =
            cells.into_iter().take(self.headings.len()).map(|cell| visible(&cell.into())).collect();
        row.resize(self.headings.len(), String::new());
        self.rows.push(row);
    }

    /// The table as text: each line ends in a line feed, without spaces before it.
    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = self
            .headings
            .iter()
            .enumerate()
            .map(|(i, (name, _))| {
                self.rows.iter().map(|row| width(&row[i])).chain([width(name)]).max().unwrap_or(0)
            })
            .collect();
        let mut out = String::new();
        let headings: Vec<String> = self.headings.iter().map(|(name, _)| name.clone()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, column), (_, align)) in row.iter().zip(&widths).zip(&self.headings) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let padding = " ".repeat(column - width(cell));
                match align {
                    Align::Left => line.extend([cell.as_str(), &padding]),
                    Align::Right => line.extend([padding.as_str(), cell]),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table =
            Table::new([("port", Align::Left), ("received", Align::Right), ("note", Align::Left)]);
        table.row(["lan", "12", ""]);
        table.row(["端口1", "1,234,567,890", "über"]);
        assert_eq!(
            table.render(),
            "port        received  note\nlan               12\n端口1  1,234,567,890  über\n"
        );
    }
}
