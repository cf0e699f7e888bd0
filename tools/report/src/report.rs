//! Results of a run for programs: `report.json`, which is also the format of a baseline.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::{Limits, MachineShare};
use super::machine::Machine;
use super::measured::Case;
use super::peers::Peer;
use super::verdict::Verdict;
use crate::Result;

/// Version of the format; increased when a reader of older reports would misinterpret it.
pub(super) const VERSION: u32 = 1;

/// Results of one run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) version: u32,
    pub(super) date: String,
    /// Commit of the project, followed by `+` if files were changed.
    pub(super) commit: String,
    pub(super) program: String,
    pub(super) quick: bool,
    pub(super) machine: Machine,
    pub(super) limits: Limits,
    pub(super) peers: Vec<Peer>,
    pub(super) promises: Vec<Verdict>,
    pub(super) sections: Vec<Section>,
}

/// One section of the run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) answers: String,
    /// Command that prints the section's figures as a table.
    pub(super) command: String,
    pub(super) seconds: f64,
    /// Date and commit of figures measured by another command.
    #[serde(default)]
    pub(super) kept: Option<Kept>,
    /// Reason why there are no figures.
    pub(super) skipped: Option<String>,
    pub(super) notes: Vec<String>,
    pub(super) cases: Vec<Case>,
    /// Figures of mqnet in relation to the limits of the machine.
    pub(super) beside: Vec<MachineShare>,
    /// Unparsed output of the section.
    pub(super) raw: Value,
}

/// Date and commit of the oldest part of a section measured by other commands.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) date: String,
    pub(super) commit: String,
}

impl Kept {
    /// Date and commit as text.
    pub(super) fn when(&self) -> String {
        let Self { date, commit } = self;
        format!("{}, {commit}", date.get(..10).unwrap_or(date))
    }
}

impl Report {
    pub(super) fn load(path: &Path) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("{}: {error} (`cargo xtask bench` writes such a report)", path.display())
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        let report: Self = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        if report.version != VERSION {
            let why = format!("has version {}, this is {VERSION}", report.version);
            return Err(failed(&why).into());
        }
        Ok(report)
    }

    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(())
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}
