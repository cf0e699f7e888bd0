//! Text tables with aligned columns.

use std::fmt::Write;

/// Table with minimum column widths. Columns are aligned right, except those that are marked left.
pub struct TextTable {
    left: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table with these headings; a leading `<` aligns a column left.
    pub fn new(headings: &[&str]) -> Self {
        let left = headings.iter().map(|h| h.starts_with('<')).collect();
        let first = headings.iter().map(|h| h.trim_start_matches('<').to_owned()).collect();
        Self { left, rows: vec![first] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.left.len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), &left) in row.iter().zip(&widths).zip(&self.left) {
                let gap = if line.is_empty() { "" } else { "  " };
                let _ = match left {
                    true => write!(line, "{gap}{cell:<width$}"),
                    false => write!(line, "{gap}{cell:>width$}"),
                };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: columns are aligned for any lengths of headings and cells, and no line ends in blanks.
    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["<name", "n", "<why"]);
        table.row(vec!["a".into(), "1000".into(), String::new()]);
        table.row(vec!["longer".into(), "2".into(), "x".into()]);
        assert_eq!(table.text(), "name       n  why\na       1000\nlonger     2  x\n");
    }
}
