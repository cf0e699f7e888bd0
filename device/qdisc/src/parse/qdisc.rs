//! Options of disciplines and classes.

use crate::command::Errno;
use crate::parse::{Words, invalid, number, unknown, usage};
use crate::{DrrClass, Fifo, FqCodel, Params, Prio, Tbf, TcError};

use super::mqprio::mqprio;

/// Packets of a fifo when nothing is said: a device's `txqueuelen`.
const TXQUEUELEN: u32 = 1000;
const FLOWS_MAX: u32 = 65_536;
const QUANTUM_MIN: u32 = 256;
const QUANTUM_MAX: u32 = 1 << 20;
const MEMORY_MAX: u32 = 1 << 31;

/// What defaults depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Env {
    /// MTU with its link-layer header.
    pub(crate) frame: u32,
    /// Most channels that there can be.
    pub(crate) channels: u16,
}

/// The options of a discipline. `old`: the ones in force of the same kind, which stay where nothing
/// is said, as far as the kernel keeps them.
pub(crate) fn params(
    kind: &str,
    options: &[String],
    old: Option<&Params>,
    env: Env,
) -> Result<Params, TcError> {
    let mut words = Words::new(options);
    match (kind, old) {
        ("noqueue" | "mq", _) => match words.next() {
            Some(word) => Err(usage(format!(
                "Unknown qdisc \"{kind}\", hence option \"{word}\" is unparsable"
            ))),
            None => Ok(if kind == "mq" { Params::Mq } else { Params::Noqueue }),
        },
        ("pfifo_fast", _) => match words.next() {
            Some(_) => Err(usage("qdisc 'pfifo_fast' does not support option parsing")),
            None => Ok(Params::PfifoFast(Fifo { limit: TXQUEUELEN })),
        },
        ("pfifo", Some(Params::Pfifo(old))) => fifo("pfifo", words, *old).map(Params::Pfifo),
        ("bfifo", Some(Params::Bfifo(old))) => fifo("bfifo", words, *old).map(Params::Bfifo),
        ("pfifo", _) => fifo("pfifo", words, Fifo { limit: TXQUEUELEN }).map(Params::Pfifo),
        ("bfifo", _) => {
            let limit = TXQUEUELEN.saturating_mul(env.frame);
            fifo("bfifo", words, Fifo { limit }).map(Params::Bfifo)
        }
        ("prio", _) => prio(words).map(Params::Prio),
        ("mqprio", Some(_)) => Err(invalid("Change operation not supported by specified qdisc")),
        ("mqprio", None) => mqprio(words, env.channels).map(Params::Mqprio),
        ("tbf", _) => tbf(words).map(Params::Tbf),
        ("fq_codel", Some(Params::FqCodel(old))) => {
            fq_codel(words, *old, true).map(Params::FqCodel)
        }
        ("fq_codel", _) => fq_codel(words, FqCodel::default(), false).map(Params::FqCodel),
        ("drr", _) => words.next().map_or(Ok(Params::Drr), |word| Err(unknown(word))),
        ("clsact", _) => words.next().map_or(Ok(Params::Clsact), |word| Err(unknown(word))),
        _ => Err(TcError {
            errno: Errno::NotFound,
            message: "Specified qdisc kind is unknown".to_owned(),
            usage: false,
        }),
    }
}

fn fifo(kind: &str, mut words: Words<'_>, old: Fifo) -> Result<Fifo, TcError> {
    let mut fifo = old;
    while let Some(word) = words.next() {
        match word {
            "limit" => {
                let word = words.value()?;
                fifo.limit = number::size(word).ok_or_else(|| {
                    usage(format!("{kind}: Illegal value for \"limit\": \"{word}\""))
                })?;
            }
            _ => return Err(usage(format!("{kind}: unknown parameter \"{word}\""))),
        }
    }
    Ok(fifo)
}

fn prio(mut words: Words<'_>) -> Result<Prio, TcError> {
    let mut prio = Prio::default();
    let mut mapped = None;
    while let Some(word) = words.next() {
        match (word, &mut mapped) {
            ("bands", _) => {
                let bands = words.read("bands", number::decimal::<u32>)?;
                prio.bands = bands.try_into().unwrap_or(u8::MAX);
            }
            ("priomap", None) => {
                // An element has to follow.
                words.peek().map_or_else(|| words.value().map(drop), |_| Ok(()))?;
                mapped = Some(0);
            }
            ("priomap", Some(_)) => return Err(usage("Error: duplicate priomap")),
            (word, Some(at)) => {
                let band = number::decimal::<u8>(word)
                    .ok_or_else(|| usage(format!("Illegal \"priomap\" element: \"{word}\"")))?;
                if band >= prio.bands {
                    return Err(usage("\"priomap\" element is out of bands"));
                }
                let slot = prio.priomap.get_mut(*at);
                *slot.ok_or_else(|| usage("\"priomap\" index > TC_PRIO_MAX=15"))? = band;
                *at += 1;
            }
            (word, None) => return Err(unknown(word)),
        }
    }
    if !(2..=16).contains(&prio.bands) {
        return Err(invalid("prio: bands must be 2 to 16"));
    }
    match prio.priomap.iter().find(|band| **band >= prio.bands) {
        Some(band) => {
            Err(invalid(format!("prio: priomap has band {band}, of {} bands", prio.bands)))
        }
        None => Ok(prio),
    }
}

/// A value of tbf, which complains in words of its own.
fn tbf_value<T: Copy>(
    words: &mut Words<'_>,
    name: &str,
    into: &mut Option<T>,
    read: fn(&str) -> Option<T>,
) -> Result<(), TcError> {
    if into.is_some() {
        return Err(usage(format!("tbf: duplicate \"{name}\" specification")));
    }
    let word = words.value()?;
    let value = read(word);
    *into =
        Some(value.ok_or_else(|| usage(format!("tbf: illegal value for \"{name}\": \"{word}\"")))?);
    Ok(())
}

/// Bytes; a cell size behind a slash is checked and has no meaning.
fn burst(word: &str) -> Option<u32> {
    match word.split_once('/') {
        Some((bytes, cell)) => {
            let cell: u32 = number::decimal(cell)?;
            number::size(bytes).filter(|_| cell.is_power_of_two())
        }
        None => number::size(word),
    }
}

fn tbf(mut words: Words<'_>) -> Result<Tbf, TcError> {
    let (mut rate, mut bucket, mut limit, mut latency) = (None, None, None, None);
    let (mut peakrate, mut mtu) = (None, None);
    while let Some(word) = words.next() {
        let words = &mut words;
        match word {
            "rate" => tbf_value(words, word, &mut rate, number::rate)?,
            "burst" | "buffer" | "maxburst" => tbf_value(words, word, &mut bucket, burst)?,
            "limit" => tbf_value(words, word, &mut limit, number::size)?,
            "latency" => tbf_value(words, word, &mut latency, number::time)?,
            "peakrate" => tbf_value(words, word, &mut peakrate, number::rate)?,
            "mtu" | "minburst" => tbf_value(words, word, &mut mtu, burst)?,
            _ => return Err(usage(format!("tbf: unknown parameter \"{word}\""))),
        }
    }
    let positive = |name, value: Option<u64>| {
        let missing = || usage(format!("tbf: the \"{name}\" parameter is mandatory"));
        value.filter(|value| *value > 0).ok_or_else(missing)
    };
    if limit.is_some() && latency.is_some() {
        return Err(usage("tbf: specifying both \"limit\" and \"latency\" is not allowed"));
    }
    let rate = positive("rate", rate)?;
    let bucket = positive("burst", bucket.map(u64::from))? as u32;
    let (peakrate, mtu) = (peakrate.unwrap_or(0), mtu.unwrap_or(0));
    if peakrate > 0 && mtu == 0 {
        let text = "tbf: when \"peakrate\" is specified, \"mtu\" must also be specified";
        return Err(usage(text));
    }
    let limit = match (limit.unwrap_or(0), latency.unwrap_or(0)) {
        (0, 0) => return Err(usage("tbf: either \"limit\" or \"latency\" is required")),
        (0, latency) => latency_limit(latency, (rate, bucket), (peakrate, mtu)),
        (limit, _) => limit,
    };
    if peakrate > 0 && peakrate <= rate {
        return Err(invalid("tbf: peakrate must be greater than rate"));
    }
    Ok(Tbf { rate, burst: bucket, peakrate, mtu, limit })
}

/// Bytes that are through after this long: what the slower bucket lets pass, and its burst.
fn latency_limit(latency: u64, slow: (u64, u32), peak: (u64, u32)) -> u32 {
    let through = |(rate, burst): (u64, u32)| {
        let bytes = u128::from(rate) * u128::from(latency) / 1_000_000_000 + u128::from(burst);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    if peak.0 > 0 { through(slow).min(through(peak)) } else { through(slow) }
}

fn fq_codel(mut words: Words<'_>, old: FqCodel, change: bool) -> Result<FqCodel, TcError> {
    let mut q = old;
    while let Some(word) = words.next() {
        match word {
            "limit" => q.limit = words.read(word, number::number)?,
            "flows" => {
                let flows = words.read(word, number::number)?;
                if change && flows != old.flows {
                    return Err(invalid("fq_codel: flows cannot be changed, only set anew"));
                }
                if !(1..=FLOWS_MAX).contains(&flows) {
                    return Err(invalid("fq_codel: flows must be 1 to 65536"));
                }
                q.flows = flows;
            }
            "quantum" => {
                let quantum = words.read(word, number::number)?;
                if quantum > QUANTUM_MAX {
                    return Err(invalid("Invalid quantum"));
                }
                q.quantum = quantum.max(QUANTUM_MIN);
            }
            "target" => q.target = words.read(word, number::time)?,
            "interval" => q.interval = words.read(word, number::time)?,
            "ce_threshold" => q.ce_threshold = Some(words.read(word, number::time)?),
            "memory_limit" => {
                q.memory_limit = words.read(word, number::size)?.min(MEMORY_MAX);
            }
            "drop_batch" => q.drop_batch = words.read(word, number::number)?.max(1),
            "ecn" => q.ecn = true,
            "noecn" => q.ecn = false,
            _ => return Err(unknown(word)),
        }
    }
    Ok(q)
}

/// The options of a class of drr. A quantum of 0 is the MTU with its link-layer header.
pub(crate) fn drr_class(options: &[String], old: DrrClass) -> Result<DrrClass, TcError> {
    let mut words = Words::new(options);
    let mut class = old;
    while let Some(word) = words.next() {
        match word {
            "quantum" => {
                class.quantum = words.read(word, number::size)?;
                if class.quantum == 0 {
                    return Err(invalid("Specified DRR quantum cannot be zero"));
                }
            }
            _ => return Err(unknown(word)),
        }
    }
    Ok(class)
}
