//! `mqnet tc`: the grammar, texts, errors and exit codes of tc 6.1 for the egress of mqnet's
//! netdevs.

mod json;
mod kinds;
mod options;
mod request;
mod show;
mod text;
mod units;
mod words;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use clap::Args;
use mqnet_control_api::{ApiError, TcObject};

use crate::api::Api;
use crate::ethtool::Find;
use words::{Fail, Words, is_short_for, unknown};

const HELP: &str = "\
Usage: mqnet tc [ OPTIONS ] OBJECT { COMMAND | help }     (as tc 6.1; see tc(8))
  OBJECT  := { qdisc | class | filter }
  COMMAND := { add | change | replace | delete | show }, or as much of it as tc needs
  OPTIONS := { -s[tatistics] | -d[etails] | -j[son] | -p[retty] | -V[ersion] }

  mqnet tc qdisc  COMMAND dev DEV [ root | parent CLASSID | clsact ] [ handle HANDLE ] [ KIND ... ]
  mqnet tc class  COMMAND dev DEV [ root | parent CLASSID ] [ classid CLASSID ] [ KIND ... ]
  mqnet tc filter COMMAND dev DEV [ root | parent CLASSID | egress ] [ handle N ] [ prio N ]
                          [ protocol P ] [ KIND ... ]
  KIND of a qdisc: noqueue pfifo bfifo pfifo_fast prio mq mqprio tbf drr fq_codel
  KIND of a filter: flower matchall fw, with the actions skbedit, police and gact

Example: mqnet tc qdisc replace dev vm0 root fq_codel limit 1000
";

/// Arguments of `mqnet tc`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct TcArgs {
    /// Arguments in the syntax of tc; `help` lists the objects.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) args: Vec<String>,
}

/// Function that returns one connection per mqnet process.
pub(crate) type Every<'a> = &'a dyn Fn() -> Result<Vec<Box<dyn Api>>, ApiError>;

/// Output options `-s`, `-d`, `-j` and `-p`.
#[derive(Clone, Copy, Debug, Default)]
struct Style {
    stats: bool,
    details: bool,
    json: bool,
    pretty: bool,
}

/// Fields that are left out of each printed filter, because the command line selects their value.
#[derive(Clone, Copy, Debug, Default)]
struct Common {
    parent: bool,
    protocol: bool,
    pref: bool,
}

/// Context of a command.
struct Call<'a> {
    style: Style,
    find: Find<'a>,
    every: Every<'a>,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// Runs one command and returns the exit code, which is 1 if the output cannot be written.
pub(crate) fn run(
    args: &TcArgs,
    find: Find<'_>,
    every: Every<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let mut call = Call { style: Style::default(), find, every, out, err };
    match dispatch(&mut call, Words::new(&args.args)) {
        Ok(Ok(())) => 0,
        Ok(Err(fail)) => match writeln!(call.err, "{}", fail.line) {
            Ok(()) => fail.exit,
            Err(_) => 1,
        },
        Err(_) => 1,
    }
}

/// Result of a command: an output error, a refusal, or success.
type Done = io::Result<Result<(), Fail>>;

/// Options before the object, in the order in which tc compares them.
const OPTIONS: [&str; 9] = [
    "-statistics",
    "-details",
    "-pretty",
    "-help",
    "-Version",
    "-force",
    "-Numeric",
    "-json",
    "-stats",
];

fn dispatch(call: &mut Call<'_>, mut words: Words<'_>) -> Done {
    while let Some(option) = words.next_if(|word| word.starts_with('-')) {
        let name = OPTIONS.into_iter().find(|name| is_short_for(option, name));
        match name {
            Some("-statistics" | "-stats") => call.style.stats = true,
            Some("-details") => call.style.details = true,
            Some("-pretty") => call.style.pretty = true,
            Some("-json") => call.style.json = true,
            Some("-help") => return help(call),
            Some("-Version") => {
                let version = env!("CARGO_PKG_VERSION");
                writeln!(call.out, "mqnet tc {version} (as tc 6.1)")?;
                return Ok(Ok(()));
            }
            // `-force` and `-Numeric` have no effect: mqnet has no batch mode and always prints
            // numbers.
            Some(_) => {}
            None => {
                let line = format!("Option \"{option}\" is unknown, try \"tc -help\".");
                return Ok(Err(Fail::usage(line)));
            }
        }
    }
    let Some(object) = words.next() else { return help(call) };
    let mut objects = ["qdisc", "class", "filter", "help"].into_iter();
    match objects.find(|name| is_short_for(object, name)) {
        Some("qdisc") => commands(call, TcObject::Qdisc, words),
        Some("class") => commands(call, TcObject::Class, words),
        Some("filter") => commands(call, TcObject::Filter, words),
        Some(_) => help(call),
        None => {
            let line = format!("Object \"{object}\" is unknown, try \"tc help\".");
            Ok(Err(Fail::usage(line)))
        }
    }
}

fn commands(call: &mut Call<'_>, object: TcObject, mut words: Words<'_>) -> Done {
    let Some(command) = words.next() else { return show::run(call, object, words) };
    let names = ["add", "change", "replace", "link", "delete", "list", "show", "lst", "help"];
    let mut names = names.into_iter().filter(|name| *name != "link" || object == TcObject::Qdisc);
    match names.find(|name| is_short_for(command, name)) {
        Some("list" | "show" | "lst") => show::run(call, object, words),
        Some("help") => help(call),
        Some(verb) => request::run(call, object, verb, words),
        None => Ok(Err(unknown("Command", command, object))),
    }
}

fn help(call: &mut Call<'_>) -> Done {
    call.err.write_all(HELP.as_bytes())?;
    Ok(Ok(()))
}
