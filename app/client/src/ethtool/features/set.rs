//! `-K`: changes offload features.

use std::collections::BTreeMap;
use std::io;

use mqnet_control_api::{ApiError, Code, DriverInfo, Feature, Outcome, SetFeatures};

use super::super::call::Call;
use super::names::{KERNEL, LEGACY, Legacy};
use super::{all, on};

/// Exit code of a refused `-K`.
const REFUSED: u8 = 92;

/// Result of a change.
struct Changed {
    before: Vec<Feature>,
    after: Vec<Feature>,
    /// Requested state by feature; older names are replaced by the features of their group.
    asked: BTreeMap<String, bool>,
    outcome: Option<Outcome>,
    /// True if a change was sent and the device is a TAP, which the kernel's ethtool lists under
    /// the same name.
    is_tap: bool,
}

/// `-K`: changes features and prints differences from the request.
pub(in super::super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    let mut given = Vec::new();
    for pair in call.args.chunks(2) {
        match pair {
            [name, value] if value == "on" || value == "off" => given.push((name, value == "on")),
            [_, rest @ ..] => {
                let value = rest.first().map_or("(null)", String::as_str);
                let line = format!(
                    "ethtool (-K): flag '{value}' for parameter '(null)' is not followed by \
                     'on' or 'off'"
                );
                return call.complain(&line);
            }
            [] => {}
        }
    }
    match change(call, &given) {
        Ok(changed) => report(call, &changed),
        Err(refusal) => call.refuse(&refusal, REFUSED),
    }
}

/// Features that a name selects: all features of the group for an older name, otherwise the name
/// itself, known or not.
fn resolve(name: &str) -> Vec<&str> {
    let older = |legacy: &&Legacy| legacy.short == name || legacy.long == name;
    match LEGACY.iter().find(older) {
        Some(legacy) => KERNEL.iter().copied().filter(|name| legacy.covers(name)).collect(),
        None => vec![name],
    }
}

fn change(call: &Call<'_>, given: &[(&String, bool)]) -> Result<Changed, ApiError> {
    let device = call.device()?;
    let before = all(&device)?;
    let mut asked = BTreeMap::new();
    for &(name, on) in given {
        for name in resolve(name) {
            if !before.iter().any(|feature| feature.name == name) {
                let why = "bit name not found";
                return Err(ApiError::new(Code::NotSupported, why));
            }
            // A feature that is named twice is on if either value is on, as in the kernel.
            *asked.entry(name.to_owned()).or_insert(false) |= on;
        }
    }
    // Fixed features are not sent, since the kernel does not change them either; `report` prints
    // those that differ from the request.
    let loose = |name: &String| before.iter().any(|f| f.name == *name && !f.fixed);
    let features: BTreeMap<String, bool> = asked
        .iter()
        .filter(|(name, _)| loose(name))
        .map(|(name, on)| (name.clone(), *on))
        .collect();
    if features.is_empty() {
        let (after, outcome) = (before.clone(), None);
        return Ok(Changed { after, before, asked, outcome, is_tap: false });
    }
    let outcome: Outcome = device.patch("features", &SetFeatures { features })?;
    // A failed driver query must not fail the command: the change is already made.
    let driver = device.get::<DriverInfo>("driver");
    let is_tap = driver.is_ok_and(|driver| driver.driver == "mqnet-tap");
    Ok(Changed { before, after: all(&device)?, asked, outcome: Some(outcome), is_tap })
}

/// Hint after a change of `tx-` or `rx-` features of a TAP; none otherwise. The kernel's ethtool
/// shows the opposite direction under the same names.
fn direction(changed: &Changed, dev: &str) -> Option<String> {
    let has = |prefix: &str| changed.asked.keys().any(|name| name.starts_with(prefix));
    let (name, ours, kernels) = match (has("tx-"), has("rx-")) {
        _ if !changed.is_tap => return None,
        (true, _) => ("tx", "mqnet writes into", "sends into"),
        (_, true) => ("rx", "mqnet reads from", "receives from"),
        _ => return None,
    };
    Some(format!(
        "{dev}: {name} features apply here to frames that {ours} the TAP; for frames that the \
         kernel {kernels} it: ethtool -K {dev}"
    ))
}

/// Prints the differences between the requested and the resulting features.
fn report(call: &mut Call<'_>, changed: &Changed) -> io::Result<u8> {
    let mut lines = Vec::new();
    let mut surprise = false;
    let mut missed = 0;
    for after in &changed.after {
        let asked = changed.asked.get(&after.name).copied();
        let before = changed.before.iter().find(|feature| feature.name == after.name);
        let moved = before.is_some_and(|before| before.active != after.active);
        let suffix = match asked {
            Some(want) if want != after.active => {
                missed += 1;
                surprise = true;
                if want { " [requested on]" } else { " [requested off]" }
            }
            Some(_) if moved => "",
            None if moved => {
                surprise = true;
                " [not requested]"
            }
            _ => continue,
        };
        lines.push(format!("{}: {}{suffix}", after.name, on(after.active)));
    }
    if surprise {
        writeln!(call.out, "Actual changes:")?;
        for line in &lines {
            writeln!(call.out, "{line}")?;
        }
    }
    call.note(changed.outcome.as_ref())?;
    if let Some(line) = direction(changed, call.dev) {
        writeln!(call.err, "mqnet: {line}")?;
    }
    if missed == changed.asked.len() {
        return call.complain("Could not change any device features");
    }
    Ok(0)
}
