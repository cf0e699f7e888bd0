//! All files of the project in memory: files that git tracks, and untracked files that are not
//! ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use toml::Table;

use super::modules;
use super::package::Package;
use super::source::Source;
use crate::Result;

/// Layers in ascending order; a layer may use the layers before it.
pub(crate) const LAYERS: [&str; 9] =
    ["memory", "packet", "device", "backend", "runtime", "app", "lib", "tools", "bin"];

/// Folders outside the layers; their crates may use all crates.
pub(crate) const SUPPORT: [&str; 2] = ["tests", "xtask"];

/// Project as the rules read it.
#[derive(Debug)]
pub(crate) struct Repository {
    /// Text of every text file, by its path from the root.
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) sources: Vec<Source>,
    pub(crate) packages: Vec<Package>,
    /// Paths of the Rust files that some crate compiles.
    pub(crate) reached: BTreeSet<String>,
}

impl Repository {
    /// Reads the files that `git ls-files` lists below `root`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if !listing.status.success() {
            return Err(String::from_utf8_lossy(&listing.stderr).into());
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listing.stdout).split_terminator('\0') {
            // Skip files that were deleted without a commit, and binary files: git lists both.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(path.to_owned(), text);
            }
        }
        Self::new(files)
    }

    /// Project that consists exactly of `files`.
    pub(crate) fn new(files: BTreeMap<String, String>) -> Result<Self> {
        let mut packages = Vec::new();
        for (path, text) in &files {
            let Some(folder) = path.strip_suffix("/Cargo.toml") else { continue };
            let manifest: Table = text.parse().map_err(|error| format!("{path}: {error}"))?;
            let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
            if let Some(name) = name.map(str::to_owned) {
                packages.push(Package { name, folder: folder.to_owned(), manifest });
            }
        }
        let mut sources: Vec<Source> = files
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| Source::new(path, text))
            .collect();
        let reached = modules::mark_tests(&packages, &mut sources);
        Ok(Self { files, sources, packages, reached })
    }

    /// Sources of shipped code: the layers, without tests and xtask.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| LAYERS.contains(&source.layer()))
    }
}
