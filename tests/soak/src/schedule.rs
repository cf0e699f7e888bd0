//! Schedule of actions. A round depends only on the seed, the rig and the round's number, not on
//! time or earlier results, so that any round can be replayed.

use std::fmt;

use crate::rng::Rng;
use crate::shape::{Can, Rig, Shape};

/// Number of random actions of a round.
const ACTIONS: usize = 8;

/// Qdiscs that keep the order of a flow. The last two have low limits, and drop and count frames.
pub(crate) const DISCIPLINES: [&str; 8] = [
    "pfifo limit 20000",
    "fq_codel limit 20000 target 1s",
    "tbf rate 2gbit burst 1mb limit 10mb",
    "mq",
    "prio",
    "pfifo_fast",
    "fq_codel limit 200",
    "bfifo limit 60000",
];

/// Action on a rig. Numbers are indexes into the lists of its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Channels {
        dev: usize,
        to: u16,
    },
    Queues {
        dev: usize,
        to: u16,
    },
    Rings {
        dev: usize,
        kib: u32,
    },
    Coalesce {
        dev: usize,
        usecs: u32,
        frames: u32,
    },
    Mtu {
        dev: usize,
        to: u32,
    },
    /// Restriction of the indirection table to a part of the current channels. `of` selects the
    /// part.
    Spread {
        dev: usize,
        of: usize,
    },
    Discipline {
        dev: usize,
        which: usize,
    },
    NoDiscipline {
        dev: usize,
    },
    Program {
        dev: usize,
    },
    Layout {
        dev: usize,
    },
    Capture {
        dev: usize,
    },
    Reload {
        channels: u16,
    },
    Stall {
        process: usize,
        ms: u64,
    },
    Flap {
        dev: usize,
        ms: u64,
    },
    Member {
        dev: usize,
    },
    Delete {
        path: usize,
    },
    Kill {
        process: usize,
        pause_ms: u64,
    },
}

impl Action {
    /// True if the action may lose frames that no counter includes, for example those of a killed
    /// process.
    pub(crate) fn loses(&self) -> bool {
        use Action::{Delete, Flap, Kill, Member, Queues};
        matches!(self, Flap { .. } | Member { .. } | Delete { .. } | Kill { .. } | Queues { .. })
    }
}

/// One round. The state of the rig is the same at the begin and at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// True for TCP streams without pauses; false for a moderate pace.
    pub(crate) flood: bool,
    pub(crate) actions: Vec<Action>,
}

impl Round {
    /// True if an action of the round moves flows of the path to other queues.
    pub(crate) fn moves_flows(&self, shape: &Shape, path: usize) -> bool {
        let here = |dev: usize| shape.devs[dev].path == path;
        self.actions.iter().any(|action| match action {
            Action::Channels { dev, .. } | Action::Spread { dev, .. } => here(*dev),
            _ => false,
        })
    }

    /// True if an action of the round may lose frames that no counter includes.
    pub(crate) fn is_rough(&self) -> bool {
        self.actions.iter().any(Action::loses)
    }
}

/// Round `number` of a rig. Rounds with an even number are calm: no action loses frames that no
/// counter includes.
pub(crate) fn round(seed: u64, shape: &Shape, number: u64) -> Round {
    let mut rng = Rng::new(seed, &[shape.rig.name(), &number.to_string()]);
    let rough = number % 2 == 1;
    let flood = rng.below(4) == 0;
    let mut actions: Vec<Action> = (0..ACTIONS).map(|_| calm(&mut rng, shape)).collect();
    if rough {
        for _ in 0..2 {
            let at = rng.below(ACTIONS);
            if let Some(action) = lossy(&mut rng, shape) {
                actions[at] = action;
            }
        }
    }
    Round { flood, actions }
}

fn calm(rng: &mut Rng, shape: &Shape) -> Action {
    let stalling: Vec<usize> =
        (0..shape.processes.len()).filter(|&at| shape.processes[at].stalls).collect();
    let others = if shape.rig == Rig::Daemon { 2 } else { 1 };
    let changes: Vec<(usize, Can)> = options(shape, |can| !is_lossy(can));
    // Probabilities: a daemon has one stall and one reload in eight actions; other rigs have one
    // stall in seven. All other actions are changes.
    let at = rng.below(6 + others);
    match at {
        0 => Action::Stall { process: rng.pick(&stalling), ms: 20 + rng.below(200) as u64 },
        1 if others == 2 => Action::Reload { channels: 1 + rng.below(4) as u16 },
        _ => {
            let (dev, can) = weighted(rng, &changes);
            change(rng, dev, can)
        }
    }
}

fn is_lossy(can: Can) -> bool {
    matches!(can, Can::Flap | Can::Member | Can::Queues(_))
}

fn options(shape: &Shape, wanted: impl Fn(Can) -> bool) -> Vec<(usize, Can)> {
    let of = |(at, dev): (usize, &crate::shape::Dev)| {
        dev.can.iter().map(|&can| (at, can)).collect::<Vec<_>>()
    };
    let all = shape.devs.iter().enumerate().flat_map(of);
    all.filter(|&(_, can)| wanted(can)).collect()
}

/// Weighted choice. Changes of channels exercise most of the engine and are three times as likely.
fn weighted(rng: &mut Rng, options: &[(usize, Can)]) -> (usize, Can) {
    let resizes: Vec<_> =
        options.iter().filter(|(_, can)| matches!(can, Can::Channels(_))).copied().collect();
    match resizes.is_empty() || rng.below(3) > 0 {
        true => rng.pick(options),
        false => rng.pick(&resizes),
    }
}

fn change(rng: &mut Rng, dev: usize, can: Can) -> Action {
    match can {
        Can::Channels(most) => Action::Channels { dev, to: 1 + rng.below(most.into()) as u16 },
        Can::Queues(most) => Action::Queues { dev, to: 1 + rng.below(most.into()) as u16 },
        // A ring of 65 KiB holds exactly one of the largest frames.
        Can::Rings => Action::Rings { dev, kib: rng.pick(&[65, 96, 128, 192, 256]) },
        Can::Coalesce => {
            let usecs = rng.pick(&[0, 50, 1000, 20_000]);
            Action::Coalesce { dev, usecs, frames: rng.pick(&[0, 1, 16, 64]) }
        }
        Can::Mtu => Action::Mtu { dev, to: rng.pick(&[1500, 2000, 4000, 9000]) },
        Can::Spread => Action::Spread { dev, of: rng.below(100) },
        Can::Discipline if rng.below(4) == 0 => Action::NoDiscipline { dev },
        Can::Discipline => Action::Discipline { dev, which: rng.below(DISCIPLINES.len()) },
        Can::Program => Action::Program { dev },
        Can::Layout => Action::Layout { dev },
        Can::Flap => Action::Flap { dev, ms: 20 + rng.below(300) as u64 },
        Can::Member => Action::Member { dev },
        Can::Capture => Action::Capture { dev },
    }
}

/// Random action that may lose frames; `None` if the rig has none.
fn lossy(rng: &mut Rng, shape: &Shape) -> Option<Action> {
    let mut all: Vec<Action> = Vec::new();
    let pause_ms = rng.pick(&[0, 0, 30, 400]);
    for (process, _) in shape.processes.iter().enumerate().filter(|(_, p)| p.mortal) {
        all.push(Action::Kill { process, pause_ms });
    }
    for (dev, can) in options(shape, is_lossy) {
        all.push(change(rng, dev, can));
    }
    if shape.rig == Rig::Daemon {
        all.extend((0..shape.paths.len()).map(|path| Action::Delete { path }));
    }
    (!all.is_empty()).then(|| all.swap_remove(rng.below(all.len())))
}

/// Text of an action, with the names of its shape.
pub(crate) struct ActionText<'a>(pub(crate) &'a Action, pub(crate) &'a Shape);

impl fmt::Display for ActionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(action, shape) = *self;
        let name = |dev: &usize| shape.devs[*dev].name;
        let process = |at: &usize| shape.processes[*at].name;
        match action {
            Action::Channels { dev, to } => write!(f, "ethtool -L {} combined {to}", name(dev)),
            Action::Queues { dev, to } => {
                write!(f, "testpmd: {to} queues, ethtool -L {} combined {to}", name(dev))
            }
            Action::Rings { dev, kib } => write!(f, "ethtool -G {} rx {kib}", name(dev)),
            Action::Coalesce { dev, usecs, frames } => {
                write!(f, "ethtool -C {} rx-usecs {usecs} tx-frames {frames}", name(dev))
            }
            Action::Mtu { dev, to } => write!(f, "set {} mtu {to}", name(dev)),
            Action::Spread { dev, of } => write!(f, "ethtool -X {} equal ({of})", name(dev)),
            Action::Discipline { dev, which } => {
                let words = DISCIPLINES[*which];
                write!(f, "tc qdisc replace dev {} root {words}", name(dev))
            }
            Action::NoDiscipline { dev } => write!(f, "tc qdisc del dev {} root", name(dev)),
            Action::Program { dev } => write!(f, "xdp attach|detach {}", name(dev)),
            Action::Layout { dev } => write!(f, "full-page-rx on|off at {}", name(dev)),
            Action::Capture { dev } => write!(f, "capture of {} begins|ends", name(dev)),
            Action::Reload { channels } => write!(f, "reload, other link with {channels} channels"),
            Action::Stall { process: at, ms } => write!(f, "SIGSTOP {} for {ms} ms", process(at)),
            Action::Flap { dev, ms } => write!(f, "ip link set {} down for {ms} ms", name(dev)),
            Action::Member { dev } => write!(f, "member {} goes|comes", name(dev)),
            Action::Delete { path } => write!(f, "del {}, reload", shape.paths[*path].kind),
            Action::Kill { process: at, pause_ms } => {
                write!(f, "SIGKILL {}, restart after {pause_ms} ms", process(at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: for every rig, the same seed gives the same actions, and another seed gives other
    // actions. Calm rounds contain no action that loses frames, and rough rounds contain one.
    #[test]
    fn the_seed_decides() {
        for rig in Rig::ALL {
            let plan = |seed: u64| -> Vec<Round> {
                let shape = Shape::of(rig, &[], seed).expect("a shape");
                (0..40).map(|number| round(seed, &shape, number)).collect()
            };
            let (one, again, other) = (plan(4), plan(4), plan(6));
            assert_eq!(one, again);
            assert_ne!(one, other);
            for (number, round) in one.iter().enumerate() {
                assert_eq!(round.is_rough(), number % 2 == 1, "{rig:?} {number} {round:?}");
                assert_eq!(round.actions.len(), ACTIONS);
            }
        }
    }

    // Goal: a long schedule contains every action that the netdevs of a rig allow.
    #[test]
    fn everything_is_done() {
        for rig in Rig::ALL {
            let shape = Shape::of(rig, &[], 4).expect("a shape");
            let all: Vec<Action> = (0..400).flat_map(|n| round(4, &shape, n).actions).collect();
            let texts: Vec<String> =
                all.iter().map(|action| ActionText(action, &shape).to_string()).collect();
            for dev in &shape.devs {
                let named = texts.iter().filter(|text| text.contains(dev.name)).count();
                assert!(named >= dev.can.len(), "{rig:?}: {} is named {named} times", dev.name);
            }
            assert!(all.iter().any(|action| matches!(action, Action::Stall { .. })));
        }
    }
}
