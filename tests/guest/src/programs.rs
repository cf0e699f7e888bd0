//! The project's programs for guests: static, so that the guest's C library does not matter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::image::Extra;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Cargo's profile for them. `$MQNET_GUEST_PROFILE` names another: measuring wants `release`.
const PROFILE: &str = "tested";
const PROFILE_CHOICE: &str = "MQNET_GUEST_PROFILE";
const PROGRAMS: [&str; 3] = ["mqnet", "guest-tunnel", "guest-flood"];

/// The profile that is in use.
pub fn profile() -> String {
    std::env::var(PROFILE_CHOICE).unwrap_or_else(|_| PROFILE.to_owned())
}

/// Builds the programs; cargo does nothing when they are up to date.
pub fn build() -> Result<()> {
    cargo(&["--bins", "-p", "mqnet", "-p", "mqnet-guest"])
}

/// Builds what these words choose.
fn cargo(words: &[&str]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    // What cargo told the running test about itself, its children would take for their own.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(root()).args(["build", "--quiet", "--profile", &profile()]);
    cargo.args(["--target", TARGET]).args(words);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").env("CARGO_TARGET_DIR", target());
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{cargo:?}: {status}").into()) }
}

/// Builds one more program, of another package, and returns its content.
pub fn build_one(package: &str, name: &str) -> Result<Vec<u8>> {
    cargo(&["-p", package, "--bin", name])?;
    let path = program(name);
    Ok(fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// The built programs, as files of a guest.
pub(crate) fn files() -> Result<Vec<Extra>> {
    let file = |name: &str| -> Result<Extra> {
        let path = program(name);
        let content = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Extra { path: format!("bin/{name}"), content })
    };
    PROGRAMS.into_iter().map(file).collect()
}

/// A built program, which runs on the host too.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join(TARGET).join(profile()).join(name)
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(set)
}
