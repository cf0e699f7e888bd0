//! Extrapolation of the fitted models to machines and links that were not measured; the output
//! marks the measured values.

use std::fmt::Write as _;
use std::hint::black_box;

use super::super::pingpong::one_cpu_slice;
use super::super::{Result, Session};
use super::Model;

/// Copy rates of this machine's memory in bytes per second: in the second-level cache, and far
/// beyond all caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    cached: f64,
    uncached: f64,
}

const CACHED: usize = 64 << 10;
const UNCACHED: usize = 256 << 20;
/// Bytes copied between two checks of the clock.
const CHUNK: usize = 64 << 10;

/// Bits per second of the assumed link.
const LINK: f64 = 400e9;
/// Preamble, frame check sequence and inter-frame gap of Ethernet, in bytes: overhead of a wire
/// that memory does not have.
const ON_WIRE: f64 = 24.0;
/// Memory accesses per byte of a frame between two owners, without any cache hit: each of two
/// copies reads and writes the byte, and a line is read before it is written.
const TOUCHES: f64 = 6.0;
const WORKERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) fn memory(session: &Session) -> Result<Memory> {
    let copy = |bytes: usize| -> Result<f64> {
        let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
        let mut at = 0;
        let burst = || {
            let chunk = at..at + CHUNK.min(bytes);
            to[chunk.clone()].copy_from_slice(black_box(&from[chunk]));
            black_box(&mut to);
            at = (at + CHUNK) % bytes;
            CHUNK.min(bytes)
        };
        let slice = std::thread::scope(|scope| {
            let cpu = session.cpus[0];
            let alone = scope.spawn(move || {
                let mut burst = burst;
                one_cpu_slice(cpu, session.slice * 10, &mut burst).map_err(|e| e.to_string())
            });
            alone.join().map_err(|_| "a thread failed".to_owned())?
        })?;
        Ok(slice.sample().value)
    };
    Ok(Memory { cached: copy(CACHED)?, uncached: copy(UNCACHED)? })
}

/// Number of workers that reaches this rate according to the model; `None` if no number does.
fn needed(model: &Model, rate: f64) -> Option<usize> {
    (1..=1024).find(|&workers| model.law.at(workers as f64) >= rate)
}

pub(super) fn text(models: &[Model], cpus: &[usize], memory: Memory) -> String {
    let mut out = String::new();
    measured(&mut out, models, cpus, memory);
    let _ = writeln!(out, "\nEXTRAPOLATED (nobody has measured this):");
    for model in models {
        table(&mut out, model);
    }
    let _ = writeln!(
        out,
        "\n  A link of 400 Gb/s, full in one direction:\n\
         \n  {:>8}  {:>8}  {:>14}  {:>14}  {:>16}",
        "frame", "Mpps", "CPUs, linear", "CPUs, by law", "memory, at most"
    );
    for model in models {
        let rate = LINK / 8.0 / (model.bytes as f64 + ON_WIRE);
        let linear = (rate / model.law.lambda).ceil();
        let law = needed(model, rate).map_or("none".to_owned(), |n| n.to_string());
        let traffic = rate * model.bytes as f64 * TOUCHES / 1e9;
        let bytes = format!("{} B", model.bytes);
        let _ = writeln!(
            out,
            "  {bytes:>8}  {:>8.1}  {linear:>14.0}  {law:>14}  {traffic:>11.0} GB/s",
            rate / 1e6
        );
    }
    let _ = writeln!(
        out,
        "\n  CPUs: of both ends together. Memory: {TOUCHES} bytes of memory traffic for a byte of \
         a frame,\n  if nothing stays in a cache; with rings and pools in the caches, as here, it \
         is that of the device."
    );
    out
}

fn measured(out: &mut String, models: &[Model], cpus: &[usize], memory: Memory) {
    let _ = writeln!(out, "MEASURED on this machine, with up to {} workers:", cpus.len());
    for model in models {
        let [least, middle, most] = model.sigma;
        let [one, more] = model.channel_cost;
        let _ = writeln!(
            out,
            "  {:>4} B: one worker {:.2} Mpps ({:.1} ns a frame, both ends); serial share \
             {least:.4}, {middle:.4}, {most:.4}\n          (min, median, max of the rounds); \
             {one:.1} ns a frame with one channel, {more:+.3} ns for each other",
            model.bytes,
            model.law.lambda / 1e6,
            1e9 / model.law.lambda,
        );
    }
    let _ = writeln!(
        out,
        "  one CPU copies {:.1} GB/s in its cache, {:.1} GB/s beyond all caches",
        memory.cached / 1e9,
        memory.uncached / 1e9
    );
}

fn table(out: &mut String, model: &Model) {
    let _ = writeln!(out, "\n  {} B frames, both ends of the link on each CPU:\n", model.bytes);
    let heads = ["CPUs", "linear, Mpps", "by law, Mpps", "by law, Gb/s", "of linear"];
    let _ = writeln!(
        out,
        "  {:>5}  {:>13}  {:>13}  {:>13}  {:>9}",
        heads[0], heads[1], heads[2], heads[3], heads[4]
    );
    for workers in WORKERS {
        let (linear, law) = (model.law.lambda * workers as f64, model.law.at(workers as f64));
        // Measured values are marked.
        let mark = if model.workers.contains(&workers) { "*" } else { " " };
        let _ = writeln!(
            out,
            "  {workers:>4}{mark}  {:>13.1}  {:>13.1}  {:>13.1}  {:>7.0} %",
            linear / 1e6,
            law / 1e6,
            law * model.bytes as f64 * 8.0 / 1e9,
            100.0 * law / linear
        );
    }
    let _ = writeln!(out, "  (* measured here)");
}

#[cfg(test)]
mod tests {
    use super::super::usl::Usl;
    use super::*;

    fn model(sigma: f64, workers: Vec<usize>) -> Model {
        let law = Usl { lambda: 10e6, sigma, kappa: 0.0 };
        Model { bytes: 1514, workers, law, sigma: [sigma; 3], channel_cost: [100.0, 0.1] }
    }

    // Goal: the result is the smallest number of workers that reaches the rate, and `None` for a
    // model with a ceiling below the rate.
    #[test]
    fn the_fewest_workers_are_found() {
        assert_eq!(needed(&model(0.0, vec![1]), 32e6), Some(4));
        assert_eq!(needed(&model(0.5, vec![1]), 32e6), None);
    }

    // Goal: measured values are marked, and no others.
    #[test]
    fn measured_rows_are_marked() {
        let memory = Memory { cached: 40e9, uncached: 13e9 };
        let text = text(&[model(0.01, vec![1, 2])], &[0, 1], memory);
        let marked: Vec<&str> =
            text.lines().filter(|line| line.contains("* ") && !line.contains('(')).collect();
        assert_eq!(marked.len(), 2, "{text}");
        assert!(text.contains("EXTRAPOLATED") && text.contains("32.5"), "{text}");
    }
}
