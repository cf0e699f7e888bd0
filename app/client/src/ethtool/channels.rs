//! `-l` and `-L`: number of channels. mqnet's devices have combined channels only.

use std::io;

use mqnet_control_api::{ApiError, Channels, Code, Outcome, SetChannels};

use super::call::{Call, kernel_error};
use super::json::{self, Json};
use super::params::{self, Given, Param};

/// Parameters in the order in which the kernel checks them.
const PARAMS: [Param; 4] = [
    params::number("rx"),
    params::number("tx"),
    params::number("other"),
    params::number("combined"),
];

/// `-l`: prints the maximum and current number of channels.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let channels: Channels = match call.request("channels")? {
        Ok(channels) => channels,
        Err(exit) => return Ok(exit),
    };
    if call.json {
        let fields = vec![
            ("combined-max", Json::from(channels.combined_max)),
            ("combined", Json::from(channels.combined)),
        ];
        return json::print(call, fields);
    }
    writeln!(call.out, "Channel parameters for {}:", call.dev)?;
    let counts = [
        ("Pre-set maximums:", channels.combined_max),
        ("Current hardware settings:", channels.combined),
    ];
    for (title, combined) in counts {
        writeln!(call.out, "{title}")?;
        // The kernel omits a channel type with a maximum of 0, including the combined type.
        let combined = match channels.combined_max {
            0 => "n/a".to_owned(),
            _ => combined.to_string(),
        };
        writeln!(call.out, "RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t{combined}")?;
    }
    Ok(0)
}

/// `-L`: changes the number of channels.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    params::set("-L", call, &PARAMS, 1, change)
}

fn change(call: &Call<'_>, given: &[Given]) -> Result<Option<Outcome>, ApiError> {
    let device = call.device()?;
    let now: Channels = device.get("channels").map_err(kernel_error)?;
    for param in PARAMS {
        let max = if param.name == "combined" { now.combined_max } else { 0 };
        if let Some(g) = params::find(given, param.name)
            && g.value > u32::from(max)
        {
            let why = "requested channel count exceeds maximum";
            return Err(ApiError::new(Code::Invalid, why));
        }
    }
    // Only 0 remains possible for `rx`, `tx` and `other`. No change is needed, as 0 is their
    // current value.
    let Some(combined) = params::find(given, "combined") else { return Ok(None) };
    if combined.value == 0 && now.combined != 0 {
        let why = "requested channel counts would result in no RX or TX channel being configured";
        return Err(ApiError::new(Code::Invalid, why));
    }
    let want = SetChannels { combined: u16::try_from(combined.value).unwrap_or(u16::MAX) };
    Ok(Some(device.patch("channels", &want)?))
}
