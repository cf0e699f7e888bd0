//! Rule: each layer and each crate states its purpose and rules in a short README.

use super::Report;
use super::repository::{LAYERS, Repository, SUPPORT};

/// Maximum number of lines in the README of a layer.
const LAYER_LINES: usize = 25;
/// Maximum number of lines in the README of a crate.
const CRATE_LINES: usize = 20;

pub(super) fn check(repository: &Repository, report: &mut Report) {
    for layer in LAYERS.iter().chain(&SUPPORT) {
        check_one(repository, report, "layer", layer, LAYER_LINES);
    }
    // The folder of xtask is also a crate; the loop above has checked it.
    let crates = repository.packages.iter().filter(|package| package.folder != package.layer());
    for package in crates {
        check_one(repository, report, "crate", &package.folder, CRATE_LINES);
    }
}

fn check_one(repository: &Repository, report: &mut Report, kind: &str, folder: &str, most: usize) {
    let path = format!("{folder}/README.md");
    let Some(text) = repository.files.get(&path) else {
        return report.add(&path, 1, format!("the {kind} has no README"));
    };
    let lines = text.lines().count();
    if lines > most {
        report.add(&path, 1, format!("{lines} lines, at most {most}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::findings;

    #[test]
    fn every_layer_has_a_short_readme() {
        let layers = LAYERS.iter().chain(&SUPPORT);
        let paths: Vec<String> = layers.map(|layer| format!("{layer}/README.md")).collect();
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (&path[..], "# x\n")).collect();
        assert_eq!(findings("readme", &files).len(), 0);
        let long = "\n".repeat(26);
        files[0].1 = &long;
        files.pop();
        assert_eq!(
            findings("readme", &files),
            [
                "memory/README.md:1: 26 lines, at most 25",
                "xtask/README.md:1: the layer has no README"
            ]
        );
    }

    #[test]
    fn every_crate_has_a_short_readme() {
        let layers = LAYERS.iter().chain(&SUPPORT);
        let paths: Vec<String> = layers.map(|layer| format!("{layer}/README.md")).collect();
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (&path[..], "# x\n")).collect();
        files.push(("device/a/Cargo.toml", "[package]\nname = \"a\"\n"));
        files.push(("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n"));
        let missing = "device/a/README.md:1: the crate has no README";
        assert_eq!(findings("readme", &files), [missing]);
        let long = "\n".repeat(21);
        files.push(("device/a/README.md", &long));
        let too_long = "device/a/README.md:1: 21 lines, at most 20";
        assert_eq!(findings("readme", &files), [too_long]);
    }
}
