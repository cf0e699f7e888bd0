//! Results as an aligned table for users, and as JSON with the same numbers for programs.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use serde::Serialize;

use super::stats::{self, Sample, Summary};

/// Unit of the values of a case. A ratio is the value of the first line divided by that of another
/// line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum Unit {
    /// Objects per second.
    Objects,
    /// Frames per second, of `bytes` each.
    Frames { bytes: usize },
    /// Bits per second.
    Bits,
    /// Bytes per second.
    Bytes,
    /// Instructions per object or frame.
    Instructions,
    /// Cache misses per frame, in cache lines.
    Misses,
    /// Delay of a frame, in nanoseconds.
    Delay,
    /// Machine time per frame, in nanoseconds.
    Nanoseconds,
    /// Response time, in nanoseconds.
    Latency,
    /// CPU seconds per gigabit.
    CpuPerGigabit,
    /// Share of one CPU, in percent.
    Percent,
    /// Share of a frame's instructions, in percent.
    Share,
    /// Number of frames.
    Count,
    /// Number without a unit.
    Index,
}

impl Unit {
    /// Divisor and unit name in the table.
    fn shown(self) -> (f64, &'static str) {
        match self {
            Self::Objects => (1e6, "Mobj/s"),
            Self::Frames { .. } => (1e6, "Mpps"),
            Self::Bits => (1e9, "Gb/s"),
            Self::Bytes => (1e9, "GB/s"),
            Self::Instructions => (1.0, "Ir/unit"),
            Self::Misses => (1.0, "lines"),
            Self::Delay => (1e6, "ms"),
            Self::Nanoseconds => (1.0, "ns"),
            Self::Latency => (1e3, "us"),
            Self::CpuPerGigabit => (1.0, "s/Gb"),
            Self::Percent => (1.0, "% of a CPU"),
            Self::Share => (1.0, "% of Ir"),
            Self::Count => (1.0, "frames"),
            Self::Index => (1.0, "index"),
        }
    }

    /// Median as text in a second unit; empty if the unit has no second unit.
    fn also(self, median: f64) -> String {
        match self {
            Self::Objects => format!("{:.2} ns/obj", 1e9 / median),
            Self::Frames { bytes } => format!("{:.1} Gb/s", median * bytes as f64 * 8.0 / 1e9),
            _ => String::new(),
        }
    }
}

/// Samples of one contender, or the reason why the contender was skipped.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) who: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
    pub(super) samples: Vec<Sample>,
}

impl Line {
    pub(super) fn of(who: &str, samples: Vec<Sample>) -> Self {
        let summary = Summary::of(&samples);
        let skipped = summary.is_none().then(|| "no sample".to_owned());
        Self { who: who.to_owned(), summary, skipped, samples }
    }

    pub(super) fn skipped(who: &str, reason: impl Into<String>) -> Self {
        let skipped = Some(reason.into());
        Self { who: who.to_owned(), summary: None, skipped, samples: Vec::new() }
    }
}

/// One measured quantity, with mqnet in the first line and its peers in the others.
#[derive(Debug, Serialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) lines: Vec<Line>,
    pub(super) ratios: Vec<Line>,
}

impl Case {
    /// Creates a case. Ratios compare the first line that was not skipped with each other line that
    /// was not skipped.
    pub(super) fn new(name: impl Into<String>, unit: Unit, lines: Vec<Line>) -> Self {
        let mut ratios = Vec::new();
        let mut took_part = lines.iter().filter(|line| line.skipped.is_none());
        if let Some(first) = took_part.next() {
            for peer in took_part {
                let ratio = stats::ratios(&first.samples, &peer.samples);
                ratios.push(Line::of(&format!("{} / {}", first.who, peer.who), ratio));
            }
        }
        Self { name: name.into(), unit, lines, ratios }
    }
}

/// All cases of one run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) benchmark: String,
    /// CPUs of the measurement.
    pub(super) cpus: [usize; 2],
    pub(super) slice_ms: u64,
    /// Facts that a reader needs to interpret the numbers.
    pub(super) notes: Vec<String>,
    pub(super) cases: Vec<Case>,
}

impl Report {
    /// Renders the table or the JSON.
    pub(super) fn render(&self, json: bool) -> Result<String, serde_json::Error> {
        if json {
            return serde_json::to_string_pretty(self).map(|text| text + "\n");
        }
        Ok(self.table())
    }

    fn table(&self) -> String {
        let mut rows = vec![HEADER.map(str::to_owned)];
        for case in &self.cases {
            let mut name = case.name.as_str();
            let (scale, unit) = case.unit.shown();
            for line in &case.lines {
                rows.push(row(name, line, scale, unit, |median| case.unit.also(median)));
                name = "";
            }
            for line in &case.ratios {
                rows.push(row(name, line, 1.0, "x", |_| String::new()));
            }
        }
        let mut out = align(&rows);
        for note in &self.notes {
            let _ = writeln!(out, "# {note}");
        }
        out
    }
}

const HEADER: [&str; 9] =
    ["case", "who", "unit", "min", "median", "max", "near (n)", "far (n)", "median is"];

fn row(
    name: &str,
    line: &Line,
    scale: f64,
    unit: &str,
    also: impl Fn(f64) -> String,
) -> [String; HEADER.len()] {
    let mut cells = [const { String::new() }; HEADER.len()];
    cells[0] = name.to_owned();
    cells[1].clone_from(&line.who);
    let Some(summary) = &line.summary else {
        // A reason may be long and therefore goes into the last column, which is not aligned.
        let reason = line.skipped.as_deref().unwrap_or("no sample");
        cells[HEADER.len() - 1] = format!("skipped: {reason}");
        return cells;
    };
    let part = |part: Option<stats::Part>| {
        part.map_or("-".to_owned(), |p| format!("{} ({})", digits(p.median / scale), p.samples))
    };
    cells[2] = unit.to_owned();
    cells[3] = digits(summary.min / scale);
    cells[4] = digits(summary.median / scale);
    cells[5] = digits(summary.max / scale);
    cells[6] = part(summary.near);
    cells[7] = part(summary.far);
    cells[8] = also(summary.median);
    cells
}

/// Formats a value with about four significant digits; values from 1000 on are rounded to integers.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Aligns the first three columns left and the following ones right, with the minimum column
/// widths. The last column is not aligned.
fn align(rows: &[[String; HEADER.len()]]) -> String {
    let mut widths = [0; HEADER.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let last = HEADER.len() - 1;
    let mut out = String::new();
    for row in rows {
        let mut text = String::new();
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = match at {
                0..=2 => write!(text, "{cell:<width$}  "),
                at if at == last => write!(text, "{cell}"),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Progress line on a terminal; no output otherwise.
#[derive(Debug)]
pub(super) struct Progress {
    on: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { on: std::io::stderr().is_terminal() }
    }

    /// Replaces the text of the progress line.
    pub(super) fn show(&self, text: &str) {
        if self.on {
            eprint!("\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Class;

    fn samples(values: &[f64]) -> Vec<Sample> {
        values.iter().map(|&value| Sample { value, class: Class::Near }).collect()
    }

    fn report() -> Report {
        let ours = Line::of("mqnet", samples(&[2e6, 4e6]));
        let peer = Line::of("peer", samples(&[1e6, 1e6]));
        let gone = Line::skipped("other", "gcc is missing");
        let case = Case::new("hop", Unit::Objects, vec![ours, peer, gone]);
        Report { benchmark: "ring".to_owned(), cases: vec![case], ..Report::default() }
    }

    // Goal: columns are aligned, a ratio line follows the contenders, and a skipped peer has its
    // reason.
    #[test]
    fn table_is_aligned_and_complete() {
        let table = report().render(false).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5);
        let median = |line: &str| line.split_whitespace().nth(4).unwrap().to_owned();
        assert_eq!(median(lines[1]), "3.000");
        assert!(lines[3].ends_with("skipped: gcc is missing"));
        assert!(lines[4].contains("mqnet / peer") && lines[4].contains("3.000 (2)"));
        let end = |line: &str, word: &str| line.find(word).unwrap() + word.len();
        assert_eq!(end(lines[0], "median"), end(lines[1], "3.000"));
    }

    // Goal: JSON contains the same numbers as the table without scaling, and every sample.
    #[test]
    fn json_has_the_same_numbers() {
        let text = report().render(true).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let case = &json["cases"][0];
        assert_eq!(case["lines"][0]["summary"]["median"], 3e6);
        assert_eq!(case["ratios"][0]["summary"]["max"], 4.0);
        assert_eq!(case["lines"][2]["skipped"], "gcc is missing");
        assert_eq!(case["lines"][0]["samples"].as_array().unwrap().len(), 2);
    }
}
