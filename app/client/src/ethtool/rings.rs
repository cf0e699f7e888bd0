//! `-g` and `-G`: ring sizes.

use std::io;

use mqnet_control_api::{ApiError, Code, Outcome, Rings, SetRings};

use super::call::{Call, kernel_error};
use super::json::{self, Json};
use super::params::{self, Given, Param};

/// Exit code of a refused `-G`.
const REFUSED: u8 = 81;

const PARAMS: [Param; 7] = [
    params::number("rx"),
    params::number("rx-mini"),
    params::number("rx-jumbo"),
    params::number("tx"),
    params::number("rx-buf-len"),
    params::number("cqe-size"),
    params::switch("tx-push"),
];

/// Parameters that none of mqnet's devices has, each with the kernel's error, in the kernel's order
/// of checks.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("rx-buf-len", "setting rx buf len not supported"),
    ("cqe-size", "setting cqe size not supported"),
    ("tx-push", "setting tx push not supported"),
];

/// `-g`: prints maximum and current ring sizes.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    let rings: Rings = match call.request("rings")? {
        Ok(rings) => rings,
        Err(exit) => return Ok(exit),
    };
    if call.json {
        let known = [
            ("rx-max", rings.rx_max),
            ("tx-max", rings.tx_max),
            ("rx", rings.rx),
            ("tx", rings.tx),
        ];
        let mut fields: Vec<_> =
            known.into_iter().filter_map(|(name, n)| Some((name, Json::from(n?)))).collect();
        fields.push(("tx-push", Json::from(false)));
        return json::print(call, fields);
    }
    let number = |n: Option<u32>| n.map_or_else(|| "n/a".to_owned(), |n| n.to_string());
    writeln!(call.out, "Ring parameters for {}:", call.dev)?;
    let sizes = [
        ("Pre-set maximums:", rings.rx_max, rings.tx_max),
        ("Current hardware settings:", rings.rx, rings.tx),
    ];
    for (title, rx, tx) in sizes {
        let (rx, tx) = (number(rx), number(tx));
        writeln!(call.out, "{title}\nRX:\t\t{rx}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{tx}")?;
    }
    writeln!(call.out, "RX Buf Len:\t\tn/a\nCQE Size:\t\tn/a")?;
    writeln!(call.out, "TX Push:\toff\nTCP data split:\tn/a")?;
    Ok(0)
}

/// `-G`: changes ring sizes.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    params::set("-G", call, &PARAMS, REFUSED, change)
}

fn change(call: &Call<'_>, given: &[Given]) -> Result<Option<Outcome>, ApiError> {
    let device = call.device()?;
    let refuse = |code, why| Err(ApiError::new(code, why));
    for g in given {
        if g.value == 0 && (g.name == "rx-buf-len" || g.name == "cqe-size") {
            return refuse(Code::Range, "integer out of range");
        }
    }
    for (name, why) in UNSUPPORTED {
        if params::find(given, name).is_some() {
            return refuse(Code::NotSupported, why);
        }
    }
    let now: Rings = device.get("rings").map_err(kernel_error)?;
    let limits = [("rx", now.rx_max), ("rx-mini", None), ("rx-jumbo", None), ("tx", now.tx_max)];
    for (name, max) in limits {
        if let Some(g) = params::find(given, name)
            && g.value > max.unwrap_or(0)
        {
            return refuse(Code::Invalid, "requested ring size exceeds maximum");
        }
    }
    let value = |name| params::find(given, name).map(|g| g.value);
    let want = SetRings { rx: value("rx"), tx: value("tx") };
    if want == SetRings::default() {
        return Ok(None);
    }
    Ok(Some(device.patch("rings", &want)?))
}
