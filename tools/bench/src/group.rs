//! What it costs a frame that its channel is one of a group: the same windows, channels and
//! workers, as one member alone, as a group, and as one that goes on without members.

use std::sync::Arc;
use std::time::Duration;

use mqnet_engine::{Lane, LaneId, Way};
use mqnet_group::{GroupConfig, GroupFunction, OnLoss};
use mqnet_netdev::{Caps, ChannelStats, Function, LinkStatus};
use mqnet_sysio::clock;

use super::child::RunFolder;
use super::instr::{self, Section};
use super::link::{boxed, row};
use super::ntb_ends::{first, ntb, pair_at};
use super::report::{Case, Report, Unit};
use super::traffic::{self, Role, Traffic};
use super::{Burst, LinkSetup, Result, Session, peers};

/// Each member has one.
const CHANNELS: u16 = 2;

const WHO: [(&str, Section); 3] = [
    ("a group of 2", Section::Group),
    ("the same, degrade", Section::GroupDegrade),
    ("one alone", Section::GroupNone),
];

/// The address of one end.
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

fn end(folder: &RunFolder, section: Section, seed: u64) -> Result<Box<dyn Function>> {
    let window = |n: u64| ntb(&folder.path.join(format!("{n}.sock")), seed + n);
    if section == Section::GroupNone {
        return Ok(Box::new(window(0)));
    }
    let on_loss = match section {
        Section::GroupDegrade => OnLoss::Degrade,
        _ => OnLoss::Destroy,
    };
    let members: Vec<Box<dyn Function>> = vec![Box::new(window(0)), Box::new(window(1))];
    let config = GroupConfig { name: "group".to_owned(), members, on_loss, primary: None, seed };
    Ok(Box::new(GroupFunction::new(config)?))
}

/// Both ends on this thread, of which one channel is busy.
pub(super) fn burst(section: Section, bytes: usize) -> Result<Burst> {
    let folder = RunFolder::new()?;
    let [mut a, mut b] = [end(&folder, section, 1)?, end(&folder, section, 8)?];
    let caps = Traffic::new(Role::Sink, CHANNELS).caps();
    let caps = Caps { wanted: Some(CHANNELS), ..caps };
    connect(&mut *a, &mut *b, &caps)?;
    let plan = a.peer().and_then(|peer| peer.plan()).ok_or("no plan")?;
    let stats: [Arc<ChannelStats>; 2] = [Arc::default(), Arc::default()];
    let source = traffic::channel(Role::Source(bytes), &stats[0], traffic::share(1));
    let sink = traffic::channel(Role::Sink, &stats[1], traffic::share(1));
    let (near, far) = (first(a.open(&plan)?)?, first(b.open(&plan)?)?);
    let id = LaneId { set: 0, channel: 0, way: Way::Forth };
    let count = a.stats()[0].clone();
    let mut send = Lane::new(id, source.rx, near.tx, plan.frame_max, None, count)?;
    let mut receive = Lane::new(id, far.rx, sink.tx, plan.frame_max, None, stats[1].clone())?;
    Ok(Box::new(move || {
        let _alive = (&folder, &a, &b);
        let sent = send.poll(clock::monotonic).map_or(0, |p| p.frames);
        let _ = receive.poll(clock::monotonic);
        sent
    }))
}

/// Lets them shake hands.
fn connect(a: &mut dyn Function, b: &mut dyn Function, caps: &Caps) -> Result<()> {
    a.set_partner(caps);
    b.set_partner(caps);
    for _ in 0..1000 {
        let now = clock::monotonic();
        let up = |status| matches!(status, LinkStatus::Up { .. });
        if up(a.poll_link(now)) & up(b.poll_link(now)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("the two ends did not find each other".into())
}
