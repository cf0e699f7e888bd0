//! Trees of qdiscs for tests.

use crate::{Blueprint, ClassPlan, DrrClass, Fifo, FqCodel, Handle, PRIOMAP, Params, Prio, Tbf};

pub(super) const ROOT: Handle = Handle::new(1, 0);

pub(super) fn leaf(params: Params) -> Blueprint {
    Blueprint::plain(ROOT, params)
}

pub(super) fn pfifo(limit: u32) -> Blueprint {
    leaf(Params::Pfifo(Fifo { limit }))
}

pub(super) fn bfifo(limit: u32) -> Blueprint {
    leaf(Params::Bfifo(Fifo { limit }))
}

pub(super) fn fq(set: FqCodel) -> Blueprint {
    leaf(Params::FqCodel(set))
}

pub(super) fn class(minor: u16, child: Blueprint) -> ClassPlan {
    let child = Blueprint { handle: Handle::default(), ..child };
    ClassPlan { child, ..ClassPlan::plain(Handle::new(1, minor)) }
}

pub(super) fn prio(children: Vec<Blueprint>) -> Blueprint {
    let bands = children.len() as u8;
    let classes = (1..).zip(children).map(|(minor, child)| class(minor, child)).collect();
    Blueprint { classes, ..leaf(Params::Prio(Prio { bands, priomap: PRIOMAP })) }
}

pub(super) fn tbf(tbf: Tbf, child: Option<Blueprint>) -> Blueprint {
    let classes = child.into_iter().map(|child| class(1, child)).collect();
    Blueprint { classes, ..leaf(Params::Tbf(tbf)) }
}

pub(super) fn simple_tbf(rate: u64, burst: u32) -> Tbf {
    Tbf { rate, burst, peakrate: 0, mtu: 0, limit: 1 << 30 }
}

pub(super) fn drr(classes: Vec<(u16, u32, Blueprint)>) -> Blueprint {
    let turn = |(minor, quantum, child)| {
        let drr = Some(DrrClass { quantum });
        ClassPlan { drr, ..class(minor, child) }
    };
    Blueprint { classes: classes.into_iter().map(turn).collect(), ..leaf(Params::Drr) }
}

pub(super) fn small_fq(limit: u32, flows: u32) -> FqCodel {
    FqCodel { limit, flows, ..FqCodel::default() }
}

/// Number of plans that [`any`] returns.
pub(super) const PLANS: usize = 14;

/// Plan number `n`: single kinds and nested qdiscs.
pub(super) fn any(n: usize) -> Blueprint {
    let peak = Tbf { peakrate: 3_000_000, mtu: 2000, ..simple_tbf(1_000_000, 5000) };
    match n {
        0 => pfifo(20),
        1 => bfifo(20_000),
        2 => leaf(Params::PfifoFast(Fifo { limit: 10 })),
        3 => prio(vec![pfifo(10), pfifo(10), pfifo(10)]),
        4 => prio(vec![fq(small_fq(10, 4)), bfifo(20_000)]),
        5 => tbf(simple_tbf(1_000_000, 5000), Some(fq(small_fq(40, 8)))),
        6 => tbf(peak, Some(prio(vec![pfifo(10), bfifo(9_000)]))),
        7 => drr(vec![(1, 1514, pfifo(20)), (2, 300, pfifo(20))]),
        8 => {
            drr(vec![(1, 1, fq(small_fq(20, 4))), (9, 9000, tbf(simple_tbf(500_000, 4000), None))])
        }
        9 => fq(small_fq(30, 4)),
        10 => fq(FqCodel { memory_limit: 20_000, ..small_fq(50, 16) }),
        11 => leaf(Params::Noqueue),
        12 => tbf(Tbf { limit: 30_000, ..simple_tbf(2_000_000, 2000) }, None),
        _ => fq(FqCodel::default()),
    }
}

/// True if a rate may hold back packets in plan `n`.
pub(super) fn has_rate(n: usize) -> bool {
    matches!(n, 5 | 6 | 8 | 12)
}
