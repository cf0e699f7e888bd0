use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn places() -> impl Strategy<Value = String> {
    let minor = prop_oneof![Just(0u16), 1..6u16, Just(0xfff3)];
    prop_oneof![
        2 => Just("root".to_owned()),
        5 => (prop_oneof![0..5u16, Just(0xffff), 0x8001..0x8004u16], minor)
            .prop_map(|(major, minor)| format!("parent {major:x}:{minor:x}")),
        2 => Just("egress".to_owned()),
    ]
}

fn verbs() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("add"), 2 => Just("change"), 4 => Just("replace"), 1 => Just("del")]
}

fn handles(word: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        (0..5u16).prop_map(move |n| format!("{word} {n}:")),
        (1..5u16, 0..4u16).prop_map(move |(n, m)| format!("{word} {n}:{m}")),
    ]
}

fn kinds() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&[
        "",
        "mq",
        "noqueue",
        "pfifo limit 5",
        "pfifo",
        "bfifo",
        "pfifo_fast",
        "prio bands 3",
        "prio bands 4",
        "drr",
        "fq_codel",
        "fq_codel flows 7",
        "fq_codel quantum x",
        "tbf rate 1mbit burst 2k latency 1ms",
        "tbf rate 2mbit burst 2k limit 3k",
        "tbf",
        "mqprio num_tc 2 map 0 1 queues 1@0 3@1 hw 0",
        "clsact",
        "nosuch",
    ])
}

fn filter_kinds() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&[
        "",
        "matchall action drop",
        "matchall flowid 1:1",
        "flower classid 1:2",
        "flower dst_mac 1:2:3:4:5:6 action skbedit priority 1:3",
        "flower ip_proto tcp action skbedit queue_mapping 2",
        "fw classid 2:1",
        "fw mask 0xff action police rate 1mbit burst 1k",
        "matchall action",
    ])
}

fn commands() -> impl Strategy<Value = String> {
    let qdisc = (verbs(), places(), handles("handle"), kinds())
        .prop_map(|(verb, place, handle, kind)| format!("qdisc {verb} {place} {handle} {kind}"));
    let class =
        (verbs(), places(), handles("classid"), prop_oneof![Just("drr"), Just("drr quantum 9")])
            .prop_map(|(verb, place, id, kind)| format!("class {verb} {place} {id} {kind}"));
    let word = |word, numbers: std::ops::Range<u16>| {
        prop::option::of(numbers)
            .prop_map(move |n| n.map_or(String::new(), |n| format!("{word} {n}")))
    };
    let protocol = prop_oneof![Just(""), Just("protocol ip"), Just("protocol all")];
    let filter =
        (verbs(), places(), word("prio", 0..3), word("handle", 0..3), protocol, filter_kinds())
            .prop_map(|(verb, place, prio, handle, protocol, kind)| {
                format!("filter {verb} {place} {prio} {handle} {protocol} {kind}")
            });
    prop_oneof![4 => qdisc, 2 => class, 3 => filter]
}

/// Checks the invariants of a tree.
fn check(tree: &mut Tree, channels: u16) {
    let qdiscs = tree.qdiscs(8);
    let mut handles = HashSet::new();
    for q in qdiscs.iter().filter(|q| q.handle.0 != 0) {
        assert!(handles.insert(q.handle), "two disciplines have handle {}", q.handle);
        assert_eq!(q.handle.minor(), 0);
    }
    assert_eq!(qdiscs[0].attach, Attach::Root);
    let classes: HashSet<_> = tree.classes(8).iter().map(|class| class.id).collect();
    for q in &qdiscs {
        if let (Attach::Parent(class), false) = (q.attach, q.handle.0 == 0) {
            assert!(classes.contains(&class), "{} is in class {class}, which is none", q.handle);
        }
    }
    let filters = tree.filters();
    for pair in filters.windows(2).filter(|pair| pair[0].attach == pair[1].attach) {
        assert!(pair[0].pref <= pair[1].pref, "filters are not in order");
    }
    let mut known = HashSet::new();
    for f in &filters {
        let place = format!("{:?}", f.attach);
        assert!(known.insert((place, f.pref, f.handle)), "two filters are one: {f:?}");
    }
    let none = tree.shape(channels) == Shape::None;
    for channel in 0..channels {
        assert_eq!(tree.build(channel, 1514, 1).is_none(), none);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // Goal: a command that is rejected or reports no change leaves the state unchanged; an error is
    // one line without a full stop. The tree stays valid: handles are unique, parents exist,
    // filters are in order, and schedulers can be built.
    #[test]
    fn trees_stay_sound(
        default in prop_oneof![Just(""), Just("fq_codel"), Just("mq"), Just("prio bands 4")],
        steps in prop::collection::vec((commands(), 1..6u16), 1..40),
    ) {
        let mut tree = tree(default);
        for (text, channels) in steps {
            let before = dump(&tree);
            let result = tree.apply(&command(&text), channels, 6);
            let same = dump(&tree) == before;
            match result {
                // Accept a change without a visible effect: a replaced default may look the same as
                // before.
                Ok(changed) => prop_assert!(changed || same, "{text}"),
                Err(e) => {
                    prop_assert!(same, "refused, but changed: {text}");
                    prop_assert!(!e.message.is_empty() && !e.message.ends_with('.'), "{e}");
                    prop_assert!(!e.message.contains('\n'), "{e}");
                }
            }
            check(&mut tree, channels);
        }
    }
}
