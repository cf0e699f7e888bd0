//! Results of the kernel's own tests, parsed from their output.

use super::kernel_tests::Program;
use crate::Result;

/// Maximum number of characters of a reason, because reasons may quote whole commands.
const REASON_CHARS: usize = 60;
/// Exit code of the kernel's tests for a skipped test.
const SKIPPED: &str = "4";
/// Blank, and separator of table cells.
const BETWEEN: [char; 2] = [' ', '|'];
const LATE: [&str; 2] = ["124", "137"];

/// Result of one of the kernel's tests on both kinds of netdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Program and case, such as `queues.check_down`.
    pub test: String,
    /// Result on the VDUSE device: `pass`, `fail`, `skip: REASON`.
    pub vduse: String,
    /// Result on virtio-net with several queues, served by `vhost-user:`.
    pub vhost_user: String,
}

impl Answer {
    /// Results of every case of a program, from its output on VDUSE and on virtio-net. If all cases
    /// have the same pair of results, or all are skipped, they are combined into one entry with the
    /// first pair.
    pub(super) fn of(
        program: &Program,
        vduse: &[String; 2],
        vhost_user: &[String; 2],
    ) -> Result<Vec<Self>> {
        let (vduse, vhost_user) = (best(program, vduse)?, best(program, vhost_user)?);
        let mut seen: Vec<&str> = Vec::new();
        for (name, _) in vduse.iter().chain(&vhost_user) {
            if !seen.contains(&name.as_str()) {
                seen.push(name);
            }
        }
        let end = |of: &[(String, String)], name: &str| {
            // An entry without a name is the result of the whole program, and so of each case.
            let found = of.iter().find(|(other, _)| other == name || other.is_empty());
            found.map_or_else(|| "missing".to_owned(), |(_, end)| end.clone())
        };
        let label = program.label();
        let answer = |name: &str| Self {
            test: if name.is_empty() { label.clone() } else { format!("{label}.{name}") },
            vduse: end(&vduse, name),
            vhost_user: end(&vhost_user, name),
        };
        let all: Vec<Self> = seen.iter().map(|name| answer(name)).collect();
        let first = all.first().ok_or_else(|| format!("{label} says nothing"))?;
        let same = |a: &Self| (&a.vduse, &a.vhost_user) == (&first.vduse, &first.vhost_user);
        let skips = |a: &Self| [&a.vduse, &a.vhost_user].iter().all(|end| end.starts_with("skip"));
        if all.len() > 1 && (all.iter().all(same) || all.iter().all(skips)) {
            let test = format!("{label} (all {})", all.len());
            return Ok(vec![Self { test, ..first.clone() }]);
        }
        Ok(all)
    }
}

/// Combined results of two attempts. The first attempt counts alone if the second is empty;
/// otherwise a case has passed if it passed in either attempt.
fn best(program: &Program, [first, second]: &[String; 2]) -> Result<Vec<(String, String)>> {
    let first = ends(program, first)?;
    if second.is_empty() {
        return Ok(first);
    }
    let passed = |(_, end): &&(String, String)| end.starts_with("pass");
    let passed: Vec<(String, String)> = first.iter().filter(passed).cloned().collect();
    let mut best = ends(program, second)?;
    for (name, end) in &mut best {
        if let Some((_, good)) = passed.iter().find(|(known, _)| known == name) {
            end.clone_from(good);
        }
    }
    Ok(best)
}

/// Results of the cases of a program, or one unnamed result if the program has no cases.
fn ends(program: &Program, text: &str) -> Result<Vec<(String, String)>> {
    let (printed, status) =
        text.rsplit_once("\nstatus ").ok_or_else(|| format!("{}: no status", program.label()))?;
    let status = status.trim();
    let whole = |end: String| Ok(vec![(String::new(), end)]);
    if LATE.contains(&status) {
        return whole(format!("not done after {} s", program.seconds));
    }
    if program.is_python() {
        let cases = cases(printed);
        return if cases.is_empty() { whole(alone(printed, status)) } else { Ok(cases) };
    }
    whole(script(printed, status))
}

/// Result of a Python program that ran no case.
fn alone(printed: &str, status: &str) -> String {
    let reason = last_words(printed);
    match status {
        _ if printed.contains("1..0") || status == SKIPPED => format!("skip: {reason}"),
        _ => format!("fail: {reason}"),
    }
}

/// Result of a shell script: the first failed test, the number of passed tests, or the reason of a
/// skip.
fn script(printed: &str, status: &str) -> String {
    let tests = |end: &'static str| {
        let lines = printed.lines().filter_map(|line| line.strip_prefix("TEST: "));
        lines.filter_map(move |line| Some(line.strip_suffix(end)?.trim().to_owned()))
    };
    let (passed, skipped) = (tests("[ OK ]").count(), tests("[SKIP]").count());
    let failed = tests("[FAIL]").next();
    match (status, failed) {
        (_, Some(name)) => format!("fail: {}", short(&name)),
        ("0", None) if skipped == 0 => format!("pass: {passed}"),
        ("0" | SKIPPED, None) if passed > 0 && skipped > 0 => {
            format!("pass: {passed}, skip: {skipped}")
        }
        (SKIPPED, None) => format!("skip: {}", last_words(printed)),
        _ => format!("fail: {}", last_words(printed)),
    }
}

fn last_words(printed: &str) -> String {
    let line =
        printed.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // Remove the prefix of a remark or of a skipped test, if any.
    let line = line.trim_start_matches("# ").trim_start_matches("TEST: ");
    short(line.trim_start_matches("SKIP: ").split("  [").next().unwrap_or(line))
}

/// Shortens a text to the width of a table cell and replaces white space by single blanks.
fn short(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = words.chars().take(REASON_CHARS).collect();
    short.trim_end().to_owned()
}

/// Pairs of case and result in the output of a test program (the kernel's variant of TAP). The
/// reason of a failed case is the last remark before its result line.
pub(super) fn cases(text: &str) -> Vec<(String, String)> {
    let (mut cases, mut printed) = (Vec::new(), "");
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ").map(|words| words.trim_end()) {
            let words = words.strip_prefix("Exception|").unwrap_or(words).trim_matches(BETWEEN);
            printed = if words.is_empty() { printed } else { words };
        } else if let Some((name, end)) = case(line) {
            let short: String = printed.chars().take(REASON_CHARS).collect();
            let end = if end == "fail" { format!("fail: {}", short.trim_end()) } else { end };
            cases.push((name, end));
            printed = "";
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
    // The case follows its number and the program's name.
    let name = name.trim();
    let end = match remark.split_once(' ').unwrap_or((remark, "")) {
        ("SKIP", "") => "skip".to_owned(),
        ("SKIP", why) => format!("skip: {why}"),
        ("XFAIL", why) => format!("expected to fail: {why}"),
        _ => end.to_owned(),
    };
    let own = name.split_once('.').map_or(name, |(_, own)| own);
    Some((own.to_owned(), end))
}
