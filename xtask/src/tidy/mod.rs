//! Rules of the code and the layers, one per file. Nothing is configurable. Lists of exceptions may
//! only shrink.

mod banned_calls;
mod counters;
mod dead_files;
mod dependencies;
mod fences;
mod generated;
mod import_circles;
mod layer_readme;
mod lex;
mod machine_paths;
mod modules;
mod named_tests;
mod package;
mod repository;
mod repr_c;
mod safety_comments;
mod sizes;
mod source;
mod test_goals;
#[cfg(test)]
mod testing;
mod type_names;
mod unsafe_register;
mod vocabulary;

use std::fmt;
use std::path::Path;

use crate::Result;
use repository::Repository;

/// Rule: name in the output, and check.
type Rule = (&'static str, fn(&Repository, &mut Report));

const RULES: [Rule; 17] = [
    ("banned-call", banned_calls::check),
    ("counter", counters::check),
    ("dead-file", dead_files::check),
    ("dependency", dependencies::check),
    ("fence", fences::check),
    ("generated", generated::check),
    ("import-circle", import_circles::check),
    ("machine-path", machine_paths::check),
    ("named-test", named_tests::check),
    ("repr-c", repr_c::check),
    ("readme", layer_readme::check),
    ("safety", safety_comments::check),
    ("size", sizes::check),
    ("test-goal", test_goals::check),
    ("type-name", type_names::check),
    ("unsafe", unsafe_register::check),
    ("vocabulary", vocabulary::check),
];

/// One violation of one rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// Findings of all rules; `rule` is the current rule.
#[derive(Debug, Default)]
struct Report {
    rule: &'static str,
    findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, path: &str, line: usize, message: impl Into<String>) {
        let finding =
            Finding { path: path.to_owned(), line, rule: self.rule, message: message.into() };
        self.findings.push(finding);
    }
}

/// Checks the project below `root`, prints the findings, and returns their number.
pub(crate) fn run(root: &Path) -> Result<usize> {
    let repository = Repository::load(root)?;
    let mut report = Report::default();
    for (name, check) in RULES {
        report.rule = name;
        check(&repository, &mut report);
    }
    let mut findings = report.findings;
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", repository.files.len(), findings.len());
    Ok(findings.len())
}
