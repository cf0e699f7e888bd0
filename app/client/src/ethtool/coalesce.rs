//! `-c` and `-C`: coalescing. `rx-usecs` is the poll window, `tx-frames` the wake batch.

use std::io;

use mqnet_control_api::{ApiError, Coalesce, Code, Outcome, SetCoalesce};

use super::call::{Call, kernel_error};
use super::json::{self, Json};
use super::params::{self, Given, Param};

/// Parameters in the order of their netlink attributes, which is the kernel's order of checks.
const PARAMS: [Param; 24] = [
    params::number("rx-usecs"),
    params::number("rx-frames"),
    params::number("rx-usecs-irq"),
    params::number("rx-frames-irq"),
    params::number("tx-usecs"),
    params::number("tx-frames"),
    params::number("tx-usecs-irq"),
    params::number("tx-frames-irq"),
    params::number("stats-block-usecs"),
    params::switch("adaptive-rx"),
    params::switch("adaptive-tx"),
    params::number("pkt-rate-low"),
    params::number("rx-usecs-low"),
    params::number("rx-frames-low"),
    params::number("tx-usecs-low"),
    params::number("tx-frames-low"),
    params::number("pkt-rate-high"),
    params::number("rx-usecs-high"),
    params::number("rx-frames-high"),
    params::number("tx-usecs-high"),
    params::number("tx-frames-high"),
    params::number("sample-interval"),
    params::switch("cqe-mode-tx"),
    params::switch("cqe-mode-rx"),
];

/// Parameters that `-c` prints, in groups; a blank line follows each group.
const GROUPS: [&[&str]; 5] = [
    &["stats-block-usecs", "sample-interval", "pkt-rate-low", "pkt-rate-high"],
    &["rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq"],
    &["tx-usecs", "tx-frames", "tx-usecs-irq", "tx-frames-irq"],
    &["rx-usecs-low", "rx-frame-low", "tx-usecs-low", "tx-frame-low"],
    &["rx-usecs-high", "rx-frame-high", "tx-usecs-high", "tx-frame-high"],
];

/// `-c`: prints the coalescing parameters.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let now: Coalesce = match call.request("coalesce")? {
        Ok(now) => now,
        Err(exit) => return Ok(exit),
    };
    if call.json {
        let fields =
            vec![("rx-usecs", Json::from(now.rx_usecs)), ("tx-frames", Json::from(now.tx_frames))];
        return json::print(call, fields);
    }
    writeln!(call.out, "Coalesce parameters for {}:", call.dev)?;
    writeln!(call.out, "Adaptive RX: n/a  TX: n/a")?;
    for group in GROUPS {
        for name in group {
            match *name {
                "rx-usecs" => writeln!(call.out, "{name}: {}", now.rx_usecs)?,
                "tx-frames" => writeln!(call.out, "{name}: {}", now.tx_frames)?,
                _ => writeln!(call.out, "{name}: n/a")?,
            }
        }
        writeln!(call.out)?;
    }
    writeln!(call.out, "CQE mode RX: n/a  TX: n/a\n")?;
    Ok(0)
}

/// `-C`: changes coalescing parameters.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    params::set("-C", call, &PARAMS, 1, change)
}

fn change(call: &Call<'_>, given: &[Given]) -> Result<Option<Outcome>, ApiError> {
    let device = call.device()?;
    // Request the current values first: a device without coalescing must report `NotSupported`
    // before the parameters are checked.
    let _: Coalesce = device.get("coalesce").map_err(kernel_error)?;
    let ours = |name: &str| name == "rx-usecs" || name == "tx-frames";
    for param in PARAMS.iter().filter(|param| !ours(param.name)) {
        if params::find(given, param.name).is_some() {
            let why = "cannot modify an unsupported parameter";
            return Err(ApiError::new(Code::Invalid, why));
        }
    }
    let value = |name| params::find(given, name).map(|g| g.value);
    let want = SetCoalesce { rx_usecs: value("rx-usecs"), tx_frames: value("tx-frames") };
    if want == SetCoalesce::default() {
        return Ok(None);
    }
    Ok(Some(device.patch("coalesce", &want)?))
}
