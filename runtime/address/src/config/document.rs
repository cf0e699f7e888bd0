//! Configuration file as a tree with positions, and the problems found in the file.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{FilePosition, Problem, Source};
use crate::spec::out_of_range;

pub(super) type Key<'a> = Spanned<DeString<'a>>;
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// Configuration file during parsing.
pub(super) struct Document<'a> {
    source: &'a Source,
    problems: Vec<(usize, Problem)>,
}

/// Returns the entries of a table in the order of the file.
pub(super) fn sorted<'t, 'a>(table: &'t DeTable<'a>) -> Vec<(&'t Key<'a>, &'t Value<'a>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Returns the type of a value for messages.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl<'a> Document<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Self { source, problems: Vec::new() }
    }

    /// Returns the root table, or `None` if the file is not valid TOML. In the second case only
    /// syntax errors are reported, because the incomplete tree would cause misleading problems.
    pub(super) fn root(&mut self) -> Option<DeTable<'a>> {
        let (root, errors) = DeTable::parse_recoverable(&self.source.text);
        if errors.is_empty() {
            return Some(root.into_inner());
        }
        for error in errors {
            // Join the lines of the parser's message.
            let what: Vec<&str> = error.message().split_whitespace().collect();
            self.report(error.span().unwrap_or(0..0), what.join(" "));
        }
        None
    }

    /// Returns the position of the byte at offset `at`.
    pub(super) fn place(&self, at: usize) -> FilePosition {
        let text = &self.source.text;
        let before = (0..=at.min(text.len())).rev().find_map(|at| text.get(..at)).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FilePosition {
            file: self.source.name.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    pub(super) fn report(&mut self, span: Range<usize>, message: String) {
        let place = self.place(span.start);
        // Escape control characters, so that a problem is always one line.
        let plain =
            |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
        let message = message.chars().map(plain).collect();
        self.problems.push((span.start, Problem { place, message }));
    }

    /// Reports an unknown key. The message suggests a similar allowed key, or lists all allowed
    /// keys.
    pub(super) fn unknown(&mut self, key: &Key<'_>, section: &str, allowed: &[&str]) {
        let name = key.get_ref();
        let near = allowed
            .iter()
            .map(|allowed| (strsim::damerau_levenshtein(name, allowed), allowed))
            .filter(|(distance, _)| *distance <= 2)
            .min();
        let hint = match near {
            Some((_, near)) => format!("did you mean '{near}'?"),
            None => format!("allowed: {}", allowed.join(", ")),
        };
        self.report(key.span(), format!("{section}unknown key {name:?}; {hint}"));
    }

    /// Reports a value of the wrong type.
    fn wrong(&mut self, value: &Value<'_>, section: &str, key: &str, wanted: &str) {
        let found = kind(value.get_ref());
        self.report(value.span(), format!("{section}{key}: must be {wanted}, not {found}"));
    }

    /// Returns a string. Reports a value of another type, and then returns `None`.
    pub(super) fn string(&mut self, value: &Value<'_>, section: &str, key: &str) -> Option<String> {
        let text = value.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong(value, section, key, "a string");
        }
        text
    }

    /// Returns a list of strings. Reports a value of another type, and then returns `None`.
    pub(super) fn strings(
        &mut self,
        value: &Value<'_>,
        section: &str,
        key: &str,
    ) -> Option<Vec<String>> {
        let all = value.get_ref().as_array().and_then(|list| {
            list.iter().map(|each| each.get_ref().as_str().map(str::to_owned)).collect()
        });
        if all.is_none() {
            self.wrong(value, section, key, "a list of strings");
        }
        all
    }

    /// Returns a number within `range`. Reports any other value, and then returns `None`.
    pub(super) fn number(
        &mut self,
        value: &Value<'_>,
        section: &str,
        key: &str,
        range: &RangeInclusive<u32>,
    ) -> Option<u32> {
        let Some(number) = value.get_ref().as_integer() else {
            self.wrong(value, section, key, "a whole number");
            return None;
        };
        let parsed = u32::from_str_radix(number.as_str(), number.radix()).ok();
        let good = parsed.filter(|parsed| range.contains(parsed));
        if good.is_none() {
            let what = out_of_range(key, number.as_str(), range).message;
            self.report(value.span(), format!("{section}{what}"));
        }
        good
    }

    /// Returns the entries of a table in the order of the file. Reports a value of another type,
    /// and then returns no entries.
    pub(super) fn table<'v>(
        &mut self,
        value: &'v Value<'a>,
        name: &str,
        wanted: &str,
    ) -> Vec<(&'v Key<'a>, &'v Value<'a>)> {
        match value.get_ref() {
            DeValue::Table(table) => sorted(table),
            _ => {
                self.wrong(value, "", name, wanted);
                Vec::new()
            }
        }
    }

    /// Returns the reported problems in the order of the file.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|(at, _)| *at);
        self.problems.into_iter().map(|(_, problem)| problem).collect()
    }
}
