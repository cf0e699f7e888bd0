//! Numbers in the units of tc.

/// Three significant digits, as C's `%.3g`.
fn three(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let scientific = format!("{value:.2e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent {
        -4..=2 => trim(&format!("{value:.*}", (2 - exponent) as usize)),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(digits), exponent.abs())
        }
    }
}

/// Time in microseconds as text: `5ms`, `4.98s`, `40us`.
pub(super) fn time(us: u64) -> String {
    match us {
        1_000_000.. => format!("{}s", three(us as f64 / 1e6)),
        1000.. => format!("{}ms", three(us as f64 / 1e3)),
        _ => format!("{us}us"),
    }
}

/// Rate in bytes per second as text in bits per second: `1Mbit`, `1234Kbit`.
pub(super) fn rate(bytes: u64) -> String {
    let mut bits = u128::from(bytes) * 8;
    let mut units = ["", "K", "M", "G", "T"].into_iter().peekable();
    while let Some(unit) = units.next() {
        let is_odd = !bits.is_multiple_of(1000) && bits < 1_000_000;
        if bits < 1000 || is_odd || units.peek().is_none() {
            return format!("{bits}{unit}bit");
        }
        bits /= 1000;
    }
    format!("{bits}bit")
}

/// Size in bytes as text: `32Mb`, `10Kb`, `1514b`. A size within 1024 bytes of a whole Mb, or
/// within 16 bytes of a whole Kb, is rounded.
pub(super) fn size(bytes: u64) -> String {
    for (unit, near, name) in [(1u64 << 20, 1024, "Mb"), (1 << 10, 16, "Kb")] {
        if bytes >= unit {
            let whole = (bytes as f64 / unit as f64).round_ties_even();
            if (whole * unit as f64 - bytes as f64).abs() < f64::from(near) {
                return format!("{}{name}", whole as u64);
            }
        }
    }
    format!("{bytes}b")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Goal: numbers have the text that tc 6.1 prints.
    #[test]
    fn as_tc_prints() {
        let times = [(5000, "5ms"), (4999, "5ms"), (99_999, "100ms"), (7_989_671, "7.99s")];
        for (us, text) in times.into_iter().chain([(40, "40us"), (2515, "2.52ms"), (0, "0us")]) {
            assert_eq!(time(us), text);
        }
        for (bytes, text) in [
            (125_000, "1Mbit"),
            (154_320, "1234Kbit"),
            (12_500_000, "100Mbit"),
            (8_000_000_000, "64Gbit"),
            (1, "8bit"),
        ] {
            assert_eq!(rate(bytes), text);
        }
        for (bytes, text) in [
            (10_240, "10Kb"),
            (1_048_575, "1024Kb"),
            (2047, "2Kb"),
            (1_514_000, "1514000b"),
            (0xffff_ffff, "4096Mb"),
            (10_480_000, "10480000b"),
            (32 << 20, "32Mb"),
            (9, "9b"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    proptest! {
        // Goal: every number has a text, and times below 1 ms and sizes below 1008 bytes are exact.
        #[test]
        fn every_number_has_a_text(n: u64) {
            for text in [time(n), rate(n), size(n)] {
                prop_assert!(text.starts_with(|c: char| c.is_ascii_digit()), "{text}");
            }
            prop_assert_eq!(time(n % 1000), format!("{}us", n % 1000));
            prop_assert_eq!(size(n % 1008), format!("{}b", n % 1008));
        }
    }
}
