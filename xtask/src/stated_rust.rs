//! Check of the workspace with exactly the Rust version that `Cargo.toml` states.

use toml::{Table, Value};

use crate::{Result, project};

/// Installs the stated toolchain with rustup if it is missing, and checks all libraries and
/// programs with that toolchain.
///
/// Without rustup the check is skipped; with `MQNET_NO_SKIP=1` that is an error.
pub(crate) fn check() -> Result<()> {
    let manifest = std::fs::read_to_string(project::root().join("Cargo.toml"))?;
    let version = stated_version(&manifest)?;
    if !runs("rustup", &["--version"]) {
        if project::no_skip() {
            return Err("rustup is missing: it provides the stated Rust version".into());
        }
        println!("SKIP: rustup is missing");
        return Ok(());
    }
    if !runs("rustup", &["run", &version, "cargo", "--version"]) {
        let install = ["toolchain", "install", "--profile", "minimal", &version];
        let status = project::command("rustup").args(install).status()?;
        if !status.success() {
            return Err(format!("rustup toolchain install {version}: {status}").into());
        }
    }
    // `cargo +VERSION` needs the proxy of rustup; under `cargo run`, the toolchain's cargo precedes
    // the proxy in the path.
    let mut cargo = project::command("rustup");
    cargo.args(["run", &version, "cargo", "check", "--quiet", "--locked"]);
    // Only libraries and programs are checked: developers run tests with the current version.
    cargo.args(["--workspace", "--target-dir"]);
    cargo.arg(project::target().join("stated-rust"));
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("the workspace does not build with Rust {version}: {status}").into());
    }
    println!("the workspace builds with Rust {version}");
    Ok(())
}

/// True if the command starts and succeeds. Its output is discarded.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let output = project::command(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// `workspace.package.rust-version`, completed to the three numbers that name a toolchain.
fn stated_version(manifest: &str) -> Result<String> {
    let table: Table = manifest.parse()?;
    let package = table.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")).and_then(Value::as_str);
    let version = version.ok_or("Cargo.toml states no workspace.package.rust-version")?;
    let missing = 2_usize.saturating_sub(version.matches('.').count());
    Ok(format!("{version}{}", ".0".repeat(missing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_version_names_a_toolchain() {
        let manifest = "[workspace.package]\nrust-version = \"1.89\"\n";
        assert_eq!(stated_version(manifest).unwrap(), "1.89.0");
        let manifest = "[workspace.package]\nrust-version = \"1.89.1\"\n";
        assert_eq!(stated_version(manifest).unwrap(), "1.89.1");
        assert!(stated_version("[workspace]\n").is_err());
    }

    /// Goal: the README and the manifest state the same version.
    #[test]
    fn readme_states_the_version_of_the_manifest() {
        let root = project::root();
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        let version = stated_version(&manifest).unwrap();
        let short = version.strip_suffix(".0").unwrap_or(&version);
        assert!(readme.contains(&format!("Rust {short} or newer")), "README.md: not Rust {short}");
    }
}
