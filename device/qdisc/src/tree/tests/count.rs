use super::*;
use crate::sch::fq_codel::counter;
use crate::{Filters, Meta};

/// Registers counters of a new scheduler with the qdisc `major` and returns them.
fn counters(tree: &mut Tree, major: u16) -> Arc<crate::NodeStats> {
    let node = tree.state.root.find_mut(major).unwrap();
    let params = node.params.clone();
    node.ledger.open(params.counters())
}

// Goal: the counters of all schedulers of a qdisc add up. Ended schedulers are included without
// their gauges, and their memory is freed.
#[test]
fn counters_outlive_schedulers() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add root handle 1: fq_codel"]);
    for round in 1..=20u64 {
        let stats = counters(&mut tree, 1);
        stats.packets.add(10);
        stats.backlog.set(500);
        stats.extra[counter::ECN_MARK].add(2);
        stats.extra[counter::MAXPACKET].set(round);
        stats.extra[counter::OLD_FLOWS_LEN].set(3);
        let totals = tree.qdiscs(1)[0].totals;
        assert_eq!((totals.packets, totals.backlog), (10 * round, 500));
        let extra = |at: usize| totals.extra[at];
        assert_eq!((extra(counter::ECN_MARK), extra(counter::MAXPACKET)), (2 * round, round));
        assert_eq!(extra(counter::OLD_FLOWS_LEN), 3);
        drop(stats);
        let totals = tree.qdiscs(1)[0].totals;
        assert_eq!((totals.backlog, totals.extra[counter::OLD_FLOWS_LEN]), (0, 0));
    }
    assert!(tree.state.root.ledger.live.len() <= 2);
}

// Goal: a drr class shows its deficit, and 0 after its scheduler has ended.
#[test]
fn drr_class_shows_deficit() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add root handle 1: drr", "class add parent 1: classid 1:1 drr"]);
    let deficit = |tree: &Tree| {
        let class = &tree.classes(1)[0];
        assert_eq!(class.counters[0].name, "deficit");
        class.totals.extra[0]
    };
    let scheduler = tree.build(0, 1514, 0).unwrap();
    let class = tree.state.root.classes.get(&1).unwrap();
    class.ledger.live[0].extra[0].set(700);
    assert_eq!(deficit(&tree), 700);
    drop(scheduler);
    assert_eq!(deficit(&tree), 0);
}

// Goal: mq shows the sum of its leaves, a class of prio shows the counters of its child qdisc, and
// a new qdisc starts at 0.
#[test]
fn parents_show_sums() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add root handle 1: mq"]);
    run(
        &mut tree,
        &["qdisc add parent 1:1 handle 2: prio", "qdisc add parent 1:2 handle 3: pfifo"],
    );
    run(&mut tree, &["qdisc add parent 2:1 handle 4: pfifo"]);
    counters(&mut tree, 2).bytes.add(100);
    counters(&mut tree, 3).bytes.add(11);
    counters(&mut tree, 4).bytes.add(60);
    let bytes = |tree: &Tree, handle| {
        tree.qdiscs(4).iter().find(|q| q.handle == handle).unwrap().totals.bytes
    };
    assert_eq!(bytes(&tree, Handle::new(1, 0)), 111);
    let class = |tree: &Tree, id| tree.classes(4).iter().find(|c| c.id == id).unwrap().totals.bytes;
    assert_eq!(class(&tree, Handle::new(1, 1)), 100);
    assert_eq!(class(&tree, Handle::new(2, 1)), 60);
    run(&mut tree, &["qdisc replace parent 1:1 handle 5: prio"]);
    assert_eq!(bytes(&tree, Handle::new(1, 0)), 11);
}

// Goal: each scheduler counts its filters' hits separately; the tree shows the sum over all
// schedulers, ended ones included. All schedulers share the bucket of a police action.
#[test]
fn filters_add_up_and_share_their_rate() {
    let mut tree = tree("");
    run(&mut tree, &["qdisc add clsact"]);
    run(&mut tree, &["filter add egress prio 1 matchall action police rate 1mbit burst 3000"]);
    let chain = |tree: &mut Tree| tree.state.egress.as_mut().unwrap().build(Filters::default());
    let mut schedulers: Vec<_> = (0..4).map(|_| chain(&mut tree)).collect();
    let keys = mqnet_wire::FlowKeys::default();
    let passed = schedulers
        .iter_mut()
        .map(|f| {
            (0..2).filter(|_| {
                f.run(&keys, &mut Meta::default(), 1000, 7) == crate::FilterVerdict::Pass
            })
        })
        .map(Iterator::count)
        .sum::<usize>();
    assert_eq!(passed, 3, "one burst for four schedulers");
    drop(schedulers);
    let mut last = chain(&mut tree);
    last.run(&keys, &mut Meta::default(), 1000, 7);
    let info = tree.filters().remove(0);
    assert_eq!((info.hits, info.actions[0].packets, info.actions[0].bytes), (9, 9, 9000));
    assert_eq!((info.actions[0].drops, info.actions[0].overlimits), (6, 6));
    assert_eq!(tree.state.egress.as_ref().unwrap().list[0].ledger.live.len(), 1);
}

// Goal: a built scheduler has the handles, kinds, classes and filters of the tree, and each channel
// has a separate leaf.
#[test]
fn blueprints_are_what_is_attached() {
    let mut tree = tree("fq_codel");
    run(&mut tree, &["qdisc add root handle 1: mq", "qdisc add parent 1:2 handle 2: drr"]);
    run(&mut tree, &["class add classid 2:7 drr", "filter add parent 2: matchall flowid 2:7"]);
    let built =
        tree.state.root.classes.get_mut(&2).unwrap().child.build(9014, &Filters::of_one_channel);
    assert_eq!((built.handle, &built.params), (Handle::new(2, 0), &Params::Drr));
    assert_eq!(built.classes[0].id, Handle::new(2, 7));
    assert_eq!(built.classes[0].drr.unwrap().quantum, 9014);
    assert_eq!(built.classes[0].child.params.kind(), "pfifo");
    assert!(!built.filters.is_empty());
    let leaf = tree.state.root.classes.get_mut(&1).unwrap().child.build(1514, &Filters::default);
    assert_eq!((leaf.handle, leaf.params.kind()), (Handle::default(), "fq_codel"));
    assert!(tree.build(3, 9014, 1).is_some());
    assert!(shown(&tree, 4)[2].ends_with("quantum 9014"), "{:?}", shown(&tree, 4));
}
