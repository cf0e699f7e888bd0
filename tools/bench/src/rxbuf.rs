//! Comparison of RX buffers: page fragments with full pages, and the page pool with plain
//! allocation, both on one core without a device. Fragments and full pages are also compared in
//! mqnet's driver, behind a device of mqnet.

mod driver;
pub(super) mod life;

use super::child::RunFolder;
use super::instr;
use super::link;
use super::pingpong::{Slice, one_cpu_slice};
use super::report::{Case, Line, Report, Unit};
use super::section::Section;
use super::slices;
use super::{Result, Session, xdp};

use life::{Kind, Life};

/// Numbers of flows. Each flow keeps some frames, so that buffers return out of order.
const FLOWS: [usize; 4] = [1, 8, 32, 128];
const BYTES: usize = 1514;

pub(super) fn run(session: &Session, report: &mut Report) -> Result<()> {
    for flows in FLOWS {
        let name = format!("{flows} flows, one queue, {BYTES} B");
        let lives = [("fragment", Kind::Fragment(1536)), ("full page", Kind::FullPage)];
        report.cases.push(compare(session, name, &lives, 1, flows)?);
    }
    for queues in [1, 8] {
        for (mode, size) in [("mergeable", 1536), ("small", 1920)] {
            let name = format!("{mode}, {queues} queues, 32 flows, {BYTES} B");
            let lives = [("page pool", Kind::Fragment(size)), ("malloc", Kind::Plain(size))];
            report.cases.push(compare(session, name, &lives, queues, 32)?);
        }
    }
    for queues in [1, 8] {
        for mergeable in [true, false] {
            report.cases.push(behind_a_device(session, queues, mergeable)?);
        }
    }
    report.cases.push(programs(session)?);
    instructions(session, report)
}

/// Compares the frame rate with an XDP program that drops all frames with the rate if the program
/// passes all frames.
fn programs(session: &Session) -> Result<Case> {
    let name = "an XDP program, 64 B".to_owned();
    let mut verdicts = [xdp::burst(64, true)?, xdp::burst(64, false)?];
    let mut series = [Vec::new(), Vec::new()];
    for pair in 0..=session.pairs {
        session.check()?;
        session.progress.show(&format!("{name}: pair {pair} of {}", session.pairs));
        for turn in slices::order(verdicts.len(), pair) {
            let burst = &mut verdicts[turn];
            let slice = one_cpu_slice(session.cpus[0], session.slice, burst)?;
            if pair > 0 {
                series[turn].push(slice.sample());
            }
        }
    }
    let lines = ["drops all", "lets all pass"].into_iter().zip(series);
    let lines = lines.map(|(who, samples)| Line::of(who, samples)).collect();
    Ok(Case::new(name, Unit::Frames { bytes: 64 }, lines))
}

/// Compares kinds of buffers in alternating slices, each on the same core.
fn compare(
    session: &Session,
    name: String,
    lives: &[(&str, Kind)],
    queues: usize,
    flows: usize,
) -> Result<Case> {
    let made: Result<Vec<Life>> =
        lives.iter().map(|(_, kind)| Life::new(*kind, BYTES, queues, flows)).collect();
    let mut made = made?;
    let mut series = vec![Vec::new(); made.len()];
    // The first slice of each kind warms caches and page tables and is not counted.
    for pair in 0..=session.pairs {
        session.check()?;
        session.progress.show(&format!("{name}: pair {pair} of {}", session.pairs));
        for turn in slices::order(made.len(), pair) {
            let life = &mut made[turn];
            let slice: Slice = one_cpu_slice(session.cpus[0], session.slice, || life.burst())?;
            if pair > 0 {
                series[turn].push(slice.sample());
            }
        }
    }
    let lines = lives.iter().zip(series).map(|((who, _), samples)| Line::of(who, samples));
    Ok(Case::new(name, Unit::Frames { bytes: BYTES }, lines.collect()))
}

/// Compares page fragments with full pages in mqnet's driver; mqnet's device is another process.
fn behind_a_device(session: &Session, queues: u16, mergeable: bool) -> Result<Case> {
    let folder = RunFolder::new()?;
    let mode = if mergeable { "mergeable" } else { "small" };
    let name = format!("driver behind a device, {mode}, {queues} queues, {BYTES} B");
    session.progress.show(&format!("{name}: starting the processes"));
    let start = |layout| {
        let pair = driver::Pair::start(session, &folder.path, layout, queues, mergeable, BYTES);
        pair.map(link::boxed)
    };
    let contenders = vec![("fragment", start("frag")), ("full page", start("full"))];
    link::row(session, name, BYTES, contenders)
}

/// Counts instructions per frame. A note has the pool's share of these instructions.
fn instructions(session: &Session, report: &mut Report) -> Result<()> {
    let folder = RunFolder::new()?;
    let mut values = Vec::new();
    let mut lines = Vec::new();
    for (who, section) in [
        ("fragment", Section::RxFragment),
        ("full page", Section::RxFullPage),
        ("no pool", Section::RxNone),
    ] {
        session.check()?;
        session.progress.show(&format!("counting instructions: {who}"));
        let counted = instr::ours(&folder.path, section, BYTES);
        values.push(counted.as_ref().map_or(f64::NAN, |value| *value));
        lines.push(instr::line(who, counted));
    }
    if let &[frag, full, none] = values.as_slice()
        && none.is_finite()
    {
        let share = |of: f64| 100.0 * (of - none) / of;
        report.notes.push(format!(
            "of the instructions for a frame the pool has {:.1} % with fragments and {:.1} % with \
             full pages",
            share(frag),
            share(full)
        ));
    }
    let name = format!("instructions, 32 flows, {BYTES} B");
    report.cases.push(Case::new(name, Unit::Instructions, lines));
    Ok(())
}
