//! Output of `mqnet-bench SECTION -j`, and the figures computed from it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::interval::Figure;
use crate::Result;

/// Output of one section; fields that are not used are omitted.
#[derive(Debug, Deserialize)]
struct Raw {
    notes: Vec<String>,
    cases: Vec<RawCase>,
}

#[derive(Debug, Deserialize)]
struct RawCase {
    name: String,
    unit: Unit,
    lines: Vec<RawLine>,
    ratios: Vec<RawLine>,
}

#[derive(Debug, Deserialize)]
struct RawLine {
    who: String,
    skipped: Option<String>,
    samples: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
struct Sample {
    /// Value; `None` if it is not a number.
    value: Option<f64>,
    class: String,
}

/// Unit of the values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Unit {
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
}

impl Unit {
    /// Divisor and name of the unit in a report.
    pub(super) fn shown(&self) -> (f64, &str) {
        match self.kind.as_str() {
            "objects" => (1e6, "Mobj/s"),
            "frames" => (1e6, "Mpps"),
            "bits" => (1e9, "Gb/s"),
            "bytes" => (1e9, "GB/s"),
            "instructions" => (1.0, "instructions"),
            "misses" => (1.0, "lines"),
            "delay" => (1e6, "ms"),
            "nanoseconds" => (1.0, "ns"),
            "latency" => (1e3, "µs"),
            "cpu-per-gigabit" => (1.0, "CPU s/Gb"),
            "percent" => (1.0, "% of a CPU"),
            "share" => (1.0, "% of the instructions"),
            "count" => (1.0, "frames"),
            other => (1.0, other),
        }
    }

    /// True if a higher value is better; false for costs.
    pub(super) fn more_is_better(&self) -> bool {
        matches!(self.kind.as_str(), "objects" | "frames" | "bits" | "bytes" | "index")
    }
}

/// One contender, or a ratio of two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) who: String,
    /// Reason why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) skipped: Option<String>,
    pub(super) all: Option<Figure>,
    /// Samples while the two CPUs shared a cache.
    pub(super) near: Option<Figure>,
    /// Samples while the two CPUs did not share a cache.
    pub(super) far: Option<Figure>,
}

/// One measured case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) lines: Vec<Line>,
    pub(super) ratios: Vec<Line>,
}

impl From<RawLine> for Line {
    fn from(raw: RawLine) -> Self {
        let of = |class: Option<&str>| {
            let own = raw.samples.iter().filter(|s| class.is_none_or(|class| s.class == class));
            Figure::of(&own.filter_map(|sample| sample.value).collect::<Vec<_>>())
        };
        let (all, near, far) = (of(None), of(Some("near")), of(Some("far")));
        Self { who: raw.who, skipped: raw.skipped, all, near, far }
    }
}

/// Parses the output of a section into cases and notes.
pub(super) fn read(raw: &Value) -> Result<(Vec<Case>, Vec<String>)> {
    let raw = Raw::deserialize(raw)
        .map_err(|error| format!("its output is not what `mqnet-bench -j` prints: {error}"))?;
    let lines = |raw: Vec<RawLine>| raw.into_iter().map(Line::from).collect();
    let case = |raw: RawCase| Case {
        name: raw.name.trim().to_owned(),
        unit: raw.unit,
        lines: lines(raw.lines),
        ratios: lines(raw.ratios),
    };
    Ok((raw.cases.into_iter().map(case).collect(), raw.notes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Goal: distance classes are separate, a skipped contender keeps its reason, and unknown fields
    // of the output are ignored.
    #[test]
    fn output_is_read() {
        let sample = |value: f64, class: &str| json!({"value": value, "class": class});
        let raw = json!({"benchmark": "x", "new": 1, "notes": ["quiet"], "cases": [{
            "name": " a", "unit": {"kind": "frames", "bytes": 64},
            "lines": [
                {"who": "mqnet", "samples": [sample(1.0, "near"), sample(3.0, "far"),
                                             {"value": null, "class": "far"}]},
                {"who": "peer", "skipped": "gone", "samples": []}],
            "ratios": []}]});
        let (cases, notes) = read(&raw).unwrap();
        assert_eq!((cases.len(), notes), (1, vec!["quiet".to_owned()]));
        let case = &cases[0];
        assert_eq!((case.name.as_str(), case.unit.bytes), ("a", Some(64)));
        let [ours, peer] = case.lines.as_slice() else { panic!("{case:?}") };
        assert_eq!(ours.all.unwrap().median, 2.0);
        assert_eq!((ours.near.unwrap().median, ours.far.unwrap().median), (1.0, 3.0));
        assert_eq!((peer.all, peer.skipped.as_deref()), (None, Some("gone")));
        assert!(read(&json!({"cases": 1})).unwrap_err().to_string().contains("mqnet-bench"));
    }
}
