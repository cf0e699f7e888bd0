//! Both ends of a link of groups, polled by the calling thread only.

use std::sync::Arc;
use std::time::Duration;

use mqnet_engine::{Direction, Lane, LaneId};
use mqnet_group::{GroupConfig, GroupFunction, OnLoss};
use mqnet_netdev::{Caps, Function, LinkStatus, QueuePairStats};
use mqnet_sysio::clock;

use super::super::child::RunFolder;
use super::super::ntb_ends::{first, ntb};
use super::super::section::Section;
use super::super::traffic::{self, Role, Traffic};
use super::super::{Burst, Result};
use super::CHANNELS;

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

/// Creates both ends on this thread; one channel carries frames.
pub(crate) fn burst(section: Section, bytes: usize) -> Result<Burst> {
    let folder = RunFolder::new()?;
    let [mut a, mut b] = [end(&folder, section, 1)?, end(&folder, section, 8)?];
    let caps = Traffic::new(Role::Sink, CHANNELS).caps();
    let caps = Caps { wanted: Some(CHANNELS), ..caps };
    connect(&mut *a, &mut *b, &caps)?;
    let plan = a.peer().and_then(|peer| peer.plan()).ok_or("no plan")?;
    let stats: [Arc<QueuePairStats>; 2] = [Arc::default(), Arc::default()];
    let source = traffic::channel(Role::Source(bytes), &stats[0], traffic::share(1));
    let sink = traffic::channel(Role::Sink, &stats[1], traffic::share(1));
    let (near, far) = (first(a.open(&plan)?)?, first(b.open(&plan)?)?);
    let id = LaneId { set: 0, channel: 0, way: Direction::AToB };
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

/// Polls both ends until their handshake is complete.
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
