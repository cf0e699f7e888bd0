//! Folders of the project, and commands without cargo's variables.

use std::path::PathBuf;
use std::process::Command;

/// Root of the repository.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.map_or_else(|| here.clone(), PathBuf::from)
}

/// Build folder of cargo.
pub fn target() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(folder)
}

/// Command that runs in the root, without cargo's variables for xtask. A child process would apply
/// these variables to other packages and build them again.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(root());
    command
}

/// Folder of the figures that tests and guests have stored.
pub fn figures() -> PathBuf {
    target().join("figures")
}

/// True if a missing precondition must fail the run, as in CI, where everything is installed.
pub fn no_skip() -> bool {
    std::env::var_os("MQNET_NO_SKIP").is_some_and(|value| value == "1")
}

/// Factor of all time limits: a third of `MQNET_ROUNDS`, at least 1. Tests that repeat ends and
/// restarts take longer with more rounds; 3 rounds fit the usual limits.
pub fn time_factor() -> u32 {
    let rounds = std::env::var("MQNET_ROUNDS").ok().and_then(|text| text.parse::<u32>().ok());
    rounds.map_or(1, |rounds| rounds.div_ceil(3).clamp(1, 1000))
}

/// Commit of the work tree, followed by `+` if files were changed; "unknown" without git.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut command = self::command("git");
        let output = command.args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_none_or(|changed| changed.is_empty()) { commit } else { format!("{commit}+") }
}
