//! Check of licenses, duplicates and sources of dependencies with cargo-deny (`deny.toml`).

use std::path::PathBuf;

use mqnet_guest::Store;

use crate::{Result, project};

const VERSION: &str = "0.20.2";

/// Manifest and lints of each workspace. An unused entry of `deny.toml` is an error in the main
/// workspace only, because the workspace of the fuzz targets needs fewer entries.
const WORKSPACES: [(&str, &[&str]); 2] = [
    (
        "Cargo.toml",
        &[
            "--deny=unmatched-skip",
            "--deny=license-not-encountered",
            "--allow=license-exception-not-encountered",
        ],
    ),
    (
        "tests/fuzz/Cargo.toml",
        &[
            "--allow=unmatched-skip",
            "--allow=license-not-encountered",
            "--allow=license-exception-not-encountered",
        ],
    ),
];

/// Installs cargo-deny if it is missing, and checks both workspaces.
///
/// If cargo-deny cannot be installed, the check is skipped; with `MQNET_NO_SKIP=1` that is an
/// error.
pub(crate) fn check() -> Result<()> {
    let program = match program() {
        Ok(program) => program,
        Err(error) if project::no_skip() => return Err(error),
        Err(error) => {
            println!("SKIP: {error}");
            return Ok(());
        }
    };
    for (manifest, lints) in WORKSPACES {
        let mut deny = project::command(&program.to_string_lossy());
        deny.args(["--locked", "--config", "deny.toml", "--manifest-path", manifest, "check"]);
        let status = deny.args(lints).args(["licenses", "bans", "sources"]).status()?;
        if !status.success() {
            return Err(format!("{manifest}: dependencies break a rule of deny.toml").into());
        }
    }
    Ok(())
}

/// Path of cargo-deny in the user's cache folder; built from source if it is missing.
fn program() -> Result<PathBuf> {
    let folder = Store::in_cache("tools")?.folder("cargo-deny", VERSION, |folder| {
        println!("installing cargo-deny {VERSION} (checks the dependencies)");
        let mut cargo = project::command("cargo");
        cargo.args(["install", "--quiet", "--locked", "--debug", "--no-default-features"]);
        cargo.args(["--version", VERSION, "cargo-deny", "--root"]).arg(folder);
        // Without optimization and debug information, the build takes a third of the time.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env_remove("CARGO_TARGET_DIR");
        let status = cargo.status()?;
        if !status.success() {
            return Err(format!("cargo-deny {VERSION}: cargo install: {status}").into());
        }
        Ok(())
    })?;
    Ok(folder.join("bin/cargo-deny"))
}

#[cfg(test)]
mod tests {
    use toml::{Table, Value};

    use super::*;

    #[test]
    fn every_duplicate_has_a_reason() {
        let rules = std::fs::read_to_string(project::root().join("deny.toml")).unwrap();
        let rules: Table = rules.parse().unwrap();
        let entries = rules["bans"]["skip"].as_array().unwrap();
        for entry in entries {
            let reason = entry.get("reason").and_then(Value::as_str);
            assert!(reason.is_some_and(|reason| reason.len() > 10), "{entry:?}");
        }
    }
}
