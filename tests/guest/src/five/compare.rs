//! What was asked, what both answered, and how that differs.

use std::collections::BTreeMap;

use crate::Result;
use crate::guest::Outcome;

/// A question and both answers, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its name in the tables.
    pub name: String,
    /// The words of the command.
    pub what: String,
    /// Who answered for the kernel: a driver, or `recorded` for what needs hardware.
    pub who: String,
    /// The kernel's answer.
    pub kernel: Vec<String>,
    /// Ours.
    pub ours: Vec<String>,
}

/// Where the answers to one question differ; either side may say nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the question.
    pub probe: String,
    /// What the kernel alone says.
    pub kernel: String,
    /// What we alone say.
    pub ours: String,
}

impl Probe {
    /// The questions of a guest, in their order.
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

    /// None when both answered the same.
    pub fn difference(&self) -> Option<Difference> {
        if self.kernel == self.ours {
            return None;
        }
        let alone = (without(&self.kernel, &self.ours), without(&self.ours, &self.kernel));
        // The same lines in another order: all of them are the difference.
        let (kernel, ours) = if alone.0.is_empty() && alone.1.is_empty() {
            (self.kernel.join(" / "), self.ours.join(" / "))
        } else {
            (alone.0.join(" / "), alone.1.join(" / "))
        };
        Some(Difference { probe: self.name.clone(), kernel, ours })
    }
}

/// A line without the offset in a netlink request: the kernel's ethtool adds it to errors, ours has
/// no such requests.
fn without_offset(line: &str) -> &str {
    match line.split_once(" (offset ") {
        Some((error, _)) if line.starts_with("netlink error: ") => error,
        _ => line,
    }
}

/// The lines that `others` does not have, or not as often.
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

/// Tabs would not survive in a table.
fn tidied(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
