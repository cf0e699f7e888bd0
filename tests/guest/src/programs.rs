//! The project's programs for guests, linked statically so that they do not depend on the guest's C
//! library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::image::Extra;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Target of arm64 guests.
pub(crate) const ARM64: &str = "aarch64-unknown-linux-gnu";
/// Default cargo profile. `$MQNET_GUEST_PROFILE` selects another one: measurements need `release`.
const PROFILE: &str = "tested";
const PROFILE_CHOICE: &str = "MQNET_GUEST_PROFILE";
const PROGRAMS: [&str; 3] = ["mqnet", "guest-tunnel", "guest-flood"];

/// Selected profile.
pub fn profile() -> String {
    std::env::var(PROFILE_CHOICE).unwrap_or_else(|_| PROFILE.to_owned())
}

/// Builds the programs; cargo does nothing when they are up to date.
pub fn build() -> Result<()> {
    cargo(TARGET, &["--bins", "-p", "mqnet", "-p", "mqnet-guest"])
}

/// Builds the program for arm64 guests, and returns its content.
pub(crate) fn build_arm64() -> Result<Vec<u8>> {
    cargo(ARM64, &["-p", "mqnet", "--bin", "mqnet"])?;
    let path = target().join(ARM64).join(profile()).join("mqnet");
    Ok(fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// Runs `cargo build` for a target with these arguments.
fn cargo(target: &str, words: &[&str]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    // Remove variables that cargo sets for the package of the running test: build scripts of other
    // packages would read them.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(root()).args(["build", "--quiet", "--profile", &profile()]);
    cargo.args(["--target", target]).args(words);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static").env("CARGO_TARGET_DIR", self::target());
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{cargo:?}: {status}").into()) }
}

/// Builds a program of another package, and returns its content.
pub fn build_one(package: &str, name: &str) -> Result<Vec<u8>> {
    cargo(TARGET, &["-p", package, "--bin", name])?;
    let path = program(name);
    Ok(fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// Built programs, as files of a guest.
pub(crate) fn files() -> Result<Vec<Extra>> {
    let file = |name: &str| -> Result<Extra> {
        let path = program(name);
        let content = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Extra { path: format!("bin/{name}"), content })
    };
    PROGRAMS.into_iter().map(file).collect()
}

/// Path of a built program, which also runs on the host.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join(TARGET).join(profile()).join(name)
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Build folder of cargo.
pub(crate) fn target() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(set)
}
