//! Cost of an attached but empty discipline for a lane, in exact instructions and in time.

use std::time::Duration;

use super::{Case, Line, Result, Session, Unit, case, median, promise, samples, stats};
use crate::child::RunFolder;
use crate::instr::{self, EMPTY_QDISC};
use crate::section::Section;
use crate::{LinkPlug, peers, pingpong};

/// Maximum permitted relative cost.
const MOST: f64 = 0.03;
/// Length of a slice, short to reduce the drift between the contenders.
const SLICE: Duration = Duration::from_millis(20);

/// Cases and notes of the results.
type Found = (Vec<Case>, Vec<String>);

pub(super) fn run(session: &Session, plug: Option<&LinkPlug>) -> Result<Found> {
    let plug = plug.ok_or("this program has no link to measure")?;
    let mut found = Found::default();
    for bytes in [64, 1514] {
        session.check()?;
        session.progress.show(&format!("bypass {bytes} B: counting instructions"));
        instructions(bytes, &mut found)?;
        time(session, plug, bytes, &mut found)?;
    }
    Ok(found)
}

fn note(found: &mut Found, what: &str, bytes: usize, ratio: f64) {
    let what = format!("{what} of a lane with an empty {EMPTY_QDISC}, {bytes} B");
    let measured = format!("{:+.2} %", (ratio - 1.0) * 100.0);
    found.1.push(promise(ratio < 1.0 + MOST, &what, &measured, "< +3 %"));
}

fn instructions(bytes: usize, found: &mut Found) -> Result<()> {
    let name = format!("link {bytes} B, one thread: instructions");
    if let Err(error) = peers::needs("valgrind", "valgrind") {
        let line = Line::skipped("mqnet", error.to_string());
        found.0.push(case(name, Unit::Instructions, vec![line]));
        return Ok(());
    }
    let folder = RunFolder::new()?;
    let count = |section| instr::ours(&folder.path, section, bytes);
    let lines = vec![
        instr::line(EMPTY_QDISC, count(Section::LinkQdisc)),
        instr::line("nothing attached", count(Section::Link)),
    ];
    let case = Case::new(name, Unit::Instructions, lines);
    if let Some(ratio) = case.ratios.first() {
        note(found, "instructions", bytes, median(ratio));
    }
    found.0.push(case);
    Ok(())
}

/// Measures without, with, and again without a discipline. The two runs without a discipline show
/// the noise.
fn time(session: &Session, plug: &LinkPlug, bytes: usize, found: &mut Found) -> Result<()> {
    let mut links = [(plug.burst)(bytes, None)?, (plug.burst)(bytes, Some(EMPTY_QDISC))?];
    let mut series = [const { Vec::new() }; 3];
    let name = format!("link {bytes} B, one thread: time");
    // The first round warms caches and is not counted.
    for round in 0..=session.pairs {
        session.check()?;
        session.progress.show(&format!("{name}: round {round} of {}", session.pairs));
        for (turn, link) in [0, 1, 0].into_iter().enumerate() {
            let slice = pingpong::one_cpu_slice(session.cpus[0], SLICE, &mut links[link])?;
            // Store nanoseconds per frame, so that a higher value is worse, like for instructions.
            series[turn].push(1e9 / slice.sample().value);
        }
    }
    let [before, with, after] = series.map(|values: Vec<f64>| values[1..].to_vec());
    let without = before.iter().zip(&after).map(|(a, b)| f64::midpoint(*a, *b));
    let without = samples(without);
    let (with, before, after) = (samples(with), samples(before), samples(after));
    let ratio = Line::of("fq_codel / nothing", stats::ratios(&with, &without));
    let itself = Line::of("nothing / itself", stats::ratios(&after, &before));
    note(found, "time", bytes, median(&ratio));
    let lines = vec![Line::of(EMPTY_QDISC, with), Line::of("nothing attached", without)];
    found.0.push(Case { name, unit: Unit::Nanoseconds, lines, ratios: vec![ratio, itself] });
    Ok(())
}
