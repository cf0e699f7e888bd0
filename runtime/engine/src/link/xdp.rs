//! XDP programs on the lanes of a running link. New lanes of a channel change get the programs too.

use std::sync::Arc;

use mqnet_ebpf::{Origin, Program};
use mqnet_netdev::Plan;
use mqnet_sysio::clock;
use mqnet_sysio::eventfd::EventFd;
use mqnet_wire::Layer;
use mqnet_xdp::wrap::{HookConfig, Hooked, Pages, ReinjectConfig, ReinjectRx, ReinjectWaker, way};

use super::{Link, from_source_side};
use crate::lane::{Direction, Lane, LaneId};

/// Reason why a program cannot be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The side already has a program.
    #[error("a program is attached already: detach it first")]
    Busy,
    /// The side has no program.
    #[error("no program is attached")]
    None,
    /// The frames of the function have no Ethernet header.
    #[error("it carries IP packets: XDP programs need Ethernet frames")]
    Layer,
    /// An eventfd cannot be created.
    #[error("no eventfd for XDP_TX reinjection: {0}")]
    System(#[from] std::io::Error),
}

struct Attached {
    program: Arc<Program>,
    /// Interface indexes of both netdevs.
    ifindexes: [u32; 2],
}

/// XDP programs of a link, by side.
#[derive(Default)]
pub(super) struct Programs {
    attached: [Option<Attached>; 2],
    /// Program wrappers and reinjection paths that are being removed.
    leaving: Vec<Hooked>,
    /// Program wrappers and reinjection paths in use.
    placed: [Vec<Hooked>; 2],
}

impl Programs {
    pub(super) fn any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    pub(super) fn is_attached(&self, side: usize) -> bool {
        self.attached[side].is_some()
    }
}

struct Rings(Arc<EventFd>);

impl ReinjectWaker for Rings {
    fn ring(&self) {
        // Ignore errors: they mean that the counter is full, and a full counter wakes as well.
        let _ = self.0.ring();
    }
}

/// Program wrapper and reinjection path for the two lanes of a channel.
struct Pair {
    hook: HookConfig,
    inlet: ReinjectRx,
    joined: Hooked,
    waker: Arc<EventFd>,
}

impl Link {
    /// True if frames from the peer may wait before this end's sink, in disciplines or in a
    /// program's pages.
    pub(crate) fn peers_way_may_wait(&self) -> bool {
        self.peers_way_has_disciplines() || self.peers_way_has_hooks()
    }

    /// True if a program is attached or being removed on a link with a peer. Frames from the peer
    /// may then wait in the program's pages, although the peer regards them as taken. Reinjected
    /// frames may wait as well, and must not open a sink for new lanes before the old lanes have
    /// left it.
    pub(crate) fn peers_way_has_hooks(&self) -> bool {
        let attached = self.programs.attached.iter().any(Option::is_some);
        self.peer_side.is_some() && (attached || self.programs.any_leaving())
    }

    /// Program of a side; `None` if no program is attached.
    pub fn xdp(&self, side: usize) -> Option<&Arc<Program>> {
        self.programs.attached[side].as_ref().map(|attached| &attached.program)
    }

    fn pair(&mut self, side: usize, channel: u16, plan: &Plan) -> Result<Option<Pair>, XdpError> {
        let Some(attached) = &self.programs.attached[side] else { return Ok(None) };
        let (program, ifindexes) = (attached.program.clone(), attached.ifindexes);
        let Some(stats) = self.ends[side].stats().get(usize::from(channel)).cloned() else {
            return Ok(None);
        };
        let waker = Arc::new(EventFd::new()?);
        let (hooked, joined) = (Hooked::default(), Hooked::default());
        self.programs.placed[side].extend([hooked.clone(), joined.clone()]);
        // The program processes frames before their segmentation, so the size of arriving frames
        // counts.
        let way_in = if side == 0 { Direction::AToB } else { Direction::BToA };
        let plan_in = from_source_side(plan, way_in);
        let (arrives, offloads) = (plan_in.rx_frame_max(), plan_in.rx_offloads);
        let frame_max = plan.frame_max;
        let tx_offloads = if side == 0 { plan.tx_offloads } else { plan.rx_offloads };
        let (count, own) = (stats.clone(), joined.clone());
        let config = ReinjectConfig { stats: count, frame_max, tx_offloads, joined: own };
        let (outlet, inlet) = way(config, Box::new(Rings(waker.clone())));
        let hook = HookConfig {
            program,
            origin: Origin {
                ifindex: ifindexes[side],
                channel,
                clock: || clock::monotonic().as_nanos() as u64,
            },
            other: ifindexes[1 - side],
            stats,
            pages: Pages::new(arrives),
            frame_max: arrives,
            offloads,
            tx_offloads,
            outlet,
            hooked,
        };
        Ok(Some(Pair { hook, inlet, joined, waker }))
    }

    /// Adds the programs of both sides to lanes that no worker has yet. Returns the reason if an
    /// eventfd cannot be created.
    pub(super) fn hook_lanes(
        &mut self,
        lanes: &mut [Vec<Lane>; 2],
        plan: &Plan,
    ) -> Result<(), String> {
        for side in [0, 1] {
            self.programs.placed[side].retain(Hooked::is_on);
            for channel in 0..lanes[side].len() {
                let pair = self.pair(side, channel as u16, plan).map_err(|e| e.to_string())?;
                let Some(Pair { hook, inlet, joined, waker }) = pair else { continue };
                lanes[side][channel].hook(hook);
                lanes[1 - side][channel].join(inlet, joined, waker);
            }
        }
        Ok(())
    }

    /// Attaches a program for frames that arrive at a side. The workers add the program between two
    /// bursts. Fails if the side has a program, if its frames have no Ethernet header, or if an
    /// eventfd cannot be created.
    pub fn attach_xdp(
        &mut self,
        side: usize,
        program: Arc<Program>,
        ifindexes: [u32; 2],
    ) -> Result<(), XdpError> {
        if self.programs.attached[side].is_some() {
            return Err(XdpError::Busy);
        }
        if self.ends[side].caps().layer != Layer::Ethernet {
            return Err(XdpError::Layer);
        }
        self.programs.attached[side] = Some(Attached { program, ifindexes });
        self.ends[side].set_xdp(true);
        let running = self.running.as_ref().map(|running| (running.plan.clone(), running.set));
        let Some((plan, set)) = running else { return Ok(()) };
        let pairs: Result<Vec<_>, _> =
            (0..plan.channels).map(|channel| self.pair(side, channel, &plan)).collect();
        let pairs = pairs.inspect_err(|_| {
            self.programs.attached[side] = None;
            // Wrappers created so far are on no lane, so their removal would never be reported.
            self.programs.placed[side].clear();
            self.ends[side].set_xdp(false);
        })?;
        let (way, back) = if side == 0 {
            (Direction::AToB, Direction::BToA)
        } else {
            (Direction::BToA, Direction::AToB)
        };
        for (channel, pair) in (0..plan.channels).zip(pairs) {
            let Some(Pair { hook, inlet, joined, waker }) = pair else { continue };
            // Install the reinjection first, then the program that uses it.
            let join = move |lane: &mut Lane| {
                lane.join(inlet, joined, waker);
                Ok(())
            };
            let hook = move |lane: &mut Lane| {
                lane.hook(hook);
                Ok(())
            };
            self.workers.edit(LaneId { set, channel, way: back }, Box::new(join));
            self.workers.edit(LaneId { set, channel, way }, Box::new(hook));
        }
        Ok(())
    }

    /// Sets the interface indexes of both netdevs after a function was replaced.
    pub fn set_ifindexes(&mut self, ifindexes: [u32; 2]) {
        let attached = self.programs.attached.iter_mut().flatten();
        attached.for_each(|attached| attached.ifindexes = ifindexes);
    }

    /// Detaches and returns the program of a side. Frames that the program has passed or reinjected
    /// are still sent. Fails if no program is attached.
    pub fn detach_xdp(&mut self, side: usize) -> Result<Arc<Program>, XdpError> {
        let attached = self.programs.attached[side].take().ok_or(XdpError::None)?;
        self.ends[side].set_xdp(false);
        let placed = std::mem::take(&mut self.programs.placed[side]);
        self.programs.leaving.extend(placed);
        self.tidy_hooks();
        Ok(attached.program)
    }

    fn tidy_hooks(&self) {
        let has = [0, 1].map(|side| self.programs.attached[side].is_some());
        self.on_every_lane(|| {
            move |lane: &mut Lane| {
                let from = usize::from(lane.id().way == Direction::BToA);
                if !has[from] {
                    lane.unhook();
                }
                if !has[1 - from] {
                    lane.unjoin();
                }
            }
        });
    }

    /// Retries the removal of program wrappers in which frames waited.
    pub(super) fn retry_hook_removal(&mut self) {
        self.programs.leaving.retain(Hooked::is_on);
        if self.programs.any_leaving() {
            self.tidy_hooks();
        }
    }
}
