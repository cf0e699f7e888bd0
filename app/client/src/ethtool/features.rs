//! `-k` (and `-K`, in `set`): offload features.

mod names;
pub(super) mod set;
mod sides;

use std::io;

use mqnet_control_api::{ApiError, Feature};

use super::call::{Call, Device};
use super::json::{self, Json};
use names::{KERNEL, LEGACY};

/// Every feature in the kernel's order, followed by features that only mqnet's devices have. A
/// feature that the device does not list is off and fixed.
fn all(device: &Device) -> Result<Vec<Feature>, ApiError> {
    let listed: Vec<Feature> = device.get("features")?;
    let fixed =
        |name: &str| Feature { name: name.into(), active: false, fixed: true, requested: false };
    let known = KERNEL.iter().map(|name| {
        listed.iter().find(|feature| feature.name == *name).cloned().unwrap_or_else(|| fixed(name))
    });
    let known: Vec<Feature> = known.collect();
    let ours = listed.into_iter().filter(|feature| !KERNEL.contains(&feature.name.as_str()));
    Ok(known.iter().cloned().chain(ours).collect())
}

/// One line of the listing: a feature under its displayed name, or the summary of a group.
enum Line<'a> {
    Feature { name: &'a str, indent: &'static str, feature: &'a Feature },
    Sum { name: &'a str, active: bool },
}

/// Lines of the listing: first the groups of `LEGACY`, each summary followed by its features, then
/// the other features. A group with one feature is one line without a summary.
fn lines(features: &[Feature]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for legacy in &LEGACY {
        let members: Vec<_> = features.iter().filter(|f| legacy.covers(&f.name)).collect();
        match *members {
            [] => {}
            [feature] => lines.push(Line::Feature { name: legacy.long, indent: "", feature }),
            _ => {
                let active = members.iter().any(|feature| feature.active);
                lines.push(Line::Sum { name: legacy.long, active });
                for feature in members {
                    lines.push(Line::Feature { name: &feature.name, indent: "\t", feature });
                }
            }
        }
    }
    for feature in features {
        let shown = LEGACY.iter().any(|legacy| legacy.covers(&feature.name));
        if !shown && !feature.name.is_empty() {
            lines.push(Line::Feature { name: &feature.name, indent: "", feature });
        }
    }
    lines
}

fn on(active: bool) -> &'static str {
    if active { "on" } else { "off" }
}

/// `-k`: prints the features, or with `--sides` the offloads of both sides of the link.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    if let [flag] = call.args
        && flag == "--sides"
    {
        return sides::show(call);
    }
    if let Some(extra) = call.args.first() {
        return call.complain(&format!("ethtool: unexpected parameter '{extra}'"));
    }
    let features = match call.device().and_then(|device| all(&device)) {
        Ok(features) => features,
        Err(e) => return call.refuse(&e, 1),
    };
    let lines = lines(&features);
    if call.json {
        return json::print(call, lines.iter().map(to_json).collect());
    }
    writeln!(call.out, "Features for {}:", call.dev)?;
    for line in &lines {
        match line {
            Line::Sum { name, active } => writeln!(call.out, "{name}: {}", on(*active))?,
            Line::Feature { name, indent, feature } => {
                let suffix = match (feature.fixed, feature.active == feature.requested) {
                    (true, _) => " [fixed]",
                    (false, true) => "",
                    (false, false) if feature.requested => " [requested on]",
                    (false, false) => " [requested off]",
                };
                writeln!(call.out, "{indent}{name}: {}{suffix}", on(feature.active))?;
            }
        }
    }
    Ok(0)
}

fn to_json(line: &Line<'_>) -> (String, Json) {
    let (name, active, fixed, requested) = match line {
        Line::Sum { name, active } => (name, active, Json::Null, Json::Null),
        Line::Feature { name, feature, .. } => {
            (name, &feature.active, feature.fixed.into(), feature.requested.into())
        }
    };
    let fields = [("active", (*active).into()), ("fixed", fixed), ("requested", requested)];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    ((*name).to_owned(), Json::Object(fields))
}
