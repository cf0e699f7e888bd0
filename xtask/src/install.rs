//! Installs the program with its units, man pages and completions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{Result, project};

/// Completions: shell, folder below the prefix, name of the file.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "share/bash-completion/completions", "mqnet"),
    ("zsh", "share/zsh/site-functions", "_mqnet"),
    ("fish", "share/fish/vendor_completions.d", "mqnet.fish"),
];

/// Files of `packaging/` with their folders below the prefix.
const FILES: [(&str, &str); 7] = [
    ("systemd/mqnet.service", "lib/systemd/system"),
    ("systemd/mqnet.socket", "lib/systemd/system"),
    ("systemd/mqnet@.service", "lib/systemd/system"),
    ("sysusers.d/mqnet.conf", "lib/sysusers.d"),
    ("tmpfiles.d/mqnet.conf", "lib/tmpfiles.d"),
    ("grafana/mqnet.json", "share/mqnet/grafana"),
    ("vhost-user/50-mqnet-net.json", "share/qemu/vhost-user"),
];

/// Builds the program and installs all files below `destdir` and `prefix`. The configuration in
/// `/etc/mqnet` is installed only if it does not exist.
pub(crate) fn run(prefix: &Path, destdir: Option<&Path>) -> Result<()> {
    let build = project::command("cargo").args(["build", "--release", "-p", "mqnet"]).status()?;
    if !build.success() {
        return Err("the program could not be built".into());
    }
    let program = project::target().join("release/mqnet");
    files(&program, &program, prefix, destdir)
}

/// Installs `program` and its files. `texts` is a build of mqnet that runs on this machine and
/// prints the man pages and completions.
pub(crate) fn files(
    program: &Path,
    texts: &Path,
    prefix: &Path,
    destdir: Option<&Path>,
) -> Result<()> {
    let root = project::root();
    let place = |path: &Path| match destdir {
        Some(destdir) => destdir.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    };
    let base = place(prefix);
    put(&fs::read(program)?, &base.join("bin/mqnet"), 0o755)?;
    // Link with the name that VMMs expect for a backend program.
    let backend = base.join("libexec/vhost-user-net");
    fs::create_dir_all(base.join("libexec"))?;
    let _ = fs::remove_file(&backend);
    std::os::unix::fs::symlink("../bin/mqnet", &backend)?;
    for (shell, folder, name) in COMPLETIONS {
        let made = Command::new(texts).args(["completions", shell]).output()?;
        put(&made.stdout, &base.join(folder).join(name), 0o644)?;
    }
    let pages = base.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    Command::new(texts).args(["man", "--out"]).arg(&pages).status()?;
    for (file, folder) in FILES {
        let from = root.join("packaging").join(file);
        let name = from.file_name().ok_or("a file without a name")?.to_owned();
        put(&fs::read(&from)?, &base.join(folder).join(name), 0o644)?;
    }
    let config = place(Path::new("/etc/mqnet/mqnet.toml"));
    if config.exists() {
        println!("kept {}", config.display());
    } else {
        put(&fs::read(root.join("packaging/mqnet.toml"))?, &config, 0o644)?;
    }
    Ok(())
}

fn put(content: &[u8], to: &Path, mode: u32) -> Result<()> {
    let failed = |e: std::io::Error| format!("{}: {e}", to.display());
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(to, content).map_err(failed)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(failed)?;
    println!("{}", to.display());
    Ok(())
}
