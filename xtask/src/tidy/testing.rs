//! Shared code for tests of the rules: projects that consist of a few strings.

use super::repository::Repository;
use super::{RULES, Report};

/// Project of `files`; a crate without a manifest gets a minimal manifest.
pub(crate) fn repository(files: &[(&str, &str)]) -> Repository {
    let mut all: std::collections::BTreeMap<String, String> =
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    for (path, _) in files {
        if let Some((folder, _)) = path.split_once("/src/") {
            let name = folder.rsplit('/').next().unwrap();
            all.entry(format!("{folder}/Cargo.toml"))
                .or_insert_with(|| format!("[package]\nname = \"mqnet-{name}\"\n"));
        }
    }
    Repository::new(all).unwrap()
}

/// Findings of one rule on `files`: `path:line: message`, sorted.
pub(crate) fn findings(rule: &str, files: &[(&str, &str)]) -> Vec<String> {
    let (name, check) = RULES.into_iter().find(|(name, _)| *name == rule).unwrap();
    let mut report = Report { rule: name, findings: Vec::new() };
    check(&repository(files), &mut report);
    report.findings.sort();
    report.findings.iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.message)).collect()
}

/// `path:line` of each finding, which suffices if the message is fixed.
pub(crate) fn places(rule: &str, files: &[(&str, &str)]) -> Vec<String> {
    let mut found = findings(rule, files);
    for finding in &mut found {
        let end = finding.find(": ").unwrap();
        finding.truncate(end);
    }
    found
}
