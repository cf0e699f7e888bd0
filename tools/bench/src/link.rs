//! Comparison of an mqnet link between two processes with DPDK's memif and with the memory limit.

use super::child::RunFolder;
use super::hugepages::HugePages;
use super::limit::Limit;
use super::report::{Case, Line, Report, Unit};
use super::slices::{self, End, Plan};
use super::testpmd::Memif;
use super::{LinkPlug, LinkSetup, Result, Session, instr, peers};

/// Number of 2 MiB huge pages for two testpmd with the largest frames.
const HUGE_PAGES: u64 = 2 * (256 + 32) / 2;

pub(super) type Contender = (&'static str, Result<Box<dyn End>>);

pub(super) fn run(
    session: &Session,
    report: &mut Report,
    plug: Option<&LinkPlug>,
    sizes: &[usize],
) -> Result<()> {
    let folder = RunFolder::new()?;
    let pages = HugePages::reserve(HUGE_PAGES);
    report.notes.push(pages.note().to_owned());
    for &bytes in sizes {
        session.progress.show(&format!("link {bytes} B: starting the processes"));
        let contenders = vec![
            ("mqnet", ours(session, plug, bytes, 1)),
            ("memory limit", Limit::start(session, bytes).map(boxed)),
            ("DPDK memif copy", Memif::start(session, &folder, &pages, bytes).map(boxed)),
        ];
        report.cases.push(row(session, format!("link {bytes} B"), bytes, contenders)?);
    }
    Ok(())
}

pub(super) fn boxed<E: End + 'static>(end: E) -> Box<dyn End> {
    Box::new(end)
}

fn ours(
    session: &Session,
    plug: Option<&LinkPlug>,
    bytes: usize,
    channels: u16,
) -> Result<Box<dyn End>> {
    let plug = plug.ok_or("this program has no link to measure")?;
    let [tx_cpu, rx_cpu] = session.cpus;
    (plug.start)(&LinkSetup { bytes, tx_cpu, rx_cpu, channels })
}

/// Measures the cost of additional channels: the two contenders differ only in the number of
/// channels.
pub(super) fn run_channels(
    session: &Session,
    report: &mut Report,
    plug: Option<&LinkPlug>,
    sizes: &[usize],
) -> Result<()> {
    for &bytes in sizes {
        session.progress.show(&format!("channels {bytes} B: starting the processes"));
        let contenders = vec![
            ("64 channels", ours(session, plug, bytes, 64)),
            ("1 channel", ours(session, plug, bytes, 1)),
        ];
        report.cases.push(row(session, format!("link {bytes} B"), bytes, contenders)?);
        session.check()?;
        session.progress.show(&format!("channels {bytes} B: counting cache misses"));
        // A new folder is needed: the ended links have removed the old one.
        let folder = RunFolder::new()?;
        let lines = [("64 channels", 64), ("1 channel", 1)].map(|(who, channels)| {
            let counted = peers::needs("valgrind", "valgrind");
            let counted = counted.and_then(|()| instr::misses(&folder.path, bytes, channels));
            instr::line(who, counted)
        });
        let name = format!("lines into a first-level cache of 32 KiB for a frame, {bytes} B");
        report.cases.push(Case::new(name, Unit::Misses, lines.into()));
    }
    Ok(())
}

/// Runs the contenders that started. Other contenders appear with the reason of their failure.
pub(super) fn row(
    session: &Session,
    name: String,
    bytes: usize,
    contenders: Vec<Contender>,
) -> Result<Case> {
    let mut lines = Vec::new();
    let mut running = Vec::new();
    let mut ends = Vec::new();
    for (at, (who, end)) in contenders.into_iter().enumerate() {
        match end {
            Ok(end) => {
                ends.push(end);
                running.push(at);
                lines.push(Line::of(who, Vec::new()));
            }
            Err(reason) => lines.push(Line::skipped(who, reason.to_string())),
        }
    }
    let plan = Plan::new(session.pairs, session.slice);
    let series = slices::compare(session, &name, &mut ends, plan)?;
    for (at, samples) in running.into_iter().zip(series) {
        lines[at] = Line::of(&lines[at].who.clone(), samples);
    }
    Ok(Case::new(name, Unit::Frames { bytes }, lines))
}
