//! `-X`: changes the indirection table and the hash function of RSS.

mod options;

use std::io;

use mqnet_control_api::{ApiError, Code, Outcome, Rss, SetRss};

use super::call::Call;
use super::{number, rss};
use options::{Options, Spread};

const CANNOT: &str = "Cannot set RX flow hash configuration";

/// Reason why a request is not carried out.
enum No {
    /// Error of the device or the kernel.
    Error(&'static str, ApiError),
    /// Error line of ethtool.
    Line(String),
    /// Invalid arguments that ethtool rejects only after it has read the device's table.
    BadCommand,
}

/// `-X`: applies the options and prints the reason of a refusal.
pub(super) fn set(call: &mut Call<'_>) -> io::Result<u8> {
    let Some(options) = options::parse(call.args) else { return call.bad_command() };
    if let Some(line) = options.conflict() {
        return call.complain(line);
    }
    match change(call, &options) {
        Ok(outcome) => {
            call.note(outcome.as_ref())?;
            Ok(0)
        }
        Err(No::Error(what, e)) => call.perror(what, &e, 1),
        Err(No::Line(line)) => call.complain(&line),
        Err(No::BadCommand) => call.bad_command(),
    }
}

fn change(call: &Call<'_>, options: &Options<'_>) -> Result<Option<Outcome>, No> {
    let ring_count = |e| No::Error("Cannot get RX ring count", e);
    let device = call.device().map_err(ring_count)?;
    let now: Rss = device.get("rss").map_err(ring_count)?;
    if options.key {
        return Err(No::Line(format!("{CANNOT}:\n Hash key setting not supported")));
    }
    if let Some(name) = options.function
        && !rss::FUNCTIONS.contains(&name)
    {
        return Err(No::Line(format!("Unknown hash function: {name}")));
    }
    let spread = spread(options, now.indirection_table.len())?;
    let refuse = |code| Err(No::Error(CANNOT, ApiError::new(code, "")));
    if options.context || options.function.is_some_and(|name| name != now.hash_function) {
        return refuse(Code::NotSupported);
    }
    let want = match spread {
        Some(Filled { table, .. }) if table.iter().any(|&queue| queue >= u32::from(now.rings)) => {
            return refuse(Code::Invalid);
        }
        Some(filled) => filled.want,
        None if options.default => SetRss { default: Some(true), ..SetRss::default() },
        None => return Ok(None),
    };
    device.patch("rss", &want).map(Some).map_err(|e| No::Error(CANNOT, e))
}

/// Indirection table as ethtool computes it, and the request that results in this table.
struct Filled {
    table: Vec<u32>,
    want: SetRss,
}

fn spread(options: &Options<'_>, size: usize) -> Result<Option<Filled>, No> {
    let start = options.start;
    let filled = match &options.spread {
        None => return Ok(None),
        Some(Spread::Equal(n)) => {
            let table = (0..size).map(|i| start.saturating_add(low(i) % (*n).max(1))).collect();
            let equal = Some(u16::try_from(*n).unwrap_or(u16::MAX));
            Filled { table, want: SetRss { equal, ..SetRss::default() } }
        }
        Some(Spread::Weights(texts)) => {
            let weights: Option<Vec<u32>> =
                texts.iter().map(|text| number::unsigned(text)).collect();
            let mut weights = match weights {
                Some(weights) if !options.weights_again => weights,
                _ => return Err(No::BadCommand),
            };
            let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            if sum == 0 {
                return Err(No::Line("At least one weight must be non-zero".to_owned()));
            }
            if sum > size as u64 {
                let line = "Total weight exceeds the size of the indirection table";
                return Err(No::Line(line.to_owned()));
            }
            let table = weighted(&weights, sum, size, start);
            // Drop trailing weights of 0: their queues need not exist.
            let used = weights.iter().rposition(|&weight| weight > 0).map_or(0, |i| i + 1);
            weights.truncate(used);
            Filled { table, want: SetRss { weights: Some(weights), ..SetRss::default() } }
        }
    };
    if start == 0 {
        return Ok(Some(filled));
    }
    let queues = filled.table.iter().map(|&queue| u16::try_from(queue).unwrap_or(u16::MAX));
    let want = SetRss { indirection_table: Some(queues.collect()), ..SetRss::default() };
    Ok(Some(Filled { want, ..filled }))
}

fn low(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}

/// Table with one contiguous range of buckets per queue: the range of queue `start + j` is
/// proportional to weight `j`.
fn weighted(weights: &[u32], sum: u64, size: usize, start: u32) -> Vec<u32> {
    let mut table = Vec::with_capacity(size);
    let mut until = 0;
    for (j, &weight) in weights.iter().enumerate() {
        until += u64::from(weight);
        let end = usize::try_from(size as u64 * until / sum).unwrap_or(size);
        table.resize(end.max(table.len()), start.saturating_add(low(j)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: weights become the tables that ethtool 6.1 sends.
    #[test]
    fn weights_fill_as_seen() {
        let fill = |weights: &[u32], start| {
            let sum = weights.iter().map(|&w| u64::from(w)).sum();
            weighted(weights, sum, 16, start)
        };
        assert_eq!(fill(&[1, 2, 3], 0), [0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(fill(&[0, 1], 0), [1; 16]);
        assert_eq!(fill(&[1, 0], 0), [0; 16]);
        assert_eq!(fill(&[3, 4], 1), [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(fill(&[1, 0, 6], 1), [1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    }
}
