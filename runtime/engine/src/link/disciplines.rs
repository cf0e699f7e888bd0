//! Disciplines of a running link: tc commands, and the schedulers of the lanes.

use std::collections::VecDeque;
use std::sync::Arc;

use mqnet_netdev::Plan;
use mqnet_netdev::limits::room_for;
use mqnet_qdisc::{Errno, Shape, TcCommand, TcError, Tree};
use mqnet_sysio::clock;
use mqnet_wire::Layer;

use super::{Link, LinkError, from_source_side};
use crate::egress::{Disciplines, Egress, EgressConfig, Full, LaneWakers, Queueing, Shared};
use crate::lane::{Direction, Lane, LaneId};

/// Length of the Ethernet header in bytes. Disciplines count this header as part of a frame; an MTU
/// does not include it.
const ETHERNET_HEADER: u32 = 14;

/// Disciplines and full-sink behaviour of one side.
pub(super) struct Attached {
    pub(super) tree: Tree,
    pub(super) full: Full,
    /// Length of the link-layer header in bytes.
    l2_header: u32,
    /// Shapes of the disciplines of the running lane set and of the prepared set.
    fitted: Vec<Fitted>,
    /// Shared disciplines, each with the number of its lane set.
    shared: Vec<(u32, Arc<Shared>)>,
    /// Eventfds of the lanes, created when first needed. They are kept, because workers know them
    /// by descriptor number.
    wakers: Option<Arc<LaneWakers>>,
}

/// Shape of the disciplines of a lane set.
#[derive(Clone, Copy)]
struct Fitted {
    set: u32,
    shape: Shape,
    /// True if the lanes have or had disciplines. Frames may still wait in disciplines that are
    /// being removed.
    may_wait: bool,
}

impl Attached {
    pub(super) fn new(config: &EgressConfig, layer: Layer) -> Result<Self, LinkError> {
        let words = config.qdisc.as_deref().unwrap_or_default();
        let tree = Tree::new(words, layer).map_err(LinkError::Qdisc)?;
        let (full, fitted, shared) = (config.full, Vec::new(), Vec::new());
        let l2_header = if layer == Layer::Ethernet { ETHERNET_HEADER } else { 0 };
        Ok(Self { tree, full, l2_header, fitted, shared, wakers: None })
    }

    /// Stores the shape of a lane set. Returns the previous shape; `Shape::None` for a new set.
    fn set_fitted(&mut self, set: u32, shape: Shape) -> Shape {
        let before = self.fitted.iter().find(|fitted| fitted.set == set).copied();
        self.fitted.retain(|fitted| fitted.set != set);
        let may_wait = shape != Shape::None || before.is_some_and(|before| before.may_wait);
        self.fitted.push(Fitted { set, shape, may_wait });
        before.map_or(Shape::None, |before| before.shape)
    }

    fn wakers(&mut self, channels: u16) -> Result<Arc<LaneWakers>, String> {
        if let Some(wakers) = &self.wakers {
            return Ok(wakers.clone());
        }
        let wakers =
            LaneWakers::new(channels).map_err(|e| format!("wake-up events of lanes: {e}"))?;
        Ok(self.wakers.insert(Arc::new(wakers)).clone())
    }

    /// Creates disciplines for the channel `only`; with `None`, for all channels, with a single
    /// scheduler for a shared root.
    fn disciplines(&mut self, shape: Shape, only: Option<u16>, plan: &Plan) -> Disciplines {
        let channels = match (only, shape) {
            (Some(channel), _) => channel..channel + 1,
            (None, Shape::SharedRoot) => 0..1,
            (None, _) => 0..plan.channels,
        };
        let seed = clock::monotonic().as_nanos() as u64;
        let frame = plan.mtu + self.l2_header;
        let map = self.tree.may_change_channel().then(|| self.tree.channel_map());
        let schedulers = channels.filter_map(|channel| self.tree.build(channel, frame, seed));
        let schedulers = schedulers.collect();
        let (channels, noqueue) = (plan.channels, self.tree.is_noqueue());
        Disciplines { schedulers, map, channels, noqueue }
    }
}

/// Direction of the lanes that send through a side.
fn way_to(side: usize) -> Direction {
    if side == 1 { Direction::AToB } else { Direction::BToA }
}

impl Link {
    /// Disciplines and filters of a side, for frames that leave through its function.
    pub fn tree(&self, side: usize) -> &Tree {
        &self.attached[side].tree
    }

    /// Executes a tc command. Waiting frames stay. Returns false if nothing changed, and an error
    /// if the command is invalid or a channel change is under way.
    pub fn tc(&mut self, side: usize, command: &TcCommand) -> Result<bool, TcError> {
        if self.change.is_some() {
            return Err(TcError {
                errno: Errno::Busy,
                message: "another change is under way".to_owned(),
                usage: false,
            });
        }
        let max = self.ends.iter().map(|end| end.caps().channels).min().unwrap_or(1);
        let channels = self.running.as_ref().map_or(1, |running| running.plan.channels);
        let changed = self.attached[side].tree.apply(command, channels, max)?;
        if changed {
            self.refit(side).map_err(|message| TcError {
                errno: Errno::Invalid,
                message,
                usage: false,
            })?;
        }
        Ok(changed)
    }

    /// Behaviour while the sink of a side is full and no discipline is attached.
    pub fn full(&self, side: usize) -> Full {
        self.attached[side].full
    }

    /// Sets the behaviour of [`full`](Self::full).
    pub fn set_full(&mut self, side: usize, full: Full) {
        if std::mem::replace(&mut self.attached[side].full, full) == full {
            return;
        }
        // Lanes of a change in progress that no worker has do not get the setting now, so
        // `refresh_full` applies it after the change.
        self.full_changed = self.change.is_some();
        self.apply_full(side);
    }

    /// Applies the full-sink behaviour again if it was set during a channel change.
    pub(crate) fn refresh_full(&mut self) {
        if std::mem::take(&mut self.full_changed) {
            [0, 1].into_iter().for_each(|side| self.apply_full(side));
        }
    }

    fn apply_full(&self, side: usize) {
        let full = self.attached[side].full;
        self.on_lanes_to(side, || {
            move |lane: &mut Lane| {
                // Ignore errors: a lane without memory for `full=drop` continues unchanged.
                let _ = lane.set_full(full);
            }
        });
    }

    /// True if lanes in the direction from the peer have or had disciplines.
    pub(crate) fn peers_way_has_disciplines(&self) -> bool {
        let side = self.peer_side.map_or(0, |peer| 1 - peer);
        let attached = &self.attached[side];
        attached.fitted.iter().any(|fitted| fitted.may_wait)
    }

    /// True if lanes of the running or the prepared set have disciplines.
    pub(super) fn has_disciplines(&self) -> bool {
        let mut fitted = self.attached.iter().flat_map(|attached| &attached.fitted);
        fitted.any(|fitted| fitted.shape != Shape::None)
    }

    /// Attaches the disciplines and the full-sink behaviour of both sides to new lanes. Returns the
    /// reason if memory or an eventfd cannot be created.
    pub(crate) fn attach_disciplines(
        &mut self,
        lanes: &mut [Vec<Lane>; 2],
        set: u32,
        plan: &Plan,
    ) -> Result<(), String> {
        let running = self.running.as_ref().map(|running| running.set);
        for side in 0..2 {
            self.attached[side].fitted.retain(|fitted| Some(fitted.set) == running);
            let shape = self.attached[side].tree.shape(plan.channels);
            let lanes = &mut lanes[1 - side];
            let full = self.attached[side].full;
            for lane in lanes.iter_mut() {
                lane.set_full(full).map_err(|e| e.to_string())?;
            }
            for (lane, egress) in lanes.iter_mut().zip(self.make_egress(side, shape, set, plan)?) {
                lane.install(egress, self.now);
            }
            self.attached[side].set_fitted(set, shape);
        }
        Ok(())
    }

    /// Creates the egress of each lane to a side, in channel order; empty without disciplines.
    fn make_egress(
        &mut self,
        side: usize,
        shape: Shape,
        set: u32,
        plan: &Plan,
    ) -> Result<Vec<Egress>, String> {
        if shape == Shape::None {
            return Ok(Vec::new());
        }
        let max = self.ends[side].caps().channels.max(plan.channels);
        let room = room_for(from_source_side(plan, way_to(side)).rx_frame_max());
        let layer = self.ends[side].caps().layer;
        let attached = &mut self.attached[side];
        if shape == Shape::PerChannel {
            let own = |channel| {
                let disciplines = attached.disciplines(shape, Some(channel), plan);
                let node = self.workers.memory_of(channel);
                let queueing = Queueing::new(disciplines, layer, room, node);
                queueing.map(|q| Egress::own(channel, q)).map_err(|e| e.to_string())
            };
            return (0..plan.channels).map(own).collect();
        }
        let node = self.workers.memory_of(0);
        let disciplines = attached.disciplines(shape, None, plan);
        let queueing = Queueing::new(disciplines, layer, room, node).map_err(|e| e.to_string())?;
        let shared = Shared::new(queueing, attached.wakers(max)?);
        attached.shared.retain(|(of, shared)| *of != set && Arc::strong_count(shared) > 1);
        attached.shared.push((set, shared.clone()));
        Ok((0..plan.channels).map(|channel| Egress::shared(channel, &shared)).collect())
    }

    /// Applies the current disciplines of a side to the running lanes. Returns the reason if memory
    /// or an eventfd cannot be created.
    fn refit(&mut self, side: usize) -> Result<(), String> {
        let Some(running) = &self.running else { return Ok(()) };
        let (set, plan) = (running.set, running.plan.clone());
        let shape = self.attached[side].tree.shape(plan.channels);
        let before = self.attached[side].set_fitted(set, shape);
        match shape {
            Shape::None => self.on_lanes_to(side, || Lane::retire_disciplines),
            _ if shape == before => self.succeed(side, shape, set, &plan),
            _ => {
                let mut next = self.make_egress(side, shape, set, &plan)?.into_iter();
                self.on_lanes_to(side, || {
                    let next = next.next();
                    move |lane: &mut Lane| {
                        if let Some(egress) = next {
                            lane.install(egress, clock::monotonic());
                        }
                    }
                });
            }
        }
        Ok(())
    }

    /// Replaces the schedulers of disciplines with an unchanged shape.
    fn succeed(&mut self, side: usize, shape: Shape, set: u32, plan: &Plan) {
        let attached = &mut self.attached[side];
        if shape == Shape::PerChannel {
            let each = |channel| attached.disciplines(shape, Some(channel), plan);
            let mut next: VecDeque<_> = (0..plan.channels).map(each).collect();
            self.on_lanes_to(side, || {
                let next = next.pop_front();
                move |lane: &mut Lane| {
                    if let Some(next) = next {
                        // The call succeeds: with this shape, the disciplines of the lane are not
                        // shared.
                        let _ = lane.succeed(next, clock::monotonic());
                    }
                }
            });
            return;
        }
        let mut next = Some(attached.disciplines(shape, None, plan));
        let shared = attached.shared.iter().find(|(of, _)| *of == set).map(|(_, s)| s.clone());
        let Some(shared) = shared else { return };
        self.on_lanes_to(side, || {
            // The edit of the first lane replaces the schedulers for all lanes.
            let work = next.take().map(|next| (shared.clone(), next));
            move |lane: &mut Lane| {
                if let Some((shared, next)) = work {
                    lane.succeed_shared(&shared, next, clock::monotonic());
                }
            }
        });
    }

    /// Frees shared disciplines that no lane uses.
    pub(super) fn free_unused_disciplines(&mut self) {
        for attached in &mut self.attached {
            attached.shared.retain(|(_, shared)| Arc::strong_count(shared) > 1);
        }
    }

    /// Runs an edit on every running lane that sends through a side.
    fn on_lanes_to<E: FnOnce(&mut Lane) + Send + 'static>(
        &self,
        side: usize,
        mut edit: impl FnMut() -> E,
    ) {
        let Some(running) = &self.running else { return };
        for channel in 0..running.plan.channels {
            let id = LaneId { set: running.set, channel, way: way_to(side) };
            let edit = edit();
            let edit = move |lane: &mut Lane| {
                edit(lane);
                Ok(())
            };
            self.workers.edit(id, Box::new(edit));
        }
    }
}
