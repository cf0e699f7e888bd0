//! Requests with the answers of the kernel and of mqnet, and their differences.

use std::collections::BTreeMap;

use crate::Result;
use crate::guest::Outcome;

/// Request with the kernel's answer and mqnet's answer, as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name in the tables.
    pub name: String,
    /// Arguments of the command.
    pub what: String,
    /// Driver that answered for the kernel, or `recorded` for a stored answer from hardware.
    pub who: String,
    /// Answer of the kernel.
    pub kernel: Vec<String>,
    /// Answer of mqnet.
    pub ours: Vec<String>,
}

/// Difference between the answers to one request; either side may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the request.
    pub probe: String,
    /// Lines that only the kernel has printed.
    pub kernel: String,
    /// Lines that only mqnet has printed.
    pub ours: String,
}

impl Probe {
    /// Requests of a guest in the order of their execution.
    pub(super) fn all(outcome: &Outcome) -> Result<Vec<Self>> {
        let order = outcome.text("probes/order")?;
        order.lines().map(|line| Self::read(outcome, line)).collect()
    }

    fn read(outcome: &Outcome, line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split('\t').collect();
        let &[name, what, who] = words.as_slice() else {
            return Err(format!("no line of a probe: {line}").into());
        };
        let lines = |side: &str| -> Result<Vec<String>> {
            let text = outcome.text(&format!("probes/{name}.{side}"))?;
            Ok(text.lines().map(|line| without_offset(line.trim_end()).to_owned()).collect())
        };
        let (kernel, ours) = (lines("kernel")?, lines("ours")?);
        Ok(Self { name: name.into(), what: what.into(), who: who.into(), kernel, ours })
    }

    /// Difference between both answers; `None` if they are equal.
    pub fn difference(&self) -> Option<Difference> {
        if self.kernel == self.ours {
            return None;
        }
        let alone = (without(&self.kernel, &self.ours), without(&self.ours, &self.kernel));
        // If the answers differ only in the order of lines, all lines are the difference.
        let (kernel, ours) = if alone.0.is_empty() && alone.1.is_empty() {
            (self.kernel.join(" / "), self.ours.join(" / "))
        } else {
            (alone.0.join(" / "), alone.1.join(" / "))
        };
        Some(Difference { probe: self.name.clone(), kernel, ours })
    }
}

/// Line without the suffix `(offset N)`, which the kernel's ethtool adds to netlink errors; mqnet
/// receives no netlink requests.
fn without_offset(line: &str) -> &str {
    match line.split_once(" (offset ") {
        Some((error, _)) if line.starts_with("netlink error: ") => error,
        _ => line,
    }
}

/// Lines of `lines` that `others` does not contain or contains fewer times.
fn without(lines: &[String], others: &[String]) -> Vec<String> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    others.iter().for_each(|line| *left.entry(line).or_default() += 1);
    let mut alone = Vec::new();
    for line in lines {
        match left.get_mut(line.as_str()) {
            Some(count) if *count > 0 => *count -= 1,
            _ => alone.push(tidied(line)),
        }
    }
    alone
}

/// Replaces white space by single blanks, because tabs break a table.
fn tidied(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
