use std::sync::atomic::{AtomicU64, Ordering};

use mqnet_wire::{HEADERS_MAX, Layer};
use proptest::prelude::*;

use super::*;
use crate::act::{Bucket, Police};
use crate::parse::{self, Keys, words};

const IP: u16 = 0x0800;

fn plan(protocol: u16, text: &str) -> Plan {
    let words = words(text);
    let known = Keys { protocol, handle: Some(Handle(0x21)) };
    parse::filter(&words[0], &words[1..], known).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn filters(list: &[(u16, &str)]) -> Filters {
    let mut filters = Filters::default();
    for (protocol, text) in list {
        let plan = plan(*protocol, text);
        let stats = Arc::new(FilterStats::of(&plan));
        filters.push(plan, stats);
    }
    filters
}

fn hits(filters: &Filters) -> Vec<u64> {
    filters.list.iter().map(|filter| filter.stats.hits.get()).collect()
}

/// Flow keys of a TCP segment from 10.0.0.1:1000 to 10.0.0.2:80 with DSCP 46.
fn tcp() -> FlowKeys {
    let mut frame = [[2; 6], [4; 6]].concat();
    frame.extend([8, 0, 0x45, 0xb8, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 80]);
    FlowKeys::dissect(&frame, Layer::Ethernet)
}

fn matches(protocol: u16, text: &str, keys: &FlowKeys) -> bool {
    let mut filters = filters(&[(protocol, text)]);
    filters.run(keys, &mut Meta { mark: 0x1021, ..Meta::default() }, 100, 0);
    hits(&filters)[0] == 1
}

// Goal: each key of flower matches a frame with the key's value, and no frame with another value.
// The mask of fw selects the compared bits of the mark.
#[test]
fn flower_matches_its_keys() {
    let cases = [
        ("ip_proto tcp", "ip_proto udp"),
        ("src_ip 10.0.0.1", "src_ip 10.0.0.2"),
        ("src_ip 10.0.0.0/8", "src_ip 11.0.0.0/8"),
        ("dst_ip 10.0.0.2/31", "dst_ip 10.0.0.0/31"),
        ("dst_ip 0.0.0.0/0", "dst_ip 0.0.0.0"),
        ("ip_proto tcp dst_port 80", "ip_proto tcp dst_port 81"),
        ("ip_proto tcp src_port 999-1000", "ip_proto tcp src_port 1001-65535"),
        ("ip_tos b8/fc", "ip_tos 28/fc"),
        ("ip_tos b8/00", "ip_tos b9"),
        ("dst_mac 2:2:2:2:2:2", "dst_mac 4:4:4:4:4:4"),
        ("src_mac 4:4:4:0:0:0/24", "src_mac 4:4:5:0:0:0/24"),
        (
            "src_mac ff:4:ff:ff:ff:ff/00:ff:00:00:00:00",
            "src_mac ff:5:ff:ff:ff:ff/00:ff:00:00:00:00",
        ),
    ];
    for (yes, no) in cases {
        assert!(matches(IP, &format!("flower {yes}"), &tcp()), "{yes}");
        assert!(!matches(IP, &format!("flower {no}"), &tcp()), "{no}");
    }
    assert!(matches(3, "flower", &tcp()) && !matches(0x86dd, "flower", &tcp()));
    assert!(!matches(3, "fw", &tcp()), "the mark has other bits set");
    assert!(matches(3, "fw mask 0xfff", &tcp()) && !matches(3, "fw mask 0xffff", &tcp()));
}

// Goal: a tagged frame has the protocol of its tag, as in the kernel. `protocol 802.1q` matches the
// frame, `protocol ip` does not, and vlan_ethtype matches the inner protocol. Port keys never match
// a fragment.
#[test]
fn tags_are_a_protocol() {
    let tagged = FlowKeys { vlan: Some(3 << 13 | 5), tpid: 0x8100, ..tcp() };
    assert!(!matches(IP, "flower", &tagged) && matches(0x8100, "flower", &tagged));
    assert!(matches(0x8100, "flower vlan_id 5 vlan_prio 3", &tagged));
    assert!(!matches(0x8100, "flower vlan_id 6", &tagged));
    assert!(!matches(0x8100, "flower vlan_prio 2", &tagged));
    assert!(matches(0x8100, "flower vlan_ethtype ip ip_proto tcp dst_port 80", &tagged));
    assert!(!matches(0x8100, "flower vlan_ethtype ipv6", &tagged));
    assert!(!matches(0x88a8, "flower", &tagged) && matches(3, "matchall", &tagged));
    let fragment = FlowKeys { ports: [0, 0], fragment: true, ..tcp() };
    assert!(!matches(IP, "flower ip_proto tcp dst_port 0", &fragment));
    assert!(matches(IP, "flower ip_proto tcp", &fragment));
}

// Goal: the first matching filter decides, except that `continue` goes on to the next filter.
// Changes to the metadata before `continue` persist. The mask of skbedit selects the changed bits
// of the mark.
#[test]
fn the_first_match_decides() {
    let mut list = filters(&[
        (0x86dd, "matchall action drop"),
        (3, "matchall action skbedit mark 5 action continue"),
        (IP, "flower ip_proto udp classid 1:9"),
        (3, "fw mask 0xf action drop"),
        (3, "matchall classid 1:2 action skbedit priority 7 queue_mapping 3"),
        (3, "matchall action drop"),
    ]);
    let mut meta = Meta::default();
    let verdict = list.run(&tcp(), &mut meta, 100, 0);
    assert_eq!(verdict, FilterVerdict::Class(Handle::new(1, 2)));
    assert_eq!(meta, Meta { priority: 7, mark: 5, channel: 3 });
    assert_eq!(hits(&list), [0, 1, 0, 0, 1, 0]);
    let mut gone = filters(&[(3, "matchall action ok"), (3, "matchall action drop")]);
    assert_eq!(gone.run(&tcp(), &mut meta, 1, 0), FilterVerdict::Pass);
    let mut drop = filters(&[(3, "matchall classid 1:1 action drop")]);
    assert_eq!(drop.run(&tcp(), &mut meta, 77, 0), FilterVerdict::Drop(DropReason::Filtered));
    let counted = &drop.list[0].stats.actions[0];
    assert_eq!((counted.packets.get(), counted.bytes.get(), counted.drops.get()), (1, 77, 1));
    let mut marked = filters(&[(3, "matchall action skbedit mark 0xff/0x0f")]);
    marked.run(&tcp(), &mut Meta::default(), 1, 0);
    let mut meta = Meta { mark: 0xa0, ..Meta::default() };
    marked.run(&tcp(), &mut meta, 1, 0);
    assert_eq!(meta.mark, 0xaf);
}

// Goal: filters of a qdisc for one channel cannot move packets to another channel.
#[test]
fn a_leaf_keeps_its_channel() {
    let moved = plan(3, "matchall action skbedit queue_mapping 3 priority 2");
    let mut list = Filters::of_one_channel();
    list.push(moved.clone(), Arc::new(FilterStats::of(&moved)));
    let mut meta = Meta { channel: 1, ..Meta::default() };
    list.run(&tcp(), &mut meta, 1, 0);
    assert_eq!(meta, Meta { channel: 1, priority: 2, mark: 0 });
}

// Goal: police drops, passes or continues as configured, and counts exceeding packets; a drop has
// the reason `Policed`.
#[test]
fn police_by_its_words() {
    let verdicts = |text: &str| {
        let text = format!("matchall action police rate 8mbit burst 1000 {text}");
        let mut list = filters(&[(3, &text), (3, "matchall classid 1:1")]);
        let verdicts = [0, 0].map(|_| list.run(&tcp(), &mut Meta::default(), 600, 5));
        assert_eq!(list.list[0].stats.actions[0].overlimits.get(), 1);
        verdicts
    };
    let class = FilterVerdict::Class(Handle::new(1, 1));
    assert_eq!(verdicts(""), [FilterVerdict::Pass, FilterVerdict::Drop(DropReason::Policed)]);
    assert_eq!(verdicts("continue"), [FilterVerdict::Pass, class]);
    assert_eq!(verdicts("conform-exceed pass/continue"), [class, FilterVerdict::Pass]);
    assert_eq!(
        verdicts("conform-exceed drop/pipe action gact ok"),
        [FilterVerdict::Pass, FilterVerdict::Drop(DropReason::Policed)]
    );
}

fn police(rate: u64, burst: u32, mtu: Option<u32>) -> Police {
    Police { rate, burst, mtu, exceed: Control::Drop }
}

proptest! {
    // Goal: a packet conforms if and only if its length is at most the tokens that rate and burst
    // leave, by exact arithmetic.
    #[test]
    fn police_is_exact(
        rate in 1u64..20_000_000_000,
        burst in 1u32..200_000,
        packets in prop::collection::vec((0u64..3_000_000, 0u32..70_000), 1..60),
    ) {
        let (police, bucket) = (police(rate, burst, None), Bucket::default());
        let full = u128::from(burst) * 1_000_000_000;
        let (mut now, mut tokens) = (1u64, full);
        for (gap, len) in packets {
            now += gap;
            tokens = (tokens + u128::from(gap) * u128::from(rate)).min(full);
            let cost = u128::from(len) * 1_000_000_000;
            let conforms = cost <= tokens;
            tokens -= if conforms { cost } else { 0 };
            prop_assert_eq!(police.conforms(&bucket, len, now), conforms);
        }
    }

    // Goal: no frame causes a panic, and repeated runs give the same result.
    #[test]
    fn any_frame_is_judged(bytes in prop::collection::vec(any::<u8>(), 0..HEADERS_MAX), mark: u32) {
        let keys = FlowKeys::dissect(&bytes, Layer::Ethernet);
        let list = [
            (IP, "flower ip_proto udp dst_port 1-1024 classid 1:1"),
            (0x86dd, "flower dst_ip ::/1 classid 1:2"),
            (0x8100, "flower vlan_prio 5 classid 1:3"),
            (3, "fw mask 1 classid 1:4"),
        ];
        let mut filters = filters(&list);
        let mut judge = || filters.run(&keys, &mut Meta { mark, ..Meta::default() }, 60, 1);
        prop_assert_eq!(judge(), judge());
    }
}

// Goal: a call with an earlier time (a worker with a late clock) adds no tokens, and no later call
// adds tokens twice. A packet longer than `mtu` never conforms.
#[test]
fn police_bears_late_clocks() {
    let bucket = Bucket::default();
    let slow = police(1000, 1000, Some(900));
    assert!(slow.conforms(&bucket, 900, 5_000_000_000));
    assert!(!slow.conforms(&bucket, 200, 1_000_000_000));
    assert!(!slow.conforms(&bucket, 200, 5_000_000_000));
    assert!(slow.conforms(&bucket, 200, 5_100_000_000));
    assert!(!slow.conforms(&Bucket::default(), 901, 0));
}

// Goal: the total of all workers that share a bucket stays within its rate and burst.
#[test]
fn police_holds_for_all_workers() {
    let (police, bucket, sent) =
        (police(1_000_000, 10_000, None), Bucket::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for now in 0..10_000u64 {
                    if police.conforms(&bucket, 100, now * 10_000) {
                        sent.fetch_add(100, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let sent = sent.into_inner();
    assert!((10_000..=10_000 + 100_000).contains(&sent), "{sent}");
}
