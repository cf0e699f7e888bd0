//! Qdiscs, classes and filters of the simulated recordings, as the engine reports them.

use mqnet_host::verbs::tc;
use mqnet_qdisc::{
    ActionInfo, Attach, ClassInfo, DrrClass, FilterInfo, FqCodel, Handle, Mqprio, Params, Prio,
    QdiscInfo, Totals,
};
use serde_json::{Value, json};

const ROOT: Attach = Attach::Root;

fn qdisc(handle: u32, attach: Attach, params: Params) -> QdiscInfo {
    QdiscInfo { handle: Handle(handle), attach, params, refcnt: 2, totals: Totals::default() }
}

/// Reorders fq_codel's counters from the order of the recordings into the order of the engine. The
/// recordings place the three counters that tc omits at 0 last.
fn fq_codel(extra: [u64; 9]) -> [u64; 9] {
    let [maxpacket, overlimit, ecn_mark, new_flows, new_len, old_len, ce_mark, memory, overmemory] =
        extra;
    [maxpacket, overlimit, overmemory, ecn_mark, ce_mark, new_flows, memory, new_len, old_len]
}

fn fq(handle: u32, attach: Attach, params: FqCodel) -> QdiscInfo {
    let params = Params::FqCodel(FqCodel { quantum: params.quantum.max(1), ..params });
    let mut info = qdisc(handle, attach, params);
    info.totals.extra = fq_codel([0; 9]);
    info
}

fn qdiscs() -> Vec<(&'static str, Vec<QdiscInfo>)> {
    let usual = FqCodel { quantum: 1514, ..FqCodel::default() };
    let mut busy = fq(0x8001_0000, ROOT, usual);
    busy.totals = Totals {
        bytes: 123_456,
        packets: 789,
        drops: 11,
        overlimits: 5,
        requeues: 2,
        backlog: 10_240,
        qlen: 3,
        extra: fq_codel([1514, 7, 3, 12, 1, 2, 4, 65_536, 9]),
    };
    let odd = FqCodel {
        quantum: 300,
        target: 4_999_000,
        interval: 99_999_000,
        ecn: false,
        ce_threshold: Some(1_000_000),
        memory_limit: 4096,
        ..FqCodel::default()
    };
    let below = |handle| Attach::Parent(Handle(handle));
    let mut map = [0; 16];
    map[1] = 1;
    let mqprio = Mqprio { num_tc: 2, map, queues: vec![(2, 0), (2, 2)] };
    vec![
        ("fq", vec![fq(0x8001_0000, ROOT, usual)]),
        ("fqs", vec![busy]),
        ("fqce", vec![fq(0x8001_0000, ROOT, odd)]),
        ("fqleaf", vec![fq(0, below(0x8001_0002), usual), fq(0x10_0000, below(0x1_000b), usual)]),
        ("prio", vec![qdisc(0x1_0000, ROOT, Params::Prio(Prio::default()))]),
        ("mqprio", vec![qdisc(0x1_0000, ROOT, Params::Mqprio(mqprio))]),
        ("drr", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
        ("f1", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
        ("f3", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
        ("f4", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
        ("f5", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
        ("f6", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
        ("f7", vec![qdisc(0x1_0000, ROOT, Params::Drr)]),
    ]
}

fn class(kind: &'static str, id: u32, parent: Option<u32>, leaf: Option<u32>) -> ClassInfo {
    ClassInfo {
        kind,
        counters: &[],
        id: Handle(id),
        parent: parent.map(Handle),
        leaf: leaf.map(Handle),
        drr: None,
        totals: Totals {
            bytes: 1000,
            packets: 10,
            drops: 2,
            overlimits: 3,
            requeues: 0,
            backlog: 100,
            qlen: 1,
            extra: [0; 9],
        },
    }
}

fn drr(id: u32, leaf: Option<u32>, quantum: u32, deficit: u64) -> ClassInfo {
    let mut info = class("drr", id, None, leaf);
    info.drr = Some(DrrClass { quantum });
    info.counters = Params::Drr.class_counters();
    info.totals.extra[0] = deficit;
    info
}

fn classes() -> Vec<(&'static str, Vec<ClassInfo>)> {
    let above = Some(0x1_0000);
    let flow = class("fq_codel", 0x8001_001a, Some(0x8001_0000), None);
    let leaf = Some(0x10_0000);
    vec![
        ("drrc", vec![drr(0x1_0001, Some(0x8005_0000), 1514, 77), drr(0x1_0002, None, 10_240, 0)]),
        ("prioc", vec![class("prio", 0x1_0001, above, None), class("prio", 0x1_0002, above, leaf)]),
        ("tbfc", vec![class("tbf", 0x1_0001, above, leaf)]),
        (
            "mqc",
            vec![
                class("mq", 0x8001_0001, None, None),
                class("mq", 0x8001_000a, None, Some(0x8002_0000)),
            ],
        ),
        (
            "mqprioc",
            vec![
                class("mqprio", 0x1_ffe0, None, None),
                class("mqprio", 0x1_0001, Some(0x1_ffe0), None),
                class("mqprio", 0x1_0002, Some(0x1_ffe0), Some(0x2_0000)),
            ],
        ),
        ("fqc", vec![flow]),
    ]
}

fn action(kind: &'static str, index: u32, options: &[(&'static str, &str)]) -> ActionInfo {
    ActionInfo {
        kind,
        index,
        options: options.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        packets: 50,
        bytes: 5000,
        drops: 4,
        overlimits: if kind == "police" { 3 } else { 0 },
    }
}

fn filter(
    kind: &'static str,
    (pref, protocol, handle): (u16, u16, u32),
    class: Option<u32>,
    keys: &[(&'static str, &str)],
    actions: Vec<ActionInfo>,
) -> FilterInfo {
    FilterInfo {
        attach: Attach::Parent(Handle(0x1_0000)),
        protocol,
        pref,
        kind,
        handle,
        class: class.map(Handle),
        keys: keys.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        actions,
        hits: 0,
    }
}

fn hook(filter: FilterInfo) -> FilterInfo {
    FilterInfo { attach: Attach::Egress, hits: 42, ..filter }
}

fn police(index: u32, then: &str, rate: &str, burst: &str, mtu: &str) -> ActionInfo {
    let overhead = ("overhead", "0");
    let options =
        [("rate", rate), ("burst", burst), ("mtu", mtu), ("control_action", then), overhead];
    action("police", index, &options)
}

fn flowers() -> Vec<(&'static str, FilterInfo)> {
    let gact = |index, then| action("gact", index, &[("control_action", then)]);
    let tcp = ("ip_proto", "tcp");
    vec![
        (
            "f1",
            filter(
                "flower",
                (49_152, 0x800, 1),
                Some(0x1_0001),
                &[("eth_type", "ipv4"), tcp, ("dst_port", "80")],
                vec![],
            ),
        ),
        (
            "f2",
            hook(filter(
                "flower",
                (10, 0x800, 1),
                None,
                &[
                    ("eth_type", "ipv4"),
                    ("ip_proto", "udp"),
                    ("ip_tos", "0xb8/fc"),
                    ("dst_ip", "10.0.0.0/8"),
                    ("src_ip", "10.1.2.3"),
                    ("src_port", "53"),
                ],
                vec![
                    action(
                        "skbedit",
                        1,
                        &[("queue_mapping", "3"), ("priority", "1:2"), ("mark", "7")],
                    ),
                    gact(1, "drop"),
                ],
            )),
        ),
    ]
}

fn tagged_and_others() -> Vec<(&'static str, FilterInfo)> {
    let to_2 = Some(0x1_0002);
    let gact = |index, then| action("gact", index, &[("control_action", then)]);
    let tcp = ("ip_proto", "tcp");
    vec![
        (
            "f5",
            filter(
                "flower",
                (7, 0x8100, 16),
                to_2,
                &[
                    ("vlan_id", "10"),
                    ("vlan_prio", "5"),
                    ("vlan_ethtype", "ipv6"),
                    ("eth_type", "8100"),
                    ("ip_proto", "icmpv6"),
                ],
                vec![],
            ),
        ),
        (
            "f6",
            filter(
                "flower",
                (8, 0x86dd, 2),
                to_2,
                &[
                    ("dst_mac", "02:00:00:00:00:01"),
                    ("eth_type", "ipv6"),
                    ("ip_proto", "sctp"),
                    ("dst_ip", "2001:db8::/32"),
                ],
                vec![gact(2, "pass"), gact(3, "continue"), gact(4, "pipe")],
            ),
        ),
        (
            "f7",
            filter(
                "flower",
                (8, 0x800, 2),
                to_2,
                &[("eth_type", "ipv4"), tcp, ("dst_port", "1000-2000")],
                vec![],
            ),
        ),
    ]
}

fn others() -> Vec<(&'static str, Vec<FilterInfo>)> {
    let all = |handle| (1, 3, handle);
    let limit = police(1, "drop", "125000", "10240", "2047");
    let fw = |handle, class, mask: &[(&'static str, &str)]| {
        filter("fw", (5, 3, handle), Some(class), mask, vec![])
    };
    vec![
        ("f3", vec![filter("matchall", all(1), Some(0x1_0002), &[], vec![])]),
        ("f3s", vec![hook(filter("matchall", all(1), Some(0x1_0002), &[], vec![limit]))]),
        ("f4", vec![fw(7, 0x1_0002, &[]), fw(8, 0x1_0003, &[("mask", "0xff")])]),
        (
            "f8",
            vec![hook(filter(
                "matchall",
                all(1),
                None,
                &[],
                vec![
                    action("skbedit", 1, &[("queue_mapping", "0"), ("inheritdsfield", "true")]),
                    action("skbedit", 2, &[("priority", ":6")]),
                    police(2, "continue", "1250000", "10000", "4294967295"),
                ],
            ))],
        ),
    ]
}

/// API lists of all netdevs: netdev, name of the list, list. Entries without options, one per
/// priority, are kept only for `f1`, as in the recordings.
pub(super) fn all() -> Vec<(&'static str, &'static str, Value)> {
    let mut all = Vec::new();
    for (dev, infos) in qdiscs() {
        all.push((dev, "qdiscs", json!(infos.iter().map(tc::qdisc).collect::<Vec<_>>())));
    }
    for (dev, infos) in classes() {
        all.push((dev, "classes", json!(infos.iter().map(tc::class).collect::<Vec<_>>())));
    }
    let flowers = flowers().into_iter().chain(tagged_and_others());
    let flowers = flowers.map(|(dev, info)| (dev, vec![info]));
    for (dev, infos) in flowers.chain(others()) {
        let mut filters = tc::listed(&infos);
        filters.retain(|filter| dev == "f1" || filter.options.is_some());
        all.push((dev, "filters", json!(filters)));
    }
    all
}
