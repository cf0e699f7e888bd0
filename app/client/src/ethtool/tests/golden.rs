//! Parser of recordings, and a recorder that runs the real ethtool.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

/// One command line and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) args: Vec<String>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: u8,
}

/// Parses a recording. Each case has the line `$ ["-l", "v0"]` (arguments), lines `1>...` (stdout)
/// and `2>...` (stderr), and the line `rc=N` (exit code).
pub(crate) fn read(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut args = Vec::new();
    let (mut out, mut err) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(json) = line.strip_prefix("$ ") {
            args = serde_json::from_str(json).unwrap();
        } else if let Some(line) = line.strip_prefix("1>") {
            writeln!(out, "{line}").unwrap();
        } else if let Some(line) = line.strip_prefix("2>") {
            writeln!(err, "{line}").unwrap();
        } else if let Some(exit) = line.strip_prefix("rc=") {
            let exit = exit.parse().unwrap();
            let (out, err) = (std::mem::take(&mut out), std::mem::take(&mut err));
            cases.push(Case { args: std::mem::take(&mut args), out, err, exit });
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "odd line {line:?}");
        }
    }
    cases
}

/// Returns true if the recordings can be repeated: ethtool 6.1 and a network namespace are
/// available.
pub(super) fn real_one_is_here() -> bool {
    let says = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).stderr(Stdio::null()).output();
        output
            .ok()
            .filter(|o| o.status.success())
            .map(|o| String::from_utf8_lossy(&o.stdout).into())
    };
    let version: Option<String> = says("ethtool", &["--version"]);
    let netns: Option<String> = says("unshare", &["-n", "ip", "link"]);
    version.as_deref() == Some("ethtool version 6.1\n") && netns.is_some()
}

/// Release of the running kernel.
pub(super) fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// Runs the real ethtool with the arguments of `cases` and returns its output. The shell commands
/// `setup` prepare a new network namespace.
pub(super) fn record(setup: &str, cases: &[Case]) -> Vec<Case> {
    let mut script = format!("{setup}\no=$(mktemp); e=$(mktemp)\n");
    for case in cases {
        let quoted = case.args.iter().map(|arg| format!(" '{}'", arg.replace('\'', r"'\''")));
        let args: String = quoted.collect();
        let json = serde_json::to_string(&case.args).unwrap();
        writeln!(script, "ethtool{args} >$o 2>$e </dev/null; rc=$?").unwrap();
        writeln!(script, "cat <<'END'\n$ {json}\nEND").unwrap();
        writeln!(script, "sed 's/^/1>/' $o; sed 's/^/2>/' $e; echo rc=$rc").unwrap();
    }
    script.push_str("rm -f $o $e\n");
    let output = Command::new("unshare").args(["-n", "sh", "-c", &script]).output().unwrap();
    read(&String::from_utf8(output.stdout).unwrap())
}
