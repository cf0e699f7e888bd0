//! `-n` and `-N`: rules that send flows to queues.

mod options;
mod text;

use std::io;

use mqnet_control_api::{ApiError, Code, FlowRules, SetFlowRules};

use super::call::Call;
use super::number;
use options::{Bad, Rule};

/// Flow types that ethtool accepts after `rx-flow-hash`. The request fails for each of them, since
/// mqnet's devices have no hash settings.
const HASHED: [&str; 17] = [
    "tcp4", "udp4", "sctp4", "ah4", "esp4", "ah4|esp4", "ip4", "tcp6", "udp6", "sctp6", "ah6",
    "esp6", "ah6|esp6", "ip6", "gtpc4", "gtpu4", "ether",
];

fn unsupported() -> ApiError {
    ApiError::new(Code::NotSupported, "")
}

/// `-n`: prints all rules or one rule.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let words: Vec<&str> = call.args.iter().map(String::as_str).collect();
    match words[..] {
        [] => show_all(call),
        ["rule", number] => match number::unsigned(number) {
            Some(location) => show_one(call, location),
            None => call.bad_command(),
        },
        ["rx-flow-hash", kind] if HASHED.contains(&kind) => {
            call.perror("Cannot get RX network flow hashing options", &unsupported(), 1)
        }
        _ => call.bad_command(),
    }
}

fn rules(call: &Call<'_>) -> Result<FlowRules, ApiError> {
    call.device().and_then(|device| device.get("rules"))
}

fn show_all(call: &mut Call<'_>) -> io::Result<u8> {
    match rules(call) {
        Ok(all) => {
            writeln!(call.out, "{} RX rings available", all.rings)?;
            writeln!(call.out, "Total {} rules\n", all.rules.len())?;
            for rule in &all.rules {
                call.out.write_all(text::of(rule).as_bytes())?;
            }
            Ok(0)
        }
        Err(e) => {
            call.perror("Cannot get RX rings", &e, 1)?;
            call.perror("rxclass: Cannot get RX class rule count", &e, 1)?;
            call.complain("RX classification rule retrieval failed")
        }
    }
}

fn show_one(call: &mut Call<'_>, location: u32) -> io::Result<u8> {
    let one = rules(call).and_then(|all| {
        let one = all.rules.into_iter().find(|rule| rule.location == location);
        one.ok_or_else(|| ApiError::new(Code::NoEntry, ""))
    });
    match one {
        Ok(rule) => {
            call.out.write_all(text::of(&rule).as_bytes())?;
            Ok(0)
        }
        Err(e) => {
            call.perror("rxclass: Cannot get RX class rule", &e, 1)?;
            call.complain("Cannot get RX classification rule")
        }
    }
}

/// `-N`: inserts or deletes a rule.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    let words: Vec<&str> = call.args.iter().map(String::as_str).collect();
    match words[..] {
        ["flow-type", kind, ref options @ ..] => match options::parse(kind, options) {
            Ok(rule) => insert(call, rule),
            Err(bad) => refuse(call, &bad),
        },
        // Arguments after the number are ignored, as in ethtool.
        ["delete", number, ..] => match number::unsigned(number).filter(|_| number != "-1") {
            Some(location) => delete(call, location),
            None => call.bad_command(),
        },
        _ => call.bad_command(),
    }
}

fn refuse(call: &mut Call<'_>, bad: &Bad) -> io::Result<u8> {
    match bad {
        Bad::Syntax => {
            writeln!(call.err, "Add rule, invalid syntax")?;
            call.bad_command()
        }
        Bad::Line(line) => {
            writeln!(call.err, "{line}")?;
            call.bad_command()
        }
        Bad::Unknown(option) => {
            writeln!(call.out, "Add rule, unrecognized option[{option}]")?;
            call.bad_command()
        }
    }
}

/// Highest free location, for a rule without a requested location; none if the table is full.
fn free_place(all: &FlowRules) -> Option<u32> {
    (0..all.size).rev().find(|place| all.rules.iter().all(|rule| rule.location != *place))
}

fn insert(call: &mut Call<'_>, rule: Rule) -> io::Result<u8> {
    let Rule { mut rule, location, possible } = rule;
    rule.location = match location {
        Some(location) => location,
        None => match rules(call).map(|all| free_place(&all)) {
            Ok(Some(place)) => place,
            Ok(None) => {
                writeln!(call.err, "rmgr: Cannot find appropriate slot to insert rule")?;
                return call.complain("Cannot insert classification rule");
            }
            Err(e) => {
                call.perror("rxclass: Cannot get RX class rule count", &e, 1)?;
                return call.complain("Cannot insert classification rule");
            }
        },
    };
    let place = rule.location;
    let want = SetFlowRules { add: Some(rule), ..SetFlowRules::default() };
    let done = match possible {
        true => call.device().and_then(|device| device.patch("rules", &want)),
        false => Err(unsupported()),
    };
    match done {
        Ok(outcome) => {
            call.note(Some(&outcome))?;
            if location.is_none() {
                writeln!(call.out, "Added rule with ID {place}")?;
            }
            Ok(0)
        }
        // The error is printed, but the exit code is 0 as in the real ethtool.
        Err(e) => call.perror("rmgr: Cannot insert RX class rule", &e, 0),
    }
}

fn delete(call: &mut Call<'_>, location: u32) -> io::Result<u8> {
    let want = SetFlowRules { delete: Some(location), ..SetFlowRules::default() };
    match call.device().and_then(|device| device.patch("rules", &want)) {
        Ok(outcome) => call.note(Some(&outcome)).map(|()| 0),
        Err(e) => {
            call.perror("rmgr: Cannot delete RX class rule", &e, 1)?;
            call.complain("Cannot delete classification rule")
        }
    }
}
