//! Configuration files: `mqnet.toml`, and further files with links.
//!
//! ```toml
//! [daemon]
//! control-socket = "/run/mqnet/ctl.sock"
//! socket-mode = "0660"
//! socket-owner = "root:mqnet"
//! metrics = "127.0.0.1:9101"
//!
//! [link.vm0]
//! a = "tap:vm0"
//! b = "ntb:/run/vm0.sock"
//! channels = 4
//! ```

mod daemon;
mod diff;
mod document;
mod limits;
mod links;
mod policy;
mod settings;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use mqnet_control_api::{ApiError, LinkSpec};

use crate::CheckedLink;
use document::Document;

pub use daemon::DaemonConfig;
pub use diff::{LinkActions, diff};
pub use limits::Limits;
pub use policy::{Policy, is_below};
pub use settings::{configuration_page, default_of};

/// Configuration file: its name for messages, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the file.
    pub name: String,
    /// Text of the file.
    pub text: String,
}

/// Position in a file. Lines and columns count from 1; columns count characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// Name of the file.
    pub file: String,
    /// Line number.
    pub line: usize,
    /// Column number.
    pub column: usize,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Error in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Position of the error.
    pub place: FilePosition,
    /// Message of one line.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Link of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredLink {
    /// Specification of the link, as written.
    pub spec: LinkSpec,
    /// Specification of the link, parsed and checked.
    pub checked: CheckedLink,
    /// Position of the link's name.
    pub place: FilePosition,
}

/// Contents of all configuration files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Settings of the daemon.
    pub daemon: DaemonConfig,
    /// Resource limits for peers and clients.
    pub limits: Limits,
    /// Restrictions on the endpoints in requests.
    pub policy: Policy,
    /// Links by name.
    pub links: BTreeMap<String, ConfiguredLink>,
}

impl Config {
    /// Parses configuration files. Only the first file may contain `[daemon]`, `[limits]` and
    /// `[policy]`. `check` validates each link: [`crate::check`] or a stricter function. Returns
    /// all problems in file order if there are any.
    pub fn parse(
        sources: &[Source],
        check: impl Fn(&LinkSpec) -> Result<CheckedLink, ApiError>,
    ) -> Result<Self, Vec<Problem>> {
        let mut config = Self::default();
        let mut problems = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let mut document = Document::new(source);
            if let Some(table) = document.root() {
                for (key, value) in document::sorted(&table) {
                    match key.get_ref().as_ref() {
                        "daemon" if number == 0 => {
                            config.daemon = daemon::read(&mut document, key, value);
                        }
                        "limits" if number == 0 => {
                            config.limits = limits::read(&mut document, key, value);
                        }
                        "policy" if number == 0 => {
                            config.policy = policy::read(&mut document, key, value);
                        }
                        section @ ("daemon" | "limits" | "policy") => {
                            let first = &sources[0].name;
                            let what = format!("[{section}] is possible in {first} only");
                            document.report(key.span(), what);
                        }
                        "link" => {
                            links::read(&mut document, value, &mut config.links, &check);
                        }
                        _ => document.unknown(key, "", &["daemon", "limits", "policy", "link"]),
                    }
                }
            }
            problems.extend(document.finish());
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}
