//! Comparison as a table and as JSON, and deviations from the document.

use serde_json::{Value, json};

use super::compare::{Difference, Probe};
use super::explained::{Explained, cell};
use crate::Result;

/// Comparison of all requests.
#[derive(Clone, Debug)]
pub struct Report {
    release: String,
    probes: Vec<Probe>,
    explained: Explained,
}

impl Report {
    pub(super) fn new(release: String, probes: Vec<Probe>, explained: Explained) -> Result<Self> {
        if probes.is_empty() {
            return Err("nothing was asked".into());
        }
        Ok(Self { release, probes, explained })
    }

    /// Number of requests, and number of equal answers.
    pub fn counts(&self) -> (usize, usize) {
        (self.probes.len(), self.probes.len() - self.differences().count())
    }

    fn differences(&self) -> impl Iterator<Item = Difference> {
        self.probes.iter().filter_map(Probe::difference)
    }

    /// Differences that are not documented, and documented differences that were not found, as
    /// table rows of the document.
    pub fn complaints(&self) -> Vec<String> {
        let found: Vec<Difference> = self.differences().collect();
        let row =
            |d: &Difference| format!("| {} | {} | {} |", d.probe, cell(&d.kernel), cell(&d.ours));
        let known = &self.explained;
        let new = found.iter().filter(|d| known.why(d).is_none());
        let gone = known.differences.iter().filter(|(d, _)| !found.contains(d));
        new.map(|d| format!("new difference: {}", row(d)))
            .chain(gone.map(|(d, _)| format!("explained, but not found: {}", row(d))))
            .collect()
    }

    /// Readable table: each request, the driver that answered, the verdict, and the reason.
    pub fn table(&self) -> String {
        let mut rows = vec![["probe", "asked", "kernel", "verdict"].map(str::to_owned)];
        let mut notes = Vec::new();
        for probe in &self.probes {
            let difference = probe.difference();
            let verdict = match &difference {
                None => "same",
                Some(d) if self.explained.why(d).is_some() => "explained",
                Some(_) => "DIFFERENT",
            };
            rows.push([&probe.name, &probe.what, &probe.who, verdict].map(str::to_owned));
            if let Some(d) = difference {
                let why = self.explained.why(&d).unwrap_or("nobody knows");
                let (kernel, ours) = (&d.kernel, &d.ours);
                notes.push(format!(
                    "{}\n  kernel: {kernel}\n  ours:   {ours}\n  why:    {why}\n",
                    d.probe
                ));
            }
        }
        let (all, same) = self.counts();
        let mut text =
            format!("kernel {}\n\n{}\n{}\n", self.release, aligned(&rows), notes.join(""));
        text.push_str(&format!("\n{all} questions, {same} answered alike\n"));
        text
    }

    /// Comparison as JSON.
    pub fn json(&self) -> Value {
        let probe = |probe: &Probe| {
            let difference = probe.difference();
            let why = difference.as_ref().and_then(|d| self.explained.why(d));
            json!({
                "probe": probe.name, "asked": probe.what, "answered-by": probe.who,
                "kernel": probe.kernel, "ours": probe.ours,
                "same": difference.is_none(), "why": why,
            })
        };
        json!({
            "kernel": self.release,
            "probes": self.probes.iter().map(probe).collect::<Vec<_>>(),
            "complaints": self.complaints(),
        })
    }
}

/// Aligns columns to their widest cell.
pub(super) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
