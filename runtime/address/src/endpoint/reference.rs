//! Texts generated from the declarations: command-line help, and the document of all addresses.

use super::declaration::KindDecl;
use super::option::{OptionDecl, ValueType};
use super::{KINDS, egress, group};

/// Width of the help text in columns.
const COLUMNS: usize = 98;
/// Column at which the meaning of an option begins.
const MEANING: usize = 28;

/// All kinds, including groups.
fn kinds() -> impl Iterator<Item = &'static KindDecl> {
    KINDS.into_iter().chain([&group::KIND])
}

/// Appends `text` to `out`, with line breaks and indentation. `column` is the length of the last
/// line of `out`.
fn wrap(out: &mut String, mut column: usize, indent: usize, text: &str) {
    for word in text.split(' ') {
        if column + 1 + word.chars().count() > COLUMNS {
            *out += &format!("\n{:indent$}", "");
            column = indent;
        } else {
            out.push(' ');
            column += 1;
        }
        *out += word;
        column += word.chars().count();
    }
    out.push('\n');
}

/// Formats range and default of an option for the end of its help line.
fn range(option: &OptionDecl) -> String {
    let range = match option.value {
        ValueType::Number(..) | ValueType::PowerOfTwo(..) | ValueType::Size(..) => {
            Some(option.value.allowed())
        }
        _ => None,
    };
    let default = option.default.map(|default| format!("default: {default}"));
    let all: Vec<String> = range.into_iter().chain(default).collect();
    if all.is_empty() { String::new() } else { format!(" [{}]", all.join("; ")) }
}

fn help_of(out: &mut String, options: impl Iterator<Item = &'static OptionDecl>) {
    for option in options {
        let syntax = format!("    {}", option.syntax());
        *out += &format!("{syntax:<MEANING$}");
        let column = syntax.chars().count().max(MEANING);
        wrap(out, column, MEANING + 1, &format!("{}{}", option.help, range(option)));
    }
}

/// Returns the help text of all addresses and their options.
pub fn help() -> String {
    let mut out = "Endpoint addresses:\n".to_owned();
    for kind in kinds() {
        let address = format!("  {}{} ", kind.prefix, kind.target);
        let stop = if kind.notes.is_empty() { "" } else { ". " };
        out += &address;
        wrap(&mut out, address.len(), 4, &format!(" {}{stop}{}", kind.summary, kind.notes));
        help_of(&mut out, kind.own_options());
    }
    out += "  all of them:\n";
    help_of(&mut out, egress::OPTIONS.iter());
    out
}

/// Escapes the text of a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn table(options: impl Iterator<Item = &'static OptionDecl>) -> String {
    let mut out = String::new();
    for option in options {
        let default = option.default.map(|default| format!("`{default}`")).unwrap_or_default();
        let allowed = match option.value {
            ValueType::Custom(custom) => format!("{}, like `{}`", custom.allowed, custom.example),
            other => other.allowed(),
        };
        let (syntax, help) = (cell(&option.syntax()), cell(option.help));
        let once = if option.once { "; may be given once only" } else { "" };
        out += &format!("| `{syntax}` | {} | {default} | {help}{once} |\n", cell(&allowed));
    }
    match out.is_empty() {
        true => "It has only the options of every endpoint.\n".to_owned(),
        false => format!("| option | values | default | meaning |\n|---|---|---|---|\n{out}"),
    }
}

/// Returns the contents of `book/src/reference/endpoints.md`.
pub fn document() -> String {
    let mut out = "\
# Endpoint addresses

<!-- Generated from runtime/address/src/endpoint by `cargo xtask generate`. -->

An address is `KIND:TARGET,OPTION,OPTION=VALUE,...`. Of an option that is given several times the
last value counts, unless its meaning states otherwise. `mqnet link --help` prints the same list.

| address | endpoint | more |
|---|---|---|
"
    .to_owned();
    for kind in kinds() {
        let address = cell(&format!("{}{}", kind.prefix, kind.target));
        let more = match kind.document {
            "" => String::new(),
            file => format!("[{file}]({file})"),
        };
        out += &format!("| `{address}` | {} | {more} |\n", cell(kind.summary));
    }
    out += "\nAny two of them can be joined, except two bridges (`ntb:` to `ntb:`).\n";
    out += &format!("\n## Options of every endpoint\n\n{}", table(egress::OPTIONS.iter()));
    for kind in kinds() {
        let notes = if kind.notes.is_empty() { "" } else { "\n\n" };
        out += &format!(
            "\n## `{}{}`\n\nExample: `{}`{notes}{}\n\n{}",
            kind.prefix,
            kind.target,
            kind.example,
            kind.notes,
            table(kind.own_options())
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, parse, parse_both};

    // Goal: help fits its width, and help and document contain every kind and option.
    #[test]
    fn help_and_document_are_complete() {
        let (help, document) = (help(), document());
        assert!(help.lines().all(|line| line.chars().count() <= COLUMNS), "{help}");
        for kind in kinds() {
            let section = |text: &str, start: String| {
                let at = text.find(&start).unwrap_or_else(|| panic!("{start} in {text}"));
                text[at..].to_owned()
            };
            let address = format!("{}{}", kind.prefix, kind.target);
            let help = section(&help, format!("\n  {address} "));
            let document = section(&document, format!("\n## `{address}`\n"));
            for option in kind.own_options() {
                let syntax = option.syntax();
                assert!(help.contains(&format!("\n    {syntax} ")), "{address}: {syntax}");
                let row = format!("\n| `{}` |", cell(&syntax));
                assert!(document.contains(&row), "{address}: {syntax}");
            }
        }
        for option in egress::OPTIONS {
            assert!(help.contains(&option.syntax()) && document.contains(&cell(&option.syntax())));
        }
    }

    // Goal: option names are unique within a kind, defaults and examples are allowed values, and
    // every declared option has an effect. The error for an undeclared option lists the declared
    // ones.
    #[test]
    fn every_option_is_read() {
        for kind in kinds() {
            let target = kind.example.split(',').next().unwrap();
            let plain = [target.to_owned(), kind.example.to_owned()];
            assert_ne!(plain.each_ref().map(|address| parse(address).is_ok()), [false; 2]);
            let refused = parse(&format!("{target},no-such")).unwrap_err().to_string();
            // A group passes unknown options to its last member, so the error lists other options.
            let is_group = kind.prefix.is_empty();
            for (at, option) in kind.options().enumerate() {
                let mut before = kind.options().take(at);
                assert!(before.all(|other| other.name != option.name), "{}", option.name);
                assert!(option.default.is_none_or(|text| option.value.read(Some(text)).is_ok()));
                let has_effect = |address: &String| {
                    let with = format!("{address},{}", option.example());
                    match (parse_both(&with), parse_both(address)) {
                        (Ok(with), Ok(without)) => with != without,
                        // Some options exclude each other; the error then contains the name of the
                        // option.
                        (Err(e), _) => {
                            let message = e.to_string();
                            let (_, why) = message.split_once("': ").unwrap_or_default();
                            why.contains(&format!("{}=", option.name)) && !why.contains("unknown")
                        }
                        _ => false,
                    }
                };
                assert!(plain.iter().any(has_effect), "{target},{}", option.example());
                assert!(is_group || refused.contains(option.name), "{refused}");
            }
        }
    }

    // Goal: a guest may use all queue pairs unless the address limits their number.
    #[test]
    fn guests_have_all_queues_by_default() {
        let Ok(Endpoint::VhostUser(card)) = parse("vhost-user:/x") else { panic!() };
        assert_eq!(card.queues, mqnet_netdev::limits::CHANNELS_MAX);
    }
}
