use std::collections::BTreeMap;
use std::sync::Arc;

use mqnet_netdev::DropReason;
use proptest::prelude::*;

use super::plans::{self, PLANS};
use super::world::{MS, SECOND, Spec, World, scheduler};
use crate::{Enqueued, Handle, NodeStats, QueuedPacket};

#[derive(Clone, Debug)]
enum Op {
    Enqueue(Spec),
    Dequeue(u16),
    Requeue,
    Open(u64),
    Pass(u64),
    Adopt(usize),
    Clear,
}

/// Priority of a flow, which is constant: a change of priority may reorder the flow in any qdisc.
fn priority(flow: u32) -> u32 {
    let class = |minor| Handle::new(1, minor).0;
    [0, 6, class(1), class(2), class(9), class(1)][flow as usize % 6]
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![4 => 60u32..1515, 1 => 4001u32..30_000];
    let spec = (0u32..12, 0u16..4, len).prop_map(|(flow, channel, len)| {
        Op::Enqueue(Spec { flow, channel, len, priority: priority(flow) })
    });
    prop_oneof![
        40 => spec,
        30 => (0u16..4).prop_map(Op::Dequeue),
        6 => Just(Op::Requeue),
        8 => (0u64..16).prop_map(Op::Open),
        12 => (1u64..40 * MS).prop_map(Op::Pass),
        2 => (0..PLANS).prop_map(Op::Adopt),
        1 => Just(Op::Clear),
    ]
}

/// Scheduler under test, with the state that the operations must result in.
struct Checked {
    world: World,
    plan: usize,
    root: Arc<NodeStats>,
    entered: u64,
    left: u64,
    /// Number of the last packet sent, by flow and channel.
    last: BTreeMap<(u32, u16), u64>,
    /// Last packet sent, if it may still be requeued.
    out: Option<QueuedPacket>,
    /// Numbers of the requeued packets, which must leave next, by channel.
    returned: BTreeMap<u16, Vec<u64>>,
}

impl Checked {
    fn new(plan: usize) -> Self {
        let blueprint = plans::any(plan);
        let root = blueprint.stats.clone();
        Self {
            world: World::new(blueprint),
            plan,
            root,
            entered: 0,
            left: 0,
            last: BTreeMap::new(),
            out: None,
            returned: BTreeMap::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Enqueue(spec) => {
                self.entered += 1;
                let drops = self.world.stats.drops.total();
                let result = self.world.enqueue(spec);
                let dropped = self.world.stats.drops.total() - drops;
                assert!(dropped > 0 || result == Enqueued::Queued);
            }
            Op::Dequeue(channel) => self.dequeue(channel),
            Op::Requeue => self.requeue(),
            Op::Open(mask) => self.world.open = mask,
            Op::Pass(ns) => self.world.now += ns,
            Op::Adopt(plan) => self.adopt(plan),
            Op::Clear => {
                let waited = self.world.s.len();
                let before = self.world.stats.drops.get(DropReason::LinkClosed);
                assert_eq!(self.world.with(|s, cx| s.clear(cx)), waited);
                let counted = self.world.stats.drops.get(DropReason::LinkClosed) - before;
                assert_eq!(counted, u64::from(waited));
                self.returned.clear();
            }
        }
        self.check();
    }

    fn dequeue(&mut self, channel: u16) {
        let Some(packet) = self.world.with(|s, cx| s.dequeue(channel, cx)) else {
            return self.nothing(channel);
        };
        assert!(self.world.open >> channel & 1 == 1, "a closed channel was served");
        assert_eq!(packet.meta.channel, channel);
        let id = self.world.id(&packet);
        match self.returned.get_mut(&channel).and_then(Vec::pop) {
            Some(next) => assert_eq!(id, next, "a packet that came back leaves next"),
            None => {
                let last = self.last.insert((packet.hash, channel), id);
                assert!(last < Some(id), "flow {} out of order", packet.hash);
            }
        }
        self.left += 1;
        if let Some(old) = self.out.replace(packet) {
            self.world.pool.free_frag(old.frag);
        }
    }

    /// Checks, after a dequeue without a result, that the channel is closed or empty, or that a
    /// rate holds its packets back.
    fn nothing(&self, channel: u16) {
        let (s, now) = (&self.world.s, self.world.now);
        let waits = s.len_of(channel) > 0 && self.world.open >> channel & 1 == 1;
        let held = plans::has_rate(self.plan) && s.next_time().is_some_and(|at| at > now);
        assert!(!waits || held, "plan {}: channel {channel} is blocked", self.plan);
    }

    fn requeue(&mut self) {
        let Some(packet) = self.out.take() else { return };
        let id = self.world.id(&packet);
        self.returned.entry(packet.meta.channel).or_default().push(id);
        self.left -= 1;
        self.world.with(|s, cx| s.requeue(packet, cx));
    }

    fn adopt(&mut self, plan: usize) {
        let blueprint = plans::any(plan);
        let stats = std::mem::replace(&mut self.root, blueprint.stats.clone());
        let old = std::mem::replace(&mut self.world.s, scheduler(blueprint, self.entered));
        self.world.with(|s, cx| s.adopt(old, cx));
        assert_eq!((stats.qlen.get(), stats.backlog.get()), (0, 0), "a gauge stays behind");
        self.plan = plan;
    }

    fn check(&self) {
        let World { s, stats, .. } = &self.world;
        let waiting = u64::from(s.len());
        assert_eq!(self.entered, self.left + stats.drops.total() + waiting);
        assert_eq!(waiting, (0..4).map(|channel| u64::from(s.len_of(channel))).sum::<u64>());
        assert_eq!(self.root.qlen.get(), waiting);
        assert_eq!(self.root.backlog.get() == 0, waiting == 0);
        assert!(!s.can_bypass() || waiting == 0);
    }

    /// Opens all channels and checks that all packets leave, if necessary after waits for a rate.
    fn drain(mut self) {
        self.world.open = u64::MAX;
        while !self.world.s.is_empty() {
            let before = self.left + self.world.stats.drops.total();
            (0..4).for_each(|channel| self.dequeue(channel));
            self.check();
            if self.left + self.world.stats.drops.total() == before {
                let wake = self.world.s.next_time().expect("packets wait for nothing");
                assert!(wake > self.world.now && wake < self.world.now + 100 * SECOND);
                self.world.now = wake;
            }
        }
        if let Some(packet) = self.out.take() {
            self.world.pool.free_frag(packet.frag);
        }
        self.world.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Goal: for any operations and changes, every packet leaves once, or is dropped and counted
    // once, and flows keep their order. Closed channels are not served and block no other channel;
    // `qlen` and `backlog` are right, and no memory is lost.
    #[test]
    fn nothing_is_lost_blocked_or_reordered(
        plan in 0..PLANS,
        ops in prop::collection::vec(op(), 1..400),
    ) {
        let mut checked = Checked::new(plan);
        ops.into_iter().for_each(|op| checked.apply(op));
        checked.drain();
    }

    // Goal: the root qdisc counts the bytes and segments of all packets that left, and the drops of
    // all qdiscs below it.
    #[test]
    fn statistics_are_those_of_the_packets(
        plan in 0..PLANS,
        specs in prop::collection::vec((0u32..12, 60u32..9000), 1..200),
    ) {
        let blueprint = plans::any(plan);
        let stats = blueprint.stats.clone();
        let mut world = World::new(blueprint);
        for (flow, len) in &specs {
            world.enqueue(Spec { priority: priority(*flow), ..Spec::new(*flow, *len) });
        }
        let (mut bytes, mut packets) = (0, 0);
        while !world.s.is_empty() {
            match world.with(|s, cx| s.dequeue(0, cx)) {
                Some(packet) => {
                    bytes += u64::from(packet.wire_len());
                    packets += u64::from(packet.segments);
                    world.pool.free_frag(packet.frag);
                }
                None => world.now = world.s.next_time().unwrap_or(world.now),
            }
        }
        prop_assert_eq!((stats.bytes.get(), stats.packets.get()), (bytes, packets));
        prop_assert_eq!(stats.drops.get(), world.stats.drops.total());
        world.finish();
    }
}

// Goal: a requeued packet counts as a requeue, and counts as sent only once.
#[test]
fn a_requeue_is_counted_once() {
    let plan = plans::pfifo(5);
    let stats = plan.stats.clone();
    let mut world = World::new(plan);
    world.enqueue(Spec::new(1, 100));
    let packet = world.with(|s, cx| s.dequeue(0, cx)).unwrap();
    world.with(|s, cx| s.requeue(packet, cx));
    assert_eq!((stats.requeues.get(), stats.qlen.get(), stats.backlog.get()), (1, 1, 100));
    assert_eq!(world.dequeue(0).map(|left| left.wire), Some(100));
    assert_eq!((stats.packets.get(), stats.bytes.get(), stats.qlen.get()), (1, 100, 0));
    world.finish();
}

// Goal: a scheduler with other qdiscs takes over all packets, in order, with their enqueue times.
#[test]
fn packets_move_between_shapes() {
    let mut world = World::new(plans::any(13));
    for n in 0..20 {
        world.enqueue(Spec::new(n % 3, 100).on((n % 2) as u16));
    }
    let mut all = Vec::new();
    world.with(|s, _| s.take_all(&mut all));
    assert_eq!(world.s.len(), 0);
    world.now += 30 * MS;
    world.s = scheduler(plans::pfifo(100), 7);
    for packet in all {
        world.with(|s, cx| s.enqueue_anew(packet, cx));
    }
    let mut last = BTreeMap::new();
    for channel in [0, 1].repeat(10) {
        let left = world.dequeue(channel).unwrap();
        assert_eq!(left.waited, 30 * MS);
        assert!(last.insert((left.flow, channel), left.id) < Some(left.id));
    }
    world.finish();
}
