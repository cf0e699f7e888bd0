//! Crates of the workspace.

use toml::Table;

/// Crate with its folder and its parsed manifest.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: String,
    pub(crate) manifest: Table,
}

impl Package {
    /// Path of a file of this crate.
    pub(crate) fn file(&self, inner: &str) -> String {
        format!("{}/{inner}", self.folder)
    }

    pub(crate) fn layer(&self) -> &str {
        self.folder.split('/').next().unwrap_or_default()
    }
}
