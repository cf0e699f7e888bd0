//! `mqnet completions` and `mqnet man`: files that a package installs with the program.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use mqnet_command::{Failure, put};

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell.
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for the pages, one for each command; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CompleteAddressArgs {
    /// Start of an address.
    #[arg(allow_hyphen_values = true)]
    text: String,
}

/// Completion of endpoint addresses in bash, which splits words at ':' and '='.
const BASH_ADDRESSES: &str = r#"
_mqnet_address() {
    _mqnet "$@"
    local word=${COMP_LINE:0:COMP_POINT}
    word=${word##*[[:space:]]}
    # The value of an option is none.
    [[ ${COMP_WORDS[COMP_CWORD-1]} == -* ]] && return
    case ${COMP_WORDS[1]}:$word in
        link:-* | add:-*) ;;
        link:* | add:*)
            local found
            mapfile -t found < <(mqnet complete-address "$word" 2>/dev/null | cut -f 1)
            [[ ${#found[@]} -eq 0 && $word != *[:,]* ]] && return
            compopt -o nospace
            COMPREPLY=("${found[@]#"${word%"${word##*[:=]}"}"}")
            ;;
    esac
}
complete -F _mqnet_address -o bashdefault -o default mqnet
"#;

/// Completion of endpoint addresses in zsh; inserted before the function of the command.
const ZSH_ADDRESSES: &str = r#"
_mqnet_address() {
    local -a found=(${(f)"$(mqnet complete-address "$PREFIX" 2>/dev/null | cut -f 1)"})
    compadd -S '' -- $found || _default
}

_mqnet() {"#;

/// Completion of endpoint addresses in fish.
const FISH_ADDRESSES: &str = r#"
complete -c mqnet -n "__fish_mqnet_using_subcommand link add" \
    -a "(mqnet complete-address (commandline -ct) 2>/dev/null)"
"#;

/// Writes the completions of a shell for `command`.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: Command,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "mqnet", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    match args.shell {
        Shell::Bash => text += BASH_ADDRESSES,
        Shell::Fish => text += FISH_ADDRESSES,
        Shell::Zsh => {
            text = text.replacen("\n_mqnet() {", ZSH_ADDRESSES, 1);
            // The positional arguments `a` and `b` of every command are addresses.
            let lines = text.split_inclusive('\n').map(|line| match line.get(..7) {
                Some("':a -- " | "':b -- ") => line.replace(":_default'", ":_mqnet_address'"),
                _ => line.to_owned(),
            });
            text = lines.collect();
        }
        _ => {}
    }
    put(out, &text)
}

/// Writes the continuations of an address, each with a tab and its meaning.
pub(crate) fn complete_address(
    args: &CompleteAddressArgs,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let all = mqnet_address::complete(&args.text);
    put(out, &all.iter().map(|(text, help)| format!("{text}\t{help}\n")).collect::<String>())
}

/// Writes the man pages of `command`.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<(), Failure> {
    let place = |e: std::io::Error| Failure::Broken(format!("{}: {e}", args.out.display()));
    std::fs::create_dir_all(&args.out).map_err(place)?;
    clap_mangen::generate_to(command, &args.out).map_err(place)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    // Goal: the completions of every shell contain a command and one of its options.
    #[test]
    fn completions_of_every_shell() {
        use clap::ValueEnum;
        for &shell in Shell::value_variants() {
            let mut out = Vec::new();
            completions(&CompletionsArgs { shell }, Cli::command(), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("doctor") && text.contains("channels"), "{shell}");
            let uses = match shell {
                Shell::Bash => text.matches("-F _mqnet_address ").count(),
                Shell::Zsh => text.matches(":_mqnet_address'").count(),
                Shell::Fish => text.matches("(mqnet complete-address ").count(),
                _ => continue,
            };
            assert_eq!(uses, if shell == Shell::Zsh { 4 } else { 1 }, "{shell}");
        }
    }

    // Goal: each visible command has a man page and a hidden one has none. The page of `link` has
    // every option of an address. The error for a directory that cannot be created names the
    // directory.
    #[test]
    fn a_page_for_each_command() {
        let folder = std::env::temp_dir().join(format!("mqnet-man-{}", std::process::id()));
        man(&ManArgs { out: folder.join("man1") }, Cli::command()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.join("man1").join(name));
        assert!(page("mqnet.1").unwrap().contains(".TH mqnet 1"));
        let link = page("mqnet-link.1").unwrap().replace("\\-", "-");
        assert!(link.contains("channels"));
        for option in mqnet_address::KINDS.iter().flat_map(|kind| kind.options()) {
            assert!(link.contains(&option.syntax()), "{}", option.syntax());
        }
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = format!("mqnet-{}.1", command.get_name());
            assert!(page(&name).is_ok(), "{name}");
        }
        assert!(page("mqnet-demo-host.1").is_err());
        let below_a_file = folder.join("man1/mqnet.1/x");
        let Err(Failure::Broken(what)) = man(&ManArgs { out: below_a_file }, Cli::command()) else {
            panic!()
        };
        assert!(what.contains("mqnet.1/x"), "{what}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
