//! Pairs `NAME VALUE` after a verb that changes settings.

use std::io;

use mqnet_control_api::{ApiError, Outcome};

use super::call::Call;
use super::number;

/// Kind of value that follows a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Switch,
}

/// Parameter that a verb accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

pub(super) const fn number(name: &'static str) -> Param {
    Param { name, kind: Kind::Number }
}

pub(super) const fn switch(name: &'static str) -> Param {
    Param { name, kind: Kind::Switch }
}

/// Name and parsed value of one pair; the value of a switch is 1 (on) or 0 (off).
#[derive(Debug)]
pub(super) struct Given {
    pub(super) name: &'static str,
    pub(super) value: u32,
}

/// Returns the pair of a name; none if the arguments do not contain the name.
pub(super) fn find<'a>(given: &'a [Given], name: &str) -> Option<&'a Given> {
    given.iter().find(|g| g.name == name)
}

/// Runs a verb that changes settings: parses the arguments, calls `change` and returns the exit
/// code. A refused change returns `refused`.
pub(super) fn set(
    verb: &str,
    call: &mut Call<'_>,
    params: &'static [Param],
    refused: u8,
    change: impl FnOnce(&Call<'_>, &[Given]) -> Result<Option<Outcome>, ApiError>,
) -> io::Result<u8> {
    let given = match parse(verb, call, params) {
        Ok(given) => given,
        Err(line) => return call.complain(&line),
    };
    let result = change(call, &given);
    call.finish(result, refused)
}

/// Parses the arguments; the error is the line to print.
fn parse(verb: &str, call: &Call<'_>, params: &'static [Param]) -> Result<Vec<Given>, String> {
    let mut given: Vec<Given> = Vec::new();
    let mut args = call.args.iter();
    while let Some(name) = args.next() {
        let Some(param) = params.iter().find(|param| param.name == name) else {
            return Err(format!("ethtool ({verb}): unknown parameter '{name}'"));
        };
        if find(&given, name).is_some() {
            return Err(format!("ethtool ({verb}): duplicate parameter '{name}'"));
        }
        let Some(text) = args.next() else {
            return Err(format!("ethtool ({verb}): no value for parameter '{name}'"));
        };
        let value = match (param.kind, text.as_str()) {
            (Kind::Number, text) => number::keyword(text),
            (Kind::Switch, "on") => Some(1),
            (Kind::Switch, "off") => Some(0),
            (Kind::Switch, _) => None,
        };
        let Some(value) = value else {
            return Err(format!("ethtool ({verb}): invalid value '{text}' for parameter '{name}'"));
        };
        given.push(Given { name: param.name, value });
    }
    Ok(given)
}
