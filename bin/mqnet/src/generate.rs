//! `mqnet completions` and `mqnet man`: what a package installs beside the program.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::{Cli, Failure};
use crate::stats::put;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for the pages, one for each command; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Writes the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "mqnet", &mut text);
    put(out, &String::from_utf8_lossy(&text))
}

/// Writes the man pages.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let place = |e: std::io::Error| Failure::Broken(format!("{}: {e}", args.out.display()));
    std::fs::create_dir_all(&args.out).map_err(place)?;
    clap_mangen::generate_to(Cli::command(), &args.out).map_err(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every shell gets completions that know a command and an option of it.
    #[test]
    fn completions_of_every_shell() {
        use clap::ValueEnum;
        for &shell in Shell::value_variants() {
            let mut out = Vec::new();
            completions(&CompletionsArgs { shell }, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("bench") && text.contains("channels"), "{shell}");
        }
    }

    // Goal: each visible command has its page, a hidden one has none, and a directory that cannot
    // be made is named.
    #[test]
    fn a_page_for_each_command() {
        let folder = std::env::temp_dir().join(format!("mqnet-man-{}", std::process::id()));
        man(&ManArgs { out: folder.join("man1") }).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.join("man1").join(name));
        assert!(page("mqnet.1").unwrap().contains(".TH mqnet 1"));
        assert!(page("mqnet-link.1").unwrap().contains("channels"));
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = format!("mqnet-{}.1", command.get_name());
            assert!(page(&name).is_ok(), "{name}");
        }
        assert!(page("mqnet-demo-host.1").is_err());
        let below_a_file = folder.join("man1/mqnet.1/x");
        let Err(Failure::Broken(what)) = man(&ManArgs { out: below_a_file }) else { panic!() };
        assert!(what.contains("mqnet.1/x"), "{what}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
