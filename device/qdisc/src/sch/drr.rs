//! Deficit round robin: drr.

use std::collections::{BTreeMap, VecDeque};

use mqnet_netdev::DropReason;
use mqnet_wire::FlowKeys;

use super::class::{Class, Sum};
use super::{run_filters, same_kind};
use crate::kind::{Bypass, Classes, Env, ExtraCounter, Kind, KindOptions};
use crate::parse::{Words, invalid, number, unknown};
use crate::{
    Blueprint, Cx, Enqueued, FilterVerdict, Filters, Handle, Qdisc, QueuedPacket, TcError, Totals,
};

/// Parameters of a class of drr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrrClass {
    /// Bytes per round; 0 means the MTU with its link-layer header.
    pub quantum: u32,
}

impl DrrClass {
    /// Returns the parameters with a quantum of 0 replaced by `frame`, the frame size in bytes.
    pub(crate) fn resolved(self, frame: u32) -> Self {
        Self { quantum: if self.quantum == 0 { frame } else { self.quantum } }
    }

    /// Options in force, for `tc class show`.
    pub fn options(self) -> KindOptions {
        vec![("quantum", self.quantum.into())]
    }

    /// Parses the options of a class; `old`: parameters in force.
    pub(crate) fn parse(options: &[String], old: Self) -> Result<Self, TcError> {
        let mut words = Words::new(options);
        let mut class = old;
        while let Some(word) = words.next() {
            match word {
                "quantum" => {
                    class.quantum = words.read(word, number::size)?;
                    if class.quantum == 0 {
                        return Err(invalid("Specified DRR quantum cannot be zero"));
                    }
                }
                _ => return Err(unknown(word)),
            }
        }
        Ok(class)
    }
}

/// The kind drr.
pub(crate) struct Drr;

/// Index of the deficit in the counters of a class.
const DEFICIT: usize = 0;

impl Kind for Drr {
    type Params = ();
    const NAME: &'static str = "drr";
    const CLASS_COUNTERS: &'static [ExtraCounter] = &[ExtraCounter::gauge("deficit")];
    const BYPASS: Bypass = Bypass::Never;

    fn parse(mut words: Words<'_>, _: Option<&()>, _: Env) -> Result<(), TcError> {
        words.next().map_or(Ok(()), |word| Err(unknown(word)))
    }

    fn build((): &(), plan: Blueprint, mtu: u32, seed: u64) -> Box<dyn Qdisc> {
        Box::new(DrrQdisc::new(plan, mtu, seed))
    }

    fn classes((): &()) -> Classes {
        Classes::User
    }
}

/// Deficit round robin: in each round, a class may send its quantum plus the deficit left over from
/// earlier rounds.
///
/// A class is skipped while all its packets are for closed channels or held back by a rate. The
/// class keeps its position and gets no quantum, so that it neither delays others nor accumulates
/// deficit.
struct DrrQdisc {
    handle: Handle,
    classes: Vec<Turn>,
    by_id: BTreeMap<Handle, usize>,
    /// Indexes of the classes with packets, in round-robin order.
    active: VecDeque<usize>,
    filters: Filters,
    sum: Sum,
}

struct Turn {
    class: Class,
    quantum: u64,
    deficit: u64,
    active: bool,
}

/// Result of a round among the active classes.
enum Round {
    Served(QueuedPacket),
    /// No class has enough deficit: at least one more round is needed. The value is the number of
    /// rounds after which the first class can send.
    Saving(u64),
    /// No class has a packet that may leave.
    Nothing,
}

impl Turn {
    fn set_deficit(&mut self, deficit: u64) {
        self.deficit = deficit;
        self.class.stats().extra[DEFICIT].set(deficit);
    }
}

impl DrrQdisc {
    fn new(plan: Blueprint, mtu: u32, seed: u64) -> Self {
        let turn = |class: crate::ClassPlan| {
            let quantum = class.drr.map_or(mtu, |drr| drr.quantum).max(1).into();
            Turn { class: Class::new(class, mtu, seed), quantum, deficit: 0, active: false }
        };
        let classes: Vec<Turn> = plan.classes.into_iter().map(turn).collect();
        let by_id = classes.iter().enumerate().map(|(at, turn)| (turn.class.id, at)).collect();
        Self {
            handle: plan.handle,
            classes,
            by_id,
            active: VecDeque::new(),
            filters: plan.filters,
            sum: Sum::new(plan.stats),
        }
    }

    /// Index of a packet's class: the class with the packet's priority as its id, otherwise the
    /// result of the filters. Without such a class, the result is a drop reason: as in the kernel,
    /// there is no default class.
    fn class_of(
        &mut self,
        packet: &mut QueuedPacket,
        keys: &FlowKeys,
        now: u64,
    ) -> Result<usize, DropReason> {
        let priority = Handle(packet.meta.priority);
        if priority.major() == self.handle.major()
            && let Some(at) = self.by_id.get(&priority)
        {
            return Ok(*at);
        }
        match run_filters(&mut self.filters, packet, keys, now) {
            FilterVerdict::Class(class) => {
                self.by_id.get(&class).copied().ok_or(DropReason::Filtered)
            }
            FilterVerdict::Drop(reason) => Err(reason),
            FilterVerdict::Pass => Err(DropReason::Filtered),
        }
    }

    fn activate(&mut self, at: usize) {
        let turn = &mut self.classes[at];
        if !turn.active && !turn.class.is_empty() {
            turn.active = true;
            turn.set_deficit(turn.quantum);
            self.active.push_back(at);
        }
    }

    /// Tries every active class once, in order, until one sends a packet.
    fn round(&mut self, cx: &mut Cx<'_>) -> Round {
        let (mut place, mut saving) = (0, None);
        for _ in 0..self.active.len() {
            let at = self.active[place];
            let turn = &mut self.classes[at];
            let (first, change) = turn.class.peek(cx);
            let first = first.map(|packet| u64::from(packet.wire_len()));
            self.sum.apply(change);
            match first {
                None if turn.class.is_empty() => {
                    turn.active = false;
                    self.active.remove(place);
                }
                None => place += 1,
                Some(bytes) if bytes <= turn.deficit => {
                    if let Some(packet) = self.serve(place, bytes, cx) {
                        return Round::Served(packet);
                    }
                }
                Some(bytes) => {
                    turn.set_deficit(turn.deficit + turn.quantum);
                    let rounds = bytes.saturating_sub(turn.deficit).div_ceil(turn.quantum);
                    saving = Some(saving.map_or(rounds, |least: u64| least.min(rounds)));
                    self.active.remove(place);
                    self.active.push_back(at);
                }
            }
        }
        saving.map_or(Round::Nothing, Round::Saving)
    }

    fn serve(&mut self, place: usize, bytes: u64, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        let turn = &mut self.classes[self.active[place]];
        let (packet, change) = turn.class.dequeue(cx);
        self.sum.apply(change);
        turn.set_deficit(turn.deficit - bytes);
        if turn.class.is_empty() {
            turn.active = false;
            self.active.remove(place);
        }
        packet
    }

    /// Adds the quanta of `rounds` rounds to every class with a packet that may leave. For a small
    /// quantum and large frames, this replaces thousands of single rounds.
    fn save(&mut self, rounds: u64, cx: &mut Cx<'_>) {
        for at in &self.active {
            let turn = &mut self.classes[*at];
            let (first, change) = turn.class.peek(cx);
            if first.is_some() {
                turn.set_deficit(turn.deficit + rounds * turn.quantum);
            }
            self.sum.apply(change);
        }
    }
}

impl Qdisc for DrrQdisc {
    fn enqueue(&mut self, mut packet: QueuedPacket, keys: &FlowKeys, cx: &mut Cx<'_>) -> Enqueued {
        match self.class_of(&mut packet, keys, cx.now) {
            Ok(at) => {
                let (result, change) = self.classes[at].class.enqueue(packet, keys, cx);
                self.sum.apply(change);
                self.activate(at);
                result
            }
            Err(reason) => {
                self.sum.stats().drops.add(1);
                cx.drop(packet, reason);
                Enqueued::Dropped
            }
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<QueuedPacket> {
        loop {
            match self.round(cx) {
                Round::Served(packet) => {
                    self.sum.stats().sent(&packet);
                    return Some(packet);
                }
                Round::Saving(rounds) => self.save(rounds, cx),
                Round::Nothing => return None,
            }
        }
    }

    fn next_time(&self) -> Option<u64> {
        self.active.iter().filter_map(|at| self.classes[*at].class.next_time()).min()
    }

    fn len(&self) -> u32 {
        self.sum.len()
    }

    fn len_of(&self, channel: u16) -> u32 {
        self.active.iter().map(|at| self.classes[*at].class.len_of(channel)).sum()
    }

    fn backlog(&self) -> u64 {
        self.sum.bytes()
    }

    fn totals(&self) -> Totals {
        self.sum.stats().totals()
    }

    fn take_all(&mut self, out: &mut Vec<QueuedPacket>) {
        for turn in &mut self.classes {
            turn.class.take_all(out);
            turn.active = false;
            turn.set_deficit(0);
        }
        self.active.clear();
        self.sum.recount(std::iter::empty());
    }

    fn adopt(&mut self, old: Box<dyn Qdisc>, rest: &mut Vec<QueuedPacket>, cx: &mut Cx<'_>) {
        let Some(old) = same_kind::<Self>(old, rest) else { return };
        let mut old = *old;
        let turns: Vec<Handle> = old.active.iter().map(|at| old.classes[*at].class.id).collect();
        old.sum.recount(std::iter::empty());
        for mut turn in old.classes {
            let deficit = turn.deficit;
            turn.set_deficit(0);
            match self.by_id.get(&turn.class.id) {
                Some(at) => {
                    self.classes[*at].class.adopt(turn.class, rest, cx);
                    self.classes[*at].set_deficit(deficit);
                }
                None => turn.class.take_all(rest),
            }
        }
        for at in turns.iter().filter_map(|id| self.by_id.get(id)) {
            let turn = &mut self.classes[*at];
            turn.active = !turn.class.is_empty();
            if turn.active {
                self.active.push_back(*at);
            }
        }
        self.sum.recount(self.classes.iter().map(|turn| &turn.class));
    }
}
