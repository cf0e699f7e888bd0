//! Pages of the book that are generated from the command line and the HTTP interface.
//!
//! `cargo xtask generate` runs these tests with `MQNET_WRITE_PAGES=1`: they write the pages
//! instead of comparing them.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use serde_json::Value;

use crate::cli::Cli;

/// Options that every command has.
const GLOBAL: [&str; 3] = ["help", "version", "verbose"];

const COMMANDS: &str = "\
# Commands

<!-- Generated from the command line by `cargo xtask generate`. -->

`mqnet COMMAND --help` prints the same. Every command has `--verbose` (twice: more detail);
commands that need a running process have `--control SOCKET`. [Exit codes](errors.md#exit-codes).
";

const HTTP: &str = "\
# HTTP API

<!-- Generated from the OpenAPI document by `cargo xtask generate`. -->

Every process answers HTTP on its control socket: `curl --unix-socket /run/mqnet/ctl.sock
http://x/v1/links`. The complete document, with the types of all bodies, is at `/v1/openapi.json`.
`{dev}` is a name as [control](control.md#names) describes it. A refusal has a body with `code`,
`message` and `field`: [errors](errors.md).

| method | path | meaning | status |
|---|---|---|---|
";

/// Compares a page with its text, or writes it.
fn check(page: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/reference");
    let path = folder.join(page);
    if std::env::var_os("MQNET_WRITE_PAGES").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(current == text, "{page}: outdated: cargo xtask generate");
}

/// One line for a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn row(out: &mut String, argument: &Arg) {
    let value = argument.get_value_names().unwrap_or_default().join(" ");
    let takes = argument.get_action().takes_values();
    let mut names = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let name = match (names.is_empty(), takes) {
        (true, _) => value,
        (false, true) => format!("{} {value}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(out, "| `{}` | {} |", name.replace('|', "\\|"), cell(&help));
}

fn section(out: &mut String, command: &Command, name: &str) {
    let name = format!("{name} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = writeln!(out, "\n## {name}\n\n{}.", cell(&about).trim_end_matches('.'));
    let shown = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        !argument.is_hide_set() && !GLOBAL.contains(&id) && id != "control"
    };
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !arguments.is_empty() {
        *out += "\n| argument | meaning |\n|---|---|\n";
        arguments.iter().for_each(|argument| row(out, argument));
    }
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        section(out, inner, &name);
    }
}

// Rule: the page of the commands has every visible command with its arguments.
#[test]
fn page_of_commands_is_current() {
    let mut out = COMMANDS.to_owned();
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        section(&mut out, command, "mqnet");
    }
    check("commands.md", &out);
}

// Rule: the page of the HTTP interface has every path and method.
#[test]
fn page_of_http_is_current() {
    let document = serde_json::to_value(mqnet_control::openapi()).unwrap();
    let mut out = HTTP.to_owned();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let text = |key: &str| operation[key].as_str().unwrap_or_default().to_owned();
            let meaning = match (text("summary"), text("description")) {
                (summary, description) if description.is_empty() => summary,
                (summary, description) if summary.is_empty() => description,
                (summary, description) => format!("{summary} {description}"),
            };
            let names = |part: &Value| part["name"].as_str().map(|name| format!("`{name}`"));
            let query = operation["parameters"].as_array().into_iter().flatten();
            let query: Vec<_> =
                query.filter(|part| part["in"] == "query").filter_map(names).collect();
            let query = match query.is_empty() {
                true => String::new(),
                false => format!(" Query: {}.", query.join(", ")),
            };
            let statuses = operation["responses"].as_object().into_iter().flatten();
            let statuses: Vec<_> = statuses.map(|(status, _)| status.as_str()).collect();
            let (method, statuses) = (method.to_uppercase(), statuses.join(" "));
            let meaning = cell(&meaning);
            let _ = writeln!(out, "| {method} | `{path}` | {meaning}{query} | {statuses} |");
        }
    }
    check("http.md", &out);
}
