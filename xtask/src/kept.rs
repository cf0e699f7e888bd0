//! Figures of tests and guests, stored in the build folder for the report of `cargo xtask bench`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use mqnet_testkit::Figures;

use crate::{Result, project};

/// Build profile of the program under test (`test/steps.rs`). Figures of other profiles are not
/// stored.
pub(crate) const PROFILE: &str = "tested";

/// Stores the figures of an xtask command, with the commit at the start of the command.
pub(crate) fn keep(figures: Figures, commit: &str) -> Result<()> {
    let folder = project::figures();
    let kept = figures.keep_in(&folder, commit, PROFILE);
    kept.map_err(|error| format!("{}: {error}", folder.display()).into())
}

/// Deletes the stored figures of the same section and part.
pub(crate) fn forget(figures: &Figures) {
    // Errors are ignored: the file may not exist.
    let _ = fs::remove_file(project::figures().join(figures.file()));
}

/// Figures of one test, stored when the test has passed.
pub(crate) struct OfTest {
    /// Folder of all stored figures.
    kept: PathBuf,
    /// Folder with the new figures of this test, and a mark for each stored part.
    own: PathBuf,
}

impl OfTest {
    /// Sets the environment of a test for its figures, with this commit, and removes new figures of
    /// an earlier run.
    pub(crate) fn of(name: &str, commit: &str, program: &mut Command) -> Result<Self> {
        let of_test = Self::within(project::figures(), name);
        let new = of_test.own.join("new");
        if new.exists() {
            // An interrupted earlier run may have left new figures.
            fs::remove_dir_all(&new)?;
        }
        program.env("MQNET_FIGURES", new).env("MQNET_COMMIT", commit);
        program.env("MQNET_PROFILE", PROFILE);
        Ok(of_test)
    }

    fn within(kept: PathBuf, name: &str) -> Self {
        let own = kept.join("of").join(name.replace("::", "."));
        Self { kept, own }
    }

    /// Stores the figures of a passed test. After a failure, the new figures and those of the last
    /// successful run are deleted, because they may no longer be true.
    pub(crate) fn settle(self, passed: bool) -> io::Result<()> {
        let new = self.own.join("new");
        let files = |folder: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
        };
        if !passed {
            for name in files(&self.own).iter().filter_map(|mark| mark.file_name()) {
                let kept = self.kept.join(name);
                if kept.exists() {
                    fs::remove_file(kept)?;
                }
            }
            return if self.own.exists() { fs::remove_dir_all(self.own) } else { Ok(()) };
        }
        for file in files(&new) {
            let Some(name) = file.file_name() else { continue };
            // An empty file in the test's folder marks the part as belonging to the test.
            fs::write(self.own.join(name), "")?;
            fs::rename(&file, self.kept.join(name))?;
        }
        if new.exists() { fs::remove_dir(new) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: figures are stored after their test has passed and deleted after a later failure.
    // Figures of other tests are not changed, and a test without figures is not an error.
    #[test]
    fn figures_are_those_of_tests_that_pass() {
        let folder = project::target().join("bench-tests").join("kept");
        let _ = fs::remove_dir_all(&folder);
        let run = |test: &str, part: &str, passed: bool| {
            let of_test = OfTest::within(folder.clone(), test);
            let figures = Figures::of("resize", part);
            figures.keep_in(&of_test.own.join("new"), "0123", "tested").unwrap();
            of_test.settle(passed).unwrap();
        };
        let there = |part: &str| folder.join(format!("resize.{part}.json")).exists();
        run("resize::one", "a", false);
        assert!(!there("a"));
        run("resize::one", "a", true);
        run("resize::two", "b", true);
        assert!(there("a") && there("b"));
        let nothing = OfTest::within(folder.clone(), "resize::three");
        nothing.settle(true).unwrap();
        OfTest::within(folder.clone(), "resize::one").settle(false).unwrap();
        OfTest::within(folder.clone(), "resize::three").settle(false).unwrap();
        assert!(!there("a") && there("b"));
    }
}
