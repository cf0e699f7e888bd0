//! Explained differences, from the tables of `book/src/explanation/five-systems.md`.

use super::answers::Answer;
use super::compare::Difference;
use crate::Result;

/// Path of the document from the root of the project.
pub(super) const FILE: &str = "book/src/explanation/five-systems.md";

/// Heading of the first column in the table of differences.
const DIFFERENCES: &str = "probe";
/// Heading of the first column in the table of the kernel's tests.
const TESTS: &str = "test";

/// Content of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// Each difference with its reason.
    pub differences: Vec<(Difference, String)>,
    /// Result of each of the kernel's tests.
    pub answers: Vec<Answer>,
}

impl Explained {
    /// Parses the tables of the document. A row with a wrong number of cells or without a reason is
    /// an error.
    pub fn read(text: &str) -> Result<Self> {
        let mut all = Self::default();
        let mut table = "";
        for line in text.lines() {
            let Some(cells) = cells(line) else {
                table = "";
                continue;
            };
            if table.is_empty() {
                table = [DIFFERENCES, TESTS]
                    .into_iter()
                    .find(|name| cells[0] == *name)
                    .unwrap_or("other");
            } else if !cells[0].starts_with("--") && table != "other" {
                let [first, second, third, why] = cells.as_slice() else {
                    return Err(format!("{FILE}: not four cells: {line}").into());
                };
                if why.is_empty() {
                    return Err(format!("{FILE}: no reason: {line}").into());
                }
                all.add(table, [first, second, third], why);
            }
        }
        Ok(all)
    }

    fn add(&mut self, table: &str, [first, second, third]: [&String; 3], why: &str) {
        let (first, second, third) = (first.clone(), second.clone(), third.clone());
        if table == DIFFERENCES {
            let difference = Difference { probe: first, kernel: second, ours: third };
            self.differences.push((difference, why.to_owned()));
        } else {
            self.answers.push(Answer { test: first, vduse: second, vhost_user: third });
        }
    }

    /// Documented reason of a difference; `None` if the difference is not documented.
    pub fn why(&self, difference: &Difference) -> Option<&str> {
        let found = self.differences.iter().find(|(known, _)| known == difference);
        found.map(|(_, why)| why.as_str())
    }
}

/// Formats a text as a cell; an empty text is a dash.
pub(super) fn cell(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { format!("`{}`", text.replace('|', "\\|")) }
}

/// Cells of a table row, without their backquotes; `None` if the line is not a table row.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let inner = inner.replace("\\|", "\u{1}");
    let plain = |cell: &str| {
        let cell = cell.trim().replace('\u{1}', "|");
        let code = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
        let cell = code.map_or_else(|| cell.clone(), str::to_owned);
        if cell == "-" { String::new() } else { cell }
    };
    Some(inner.split('|').map(plain).collect())
}
