//! Rules that differ from those of Linux or that Linux does not have.

use super::*;

// Goal: a channel that is added later has the configured default leaf, unlike in Linux, where the
// channel gets pfifo_fast.
#[test]
fn later_channels_get_the_configured_leaf() {
    let mut tree = tree("fq_codel limit 77");
    assert_eq!(tree.apply(&command("qdisc add root handle 1: mq"), 2, 8), Ok(true));
    let leaf = |n| format!("fq_codel 0: parent 1:{n} limit 77p quantum 1514");
    assert_eq!(shown(&tree, 3)[1..], [leaf(3), leaf(2), leaf(1)]);
}

// Goal: if all leaves in use are equal, later channels get the same leaf. After a leaf in use is
// changed or deleted, later channels get the default leaf.
#[test]
fn later_channels_get_what_all_others_have() {
    let mut tree = tree("");
    let mut tc = |text: &str| assert_eq!(tree.apply(&command(text), 2, 8), Ok(true), "{text}");
    tc("qdisc add root handle 1: mq");
    tc("qdisc add parent 1:1 handle 11: pfifo limit 5");
    tc("qdisc add parent 1:2 handle 12: pfifo limit 5");
    assert_eq!(
        shown(&tree, 4)[1..3],
        ["pfifo 0: parent 1:4 limit 5p", "pfifo 0: parent 1:3 limit 5p"]
    );
    assert!(tree.build(3, 1514, 0).is_some());
    let mut tc = |text: &str| assert_eq!(tree.apply(&command(text), 2, 8), Ok(true), "{text}");
    tc("qdisc change parent 1:2 handle 12: pfifo limit 6");
    assert_eq!(shown(&tree, 4)[1..3], ["pfifo_fast 0: parent 1:4", "pfifo_fast 0: parent 1:3"]);
    let mut tc = |text: &str| assert_eq!(tree.apply(&command(text), 2, 8), Ok(true), "{text}");
    tc("qdisc change parent 1:2 handle 12: pfifo limit 5");
    tc("qdisc add parent 1:8 handle 18: bfifo limit 9");
    assert!(shown(&tree, 8).contains(&"pfifo 0: parent 1:7 limit 5p".to_owned()));
    assert!(shown(&tree, 8).contains(&"bfifo 18: parent 1:8 limit 9b".to_owned()));
    assert_eq!(tree.apply(&command("qdisc del parent 1:1"), 2, 8), Ok(true));
    assert!(shown(&tree, 8).contains(&"pfifo_fast 0: parent 1:7".to_owned()));
}

// Goal: the configured default qdisc is the leaf of an mq on several channels, and the root on one
// channel. The default applies again after the root is deleted; an invalid default is rejected.
#[test]
fn default_words() {
    let mut tree = tree("fq_codel limit 77");
    assert_eq!(shown(&tree, 1), ["fq_codel 0: root refcnt 2 limit 77p quantum 1514"]);
    let both = ["mq 0: root", "fq_codel 0: parent :2 limit 77p quantum 1514"];
    assert_eq!(shown(&tree, 2)[..2], both);
    run(&mut tree, &["qdisc add root pfifo", "qdisc del root"]);
    assert_eq!(shown(&tree, 2)[..2], both);
    assert_eq!(refusal(&mut tree, "qdisc del root").0, Errno::NotFound);
    assert_eq!(
        shown(&super::tree("mq"), 2),
        ["mq 0: root", "pfifo_fast 0: parent :2", "pfifo_fast 0: parent :1"]
    );
    for words in ["nosuch", "fq_codel limit", "fq_codel limit x", "clsact", "mqprio num_tc 1"] {
        assert!(Tree::new(words, Layer::Ethernet).is_err(), "{words}");
    }
    let tun = Tree::new("fq_codel", Layer::Ip).unwrap();
    assert_eq!(shown(&tun, 1), ["fq_codel 0: root refcnt 2 limit 10240p quantum 1500"]);
}

// Goal: the root, the filters and the number of channels determine the shape of the schedulers.
#[test]
fn shapes() {
    let shapes = |tree: &Tree| [tree.shape(1), tree.shape(4)];
    let mut tree = tree("");
    assert_eq!(shapes(&tree), [Shape::None; 2]);
    assert!(tree.build(0, 1514, 0).is_none());
    run(&mut tree, &["qdisc add clsact"]);
    assert_eq!(shapes(&tree), [Shape::None; 2]);
    run(&mut tree, &["filter add egress prio 1 matchall action drop"]);
    assert_eq!(shapes(&tree), [Shape::PerChannel; 2]);
    assert!(tree.build(0, 1514, 0).is_some() && !tree.may_change_channel());
    run(&mut tree, &["filter add egress prio 2 matchall action skbedit queue_mapping 1"]);
    assert_eq!(shapes(&tree), [Shape::PerChannel, Shape::SharedLeaves]);
    assert!(tree.may_change_channel());
    run(&mut tree, &["qdisc add root handle 1: mq", "filter del egress prio 2"]);
    assert_eq!(shapes(&tree), [Shape::PerChannel; 2]);
    run(&mut tree, &["qdisc add parent 1:1 handle 2: prio"]);
    run(&mut tree, &["filter add parent 2: matchall action skbedit queue_mapping 3"]);
    assert!(!tree.may_change_channel(), "what is in a leaf cannot change its channel");
    run(&mut tree, &["qdisc replace root handle 5: prio"]);
    assert_eq!(shapes(&tree), [Shape::PerChannel, Shape::SharedRoot]);
    run(&mut tree, &["filter add parent 5: matchall action skbedit queue_mapping 3"]);
    assert!(tree.may_change_channel());
    run(&mut tree, &["qdisc replace root mqprio num_tc 2 map 0 1 queues 1@0 3@1 hw 0"]);
    assert_eq!(shapes(&tree), [Shape::PerChannel, Shape::SharedLeaves]);
    assert!(tree.may_change_channel());
}

// Goal: mqprio maps a priority to a channel of its traffic class, but keeps a channel that a filter
// selected. If a channel of the traffic class is not in use, mqprio does not change the channel. A
// packet for a missing channel uses channel 0 and is counted.
#[test]
fn mqprio_chooses_channels() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add root handle 1: mqprio num_tc 2 map 0 1 queues 1@0 3@1 hw 0"]);
    let shown = classes(&tree, 4);
    assert_eq!(
        shown[..3],
        ["mqprio 1:ffe0 root", "mqprio 1:ffe1 root", "mqprio 1:1 parent 1:ffe0"]
    );
    assert_eq!(shown[5], "mqprio 1:4 parent 1:ffe1");
    let map = tree.channel_map();
    let meta = |priority, channel| crate::Meta { priority, channel, mark: 0 };
    assert_eq!(map.pick(&meta(0, 3), 3, 4), 0);
    assert_eq!((0..4).map(|c| map.pick(&meta(1, c), c, 4)).collect::<Vec<_>>(), [1, 2, 3, 1]);
    assert_eq!(map.pick(&meta(1, 0), 2, 4), 0, "a filter chose channel 0");
    assert_eq!(map.pick(&meta(1, 0), 0, 3), 0, "channel 3 of the range is not in use");
    assert_eq!(tree.misdirected(), 0);
    assert_eq!(map.pick(&meta(1, 9), 2, 4), 0);
    drop(map);
    for _ in 0..3 {
        tree.channel_map().pick(&meta(1, 4), 2, 4);
    }
    assert_eq!(tree.misdirected(), 4);
    assert!(tree.misdirected.len() <= 3, "maps that are no more are remembered");
}

// Goal: a repeated command changes nothing and returns false.
#[test]
fn repeated_commands_change_nothing() {
    let commands = [
        "qdisc replace root handle 1: prio bands 4",
        "qdisc replace parent 1:1 handle 2: tbf rate 1mbit burst 10k limit 10k",
        "qdisc replace parent 1:2 handle 3: fq_codel limit 5",
        "qdisc replace parent 1:3 handle 4: drr",
        "class replace classid 4:1 drr quantum 500",
        "qdisc replace clsact",
        "filter replace egress prio 1 matchall action police rate 1mbit burst 10k",
        "filter replace parent 1: protocol ip prio 1 flower ip_proto tcp classid 1:1",
        "filter replace parent 1: prio 2 handle 7 fw classid 1:2",
    ];
    let mut tree = tree("");
    run(&mut tree, &commands);
    let before = dump(&tree);
    for text in commands {
        assert_eq!(tc(&mut tree, text), Ok(false), "{text}");
    }
    assert_eq!(dump(&tree), before);
    let mqprio = "qdisc replace root handle 9: mqprio num_tc 2 map 0 1 queues 1@0 3@1 hw 0";
    assert_eq!((tc(&mut tree, mqprio), tc(&mut tree, mqprio)), (Ok(true), Ok(false)));
    let other = mqprio.replace("1@0 3@1", "1@0 2@1");
    assert_eq!(refusal(&mut tree, &other).1, "Change operation not supported by specified qdisc");
}

// Goal: fewer bands delete the qdiscs of the removed bands, more bands get default qdiscs, and
// tbf's inner bfifo follows the limit.
#[test]
fn classes_follow_a_change() {
    let mut tree = tree("");
    run(
        &mut tree,
        &["qdisc add root handle 1: prio bands 4 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"],
    );
    run(
        &mut tree,
        &["qdisc add parent 1:4 handle 4: pfifo", "qdisc add parent 1:1 handle 2: pfifo"],
    );
    run(&mut tree, &["qdisc change root handle 1: prio bands 3"]);
    assert_eq!(shown(&tree, 1).len(), 2);
    run(&mut tree, &["qdisc change root handle 1: prio bands 5"]);
    assert_eq!(classes(&tree, 1).len(), 5);
    assert_eq!(classes(&tree, 1)[0], "prio 1:1 parent 1: leaf 2:");
    run(&mut tree, &["qdisc replace parent 1:1 handle 3: tbf rate 1mbit burst 10k limit 5000"]);
    run(&mut tree, &["qdisc change parent 1:1 handle 3: tbf rate 1mbit burst 10k limit 6000"]);
    let tbf = tree.state.root.find(3).unwrap();
    assert_eq!(tbf.classes[&1].child.params, Params::Bfifo(Fifo { limit: 6000 }));
}

// Goal: the nesting depth of qdiscs is limited, which bounds the stack.
#[test]
fn nesting_has_an_end() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add root handle 1: prio"]);
    for n in 1..8 {
        run(&mut tree, &[&format!("qdisc add parent {n}:1 handle {}: prio", n + 1)]);
    }
    let (errno, text) = refusal(&mut tree, "qdisc add parent 8:1 handle 9: prio");
    assert_eq!((errno, &*text), (Errno::Invalid, "Disciplines can be nested 8 deep"));
}

// Goal: automatic handles count from 8001:, skip handles in use, and wrap after the last handle.
#[test]
fn automatic_handles() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add root handle 1: prio", "qdisc add parent 1:1 handle 8001: pfifo"]);
    run(&mut tree, &["qdisc add parent 1:2 pfifo"]);
    assert!(shown(&tree, 1).contains(&"pfifo 8002: parent 1:2 limit 1000p".to_owned()));
    tree.state.auto_handle = 0xfffd;
    run(&mut tree, &["qdisc replace parent 1:2 bfifo", "qdisc replace parent 1:3 bfifo"]);
    let handles: Vec<_> = tree.qdiscs(1).iter().map(|q| q.handle.major()).collect();
    assert!(handles.contains(&0xfffe) && handles.contains(&0x8002), "{handles:x?}");
    assert_eq!(refusal(&mut tree, "qdisc replace root handle ffff: pfifo").0, Errno::Invalid);
}
