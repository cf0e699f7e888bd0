//! Configuration files of the daemon: paths and validation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use mqnet_address::CheckedLink;
use mqnet_address::config::{Config, Source};
use mqnet_command::Failure;
use mqnet_control_api::{ApiError, LinkSpec};
use mqnet_host::is_same_netdev;

use crate::endpoint;

/// Default path of the configuration file.
pub(crate) const DEFAULT_FILE: &str = "/etc/mqnet/mqnet.toml";

/// Folder next to the configuration file; its files add links.
const FOLDER: &str = "conf.d";

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration, and print one line FILE:LINE:COLUMN for each problem.
    Check {
        /// Configuration file; the files of conf.d/ in the same folder are read too.
        #[arg(default_value = DEFAULT_FILE)]
        file: PathBuf,
    },
}

/// Runs the command.
pub fn run(command: &ConfigCommand) -> Result<(), Failure> {
    let ConfigCommand::Check { file } = command;
    let sources = sources(file).map_err(Failure::BadInput)?;
    match Config::parse(&sources, check) {
        Ok(config) => {
            println!("{}: {}", file.display(), summary(&config, sources.len()));
            Ok(())
        }
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            Err(Failure::Exit(2))
        }
    }
}

/// Validates a link of a file or of the control interface, as far as possible without opening its
/// endpoints.
pub fn check(spec: &LinkSpec) -> Result<CheckedLink, ApiError> {
    let link = mqnet_address::check(spec)?;
    check_ends(&link)?;
    Ok(link)
}

/// Performs the part of [`check`] that uses the file system and the backends.
pub(crate) fn check_ends(link: &CheckedLink) -> Result<(), ApiError> {
    for (field, end) in [("a", &link.a), ("b", &link.b)] {
        endpoint::check(end, link.channels.unwrap_or(1))
            .map_err(|what| ApiError::field(field, format!("{field}: {what}")))?;
    }
    if is_same_netdev(&link.a, &link.b) {
        let (name, knob) = (link.b.config().netdev_name(), link.b.rename_knob());
        let why = format!("b: the other end of the link also has the name '{name}'{knob}");
        return Err(ApiError::field("b", why));
    }
    Ok(())
}

/// Reads the file, then the `.toml` files of `conf.d`, sorted by name.
pub(crate) fn sources(file: &Path) -> Result<Vec<Source>, String> {
    let read = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(Source { name: path.display().to_string(), text }),
        Err(e) => Err(format!("{}: {e}", path.display())),
    };
    let mut sources = vec![read(file)?];
    let folder = file.with_file_name(FOLDER);
    let wrong = |e: io::Error| format!("{}: {e}", folder.display());
    let entries = match fs::read_dir(&folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(sources),
        entries => entries.map_err(wrong)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(wrong)?.path());
    }
    // Skip names that begin with a dot: temporary files of editors.
    files.retain(|path| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.extension().is_some_and(|extension| extension == "toml")
    });
    files.sort_unstable();
    for file in files {
        sources.push(read(&file)?);
    }
    Ok(sources)
}

fn summary(config: &Config, files: usize) -> String {
    let names: Vec<&str> = config.links.keys().map(String::as_str).collect();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let (n, s, t) = (names.len(), plural(names.len()), plural(files));
    let list = if n == 0 { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("valid: {n} link{s}{list} in {files} file{t}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a link of two netdevs with one name is refused; if an endpoint has an option for the
    // name, the message names that option. One name in two namespaces, or in an unknown namespace,
    // is accepted.
    #[test]
    fn two_ends_have_two_names() {
        let check = |a: &str, b: &str| {
            let (a, b) = (a.to_owned(), b.to_owned());
            let spec =
                LinkSpec { a, b, channels: None, workers: None, cpus: None, poll_window: None };
            check(&spec).map_err(|e| e.message).err()
        };
        for (a, b, knob) in [
            ("tap:a", "tap:a,mtu=9000", ""),
            ("vhost-user:/x/card", "virtio-user:/y/card", ": set another one with name="),
            ("xdp:eth0", "xdp:eth0", ": set another one with name="),
            ("xdp:eth0", "tap:eth0", ""),
        ] {
            let why = check(a, b).unwrap_or_else(|| panic!("{a} {b}"));
            assert!(why.starts_with("b: ") && why.ends_with(&format!("'{knob}")), "{why}");
        }
        for (a, b) in [
            ("null:", "null:"),
            ("tap:t%d", "tap:t%d"),
            ("tap:a", "vhost-user:/x/a"),
            ("vhost-user:/x/card", "vhost-user:/y/card,name=other"),
            ("tap:a,netns=/nonexistent/x", "tap:a,netns=/nonexistent/y"),
            ("tap:a,netns=/proc/self/ns/net", "tap:a,netns=/nonexistent/y"),
        ] {
            assert_eq!(check(a, b), None, "{a} {b}");
        }
    }
}
