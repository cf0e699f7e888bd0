//! Cost per frame of group membership. The same windows, channels and workers are measured as a
//! single function, as a group, and as a group with fail-over (`on-member-loss=degrade`).

pub(super) mod burst;

use super::child::RunFolder;
use super::instr;
use super::link::{boxed, row};
use super::ntb_ends::pair_at;
use super::report::{Case, Report, Unit};
use super::section::Section;
use super::{LinkSetup, Result, Session, peers};

/// Channels of a link; each member has one.
const CHANNELS: u16 = 2;

const WHO: [(&str, Section); 3] = [
    ("a group of 2", Section::Group),
    ("the same, degrade", Section::GroupDegrade),
    ("one alone", Section::GroupNone),
];

/// Endpoint address of one end.
fn address(folder: &RunFolder, at: Section) -> String {
    let window = |n: u32| format!("ntb:{}/{}-{n}.sock", folder.path.display(), at.word());
    match at {
        Section::Group => format!("{}+{}", window(0), window(1)),
        Section::GroupDegrade => format!("{}+{},on-member-loss=degrade", window(0), window(1)),
        _ => window(0),
    }
}

pub(super) fn run(session: &Session, report: &mut Report, sizes: &[usize]) -> Result<()> {
    let folder = RunFolder::new()?;
    let valgrind = peers::needs("valgrind", "valgrind").map_err(|e| e.to_string());
    for &bytes in sizes {
        session.check()?;
        session.progress.show(&format!("group {bytes} B: counting instructions"));
        let lines = WHO.map(|(who, section)| {
            let counted = valgrind.clone().map_err(Into::into);
            instr::line(who, counted.and_then(|()| instr::ours(&folder.path, section, bytes)))
        });
        let name = format!("{bytes} B, one channel busy, both ends, instructions");
        report.cases.push(Case::new(name, Unit::Instructions, lines.into()));
    }
    let [tx_cpu, rx_cpu] = session.cpus;
    for &bytes in sizes {
        session.progress.show(&format!("group {bytes} B: starting the processes"));
        let setup = LinkSetup { bytes, tx_cpu, rx_cpu, channels: CHANNELS };
        let start = |section| pair_at(&setup, &address(&folder, section)).map(boxed);
        let contenders = WHO.map(|(who, section)| (who, start(section))).into();
        let name = format!("{bytes} B, {CHANNELS} channels on one worker");
        report.cases.push(row(session, name, bytes, contenders)?);
    }
    Ok(())
}
