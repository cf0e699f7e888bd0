//! `-i`: driver information.

use std::io;

use mqnet_control_api::{ApiError, DriverInfo, NamedCounter, PrivFlag};

use super::call::Call;

/// `-i`: prints driver, version, bus and supported groups of verbs.
pub(super) fn show(call: &mut Call<'_>) -> io::Result<u8> {
    if !call.args.is_empty() {
        return call.bad_command();
    }
    let asked = call.device().and_then(|device| {
        let driver: DriverInfo = device.get("driver")?;
        let counters: Result<Vec<NamedCounter>, ApiError> = device.get("counters");
        let flags: Result<Vec<PrivFlag>, ApiError> = device.get("priv-flags");
        let some = |n: Result<usize, ApiError>| n.is_ok_and(|n| n > 0);
        Ok((driver, some(counters.map(|list| list.len())), some(flags.map(|list| list.len()))))
    });
    let (driver, statistics, flags) = match asked {
        Ok(answer) => answer,
        Err(e) => return call.perror("Cannot get driver information", &e, 71),
    };
    let yes = |yes| if yes { "yes" } else { "no" };
    writeln!(call.out, "driver: {}", driver.driver)?;
    writeln!(call.out, "version: {}", driver.version)?;
    writeln!(call.out, "firmware-version: {}", driver.firmware_version)?;
    writeln!(call.out, "expansion-rom-version: ")?;
    writeln!(call.out, "bus-info: {}", driver.bus_info)?;
    writeln!(call.out, "supports-statistics: {}", yes(statistics))?;
    for what in ["test", "eeprom-access", "register-dump"] {
        writeln!(call.out, "supports-{what}: no")?;
    }
    writeln!(call.out, "supports-priv-flags: {}", yes(flags))?;
    Ok(0)
}
