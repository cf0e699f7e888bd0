//! `-S`: counters.

use std::io;

use mqnet_control_api::{ApiError, Code, NamedCounter};

use super::call::Call;

/// Standard groups of counters; mqnet's devices have no counters of these groups.
const GROUPS: [&str; 5] = ["eth-phy", "eth-mac", "eth-ctrl", "rmon", "phydev"];

/// `-S`: prints the counters, or the standard groups of counters.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    if !call.args.is_empty() {
        return groups(call);
    }
    let counters: Result<Vec<NamedCounter>, ApiError> =
        call.device().and_then(|device| device.get("counters"));
    match counters {
        Ok(counters) if !counters.is_empty() => {
            writeln!(call.out, "NIC statistics:")?;
            for NamedCounter { name, value } in &counters {
                writeln!(call.out, "     {name}: {value}")?;
            }
            Ok(0)
        }
        Err(e) if e.code != Code::NotSupported => {
            call.perror("Cannot get stats strings information", &e, 96)
        }
        _ => {
            writeln!(call.err, "no stats available")?;
            Ok(94)
        }
    }
}

/// Handles `--all-groups` and `--groups NAME ...`: prints the heading only, as for a device without
/// standard groups.
fn groups(call: &mut Call<'_>) -> io::Result<u8> {
    let args = call.args;
    let mut wanted: &[String] = &[];
    let wrong = match args {
        [first] if first == "--all-groups" => None,
        [first] if first == "--groups" => Some(format!("no value for parameter '{first}'")),
        [first, names @ ..] if first == "--groups" => {
            wanted = names;
            names
                .iter()
                .find(|name| name.is_empty())
                .map(|_| format!("invalid value '' for parameter '{first}'"))
        }
        // ethtool treats both options as one parameter, so that a second option is a duplicate.
        [first, second, ..]
            if first == "--all-groups" && (second == first || second == "--groups") =>
        {
            Some(format!("duplicate parameter '{second}'"))
        }
        [first, second, ..] if first == "--all-groups" => {
            Some(format!("unknown parameter '{second}'"))
        }
        [first, ..] => Some(format!("unknown parameter '{first}'")),
        [] => None,
    };
    if let Some(wrong) = wrong {
        return call.complain(&format!("ethtool (-S): {wrong}"));
    }
    if let Err(e) = call.device() {
        return call.refuse(&e, 1);
    }
    for name in wanted {
        if !GROUPS.contains(&name.as_str()) {
            let refusal = ApiError::new(Code::NotSupported, "bit name not found");
            return call.refuse(&refusal, 1);
        }
    }
    writeln!(call.out, "Standard stats for {}:", call.dev)?;
    Ok(0)
}
