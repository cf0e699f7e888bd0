//! What was asked, what both answered, and how that differs.

use std::collections::BTreeMap;

use crate::Result;
use crate::guest::Outcome;

/// Reasons quote whole commands.
const REASON_CHARS: usize = 60;

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
            Ok(text.lines().map(|line| line.trim_end().to_owned()).collect())
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

/// How one of the kernel's tests ended on one netdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Program and case: `queues.check_down`.
    pub test: String,
    /// On the VDUSE card: `pass`, `fail`, `skip: REASON`.
    pub vduse: String,
    /// On virtio-net with several queues, behind `vhost-user:`.
    pub vhost_user: String,
}

impl Answer {
    /// Every case of every program.
    pub(super) fn all(outcome: &Outcome, programs: &[&str]) -> Result<Vec<Self>> {
        let mut answers = Vec::new();
        for program in programs {
            let text = |folder| outcome.text(&format!("selftests/{folder}/{program}"));
            let (vduse, vhost_user) = (cases(&text("vduse")?), cases(&text("vhost-user")?));
            let names = vduse.iter().chain(&vhost_user).map(|(name, _)| name);
            let mut seen: Vec<&String> = Vec::new();
            for name in names {
                if !seen.contains(&name) {
                    seen.push(name);
                }
            }
            let end = |of: &[(String, String)], name: &String| {
                let found = of.iter().find(|(other, _)| other == name);
                found.map_or_else(|| "missing".to_owned(), |(_, end)| end.clone())
            };
            answers.extend(seen.into_iter().map(|name| Self {
                test: name.clone(),
                vduse: end(&vduse, name),
                vhost_user: end(&vhost_user, name),
            }));
            if vduse.is_empty() && vhost_user.is_empty() {
                return Err(format!("{program} ran no test: {}", text("vduse")?).into());
            }
        }
        Ok(answers)
    }
}

/// The cases in the output of a test program (the kernel's dialect of TAP), with their ends. A
/// failed one has the last line of what it says before it.
pub(super) fn cases(text: &str) -> Vec<(String, String)> {
    let (mut cases, mut said) = (Vec::new(), "");
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ").map(|words| words.trim_end()) {
            let words = words.strip_prefix("Exception|").unwrap_or(words).trim();
            said = if words.is_empty() { said } else { words };
        } else if let Some((name, end)) = case(line) {
            let short: String = said.chars().take(REASON_CHARS).collect();
            let end = if end == "fail" { format!("fail: {short}") } else { end };
            cases.push((name, end));
            said = "";
        }
    }
    cases
}

fn case(line: &str) -> Option<(String, String)> {
    let (end, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => ("fail", rest),
        None => ("pass", line.strip_prefix("ok ")?),
    };
    let (_, rest) = rest.split_once(' ')?;
    let (name, remark) = rest.split_once(" # ").unwrap_or((rest, ""));
    let end = match remark.split_once(' ').unwrap_or((remark, "")) {
        ("SKIP", "") => "skip".to_owned(),
        ("SKIP", why) => format!("skip: {why}"),
        ("XFAIL", _) => "expected to fail".to_owned(),
        _ => end.to_owned(),
    };
    Some((name.trim().to_owned(), end))
}
