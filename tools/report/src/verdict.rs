//! Verdicts on promises.

use serde::{Deserialize, Serialize};

use super::interval::Figure;

/// Outcome of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Met,
    Missed,
    NotMeasured,
}

/// Verdict on a promise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) text: String,
    pub(super) section: Option<String>,
    /// Promised bound as text.
    pub(super) promised: String,
    pub(super) bound: Option<f64>,
    /// Measured figure as text, or the reason why there is none.
    pub(super) measured: String,
    pub(super) figure: Option<Figure>,
    /// Date of a figure measured by another command.
    #[serde(default)]
    pub(super) since: Option<String>,
    /// Medians of the samples with and without a shared cache of the two CPUs.
    #[serde(default)]
    pub(super) places: [Option<f64>; 2],
    pub(super) outcome: Outcome,
    /// True if the interval of the median includes the bound.
    pub(super) unsure: bool,
    /// True if the section ran and lacks a name in the promise's entry, so that the table is out of
    /// date.
    pub(super) stale: bool,
    /// Reason of a miss.
    #[serde(default)]
    pub(super) why: Option<String>,
}
