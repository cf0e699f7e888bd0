//! A peer that stops reading.

use std::time::Duration;

use mqnet_testkit::{Datagrams, Need, Stream, World, has};

// Goal: a stalled peer stops its sender without loss: mqnet drops nothing, and the TAP's own ring
// fills instead. When the peer resumes, traffic continues, and every frame is accounted for.
#[test]
fn a_stalled_peer_stops_its_sender() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let pair = world.pair(|end| end.tap("persist").channels(2));
    let tcp = Stream::start(&world.a, &world.b, "10.0.0.2");
    let udp = Datagrams::start(&world.a, &world.b, "fd00::2", 1400, Duration::from_micros(20));
    tcp.wait_more(1 << 20);
    udp.wait_more(100);
    for _ in 0..3 {
        pair.b.freeze();
        // A lane is stopped if it has more stops than wakes; a stop from before the freeze counts,
        // too.
        let stopped = pair.a.wait_for("the sender is stopped", |lines| {
            let lane = &lines.last()?["a-to-b"];
            let (stops, wakes) = (lane["tx-stop"].as_u64()?, lane["tx-wake"].as_u64()?);
            (stops > wakes).then_some(stops)
        });
        // The kernel's ring in front of the link overflows.
        let outside = world.a.counters("a").tx_dropped;
        mqnet_testkit::until("the TAP's ring overflows", || {
            (world.a.counters("a").tx_dropped > outside).then_some(())
        });
        println!("stopped {stopped} times; the TAP's ring dropped {outside} so far");
        pair.b.thaw();
        tcp.wait_more(1 << 20);
        udp.wait_more(100);
    }
    assert_eq!((pair.a.ups(), pair.b.ups()), (1, 1), "a stall is no reason to lose the link");
    tcp.finish();
    let (sent, received) = udp.finish();
    pair.a.wait_quiet();
    let (here, there) = (world.a.counters("a"), world.b.counters("b"));
    let full = world.b.protocol("Udp6RcvbufErrors");
    let (a, b) = pair.stop();
    let lane = a.out();
    assert_eq!((lane.drops, lane.tx_lost), (0, 0), "dropped inside: {}", a.0);
    assert_eq!(lane.tx_stop, lane.tx_wake, "stops and wakes: {}", a.0);
    assert!(a.dropped_outside() > 0, "the TAP's ring overflowed, and the table does not know");
    let known = here.tx_dropped + here.qdisc_dropped + there.rx_dropped + full + b.back().drops;
    println!("{sent} datagrams sent, {received} received, {known} drops counted");
    assert!(sent - received <= known, "{sent} sent, {received} received, {known} counted");
}

// Goal: if a peer stalls during the handshake, the link comes up after the peer resumes. If the
// peer stalls while no frame flows, the link continues afterwards.
#[test]
fn a_peer_stalls_before_and_between() {
    if !has(&[Need::Root]) {
        return;
    }
    let world = World::create();
    let a = world.end_a().spawn();
    a.wait_down("peer");
    a.freeze();
    let b = world.end_b().spawn();
    b.wait_down("the peer's handshake");
    a.thaw();
    a.wait_up(1);
    b.wait_up(1);
    b.freeze();
    b.thaw();
    let flow = Stream::start(&world.b, &world.a, "10.0.0.1");
    flow.wait_more(1 << 20);
    flow.finish();
    a.wait_quiet();
    mqnet_testkit::assert_pair(&a.stop(), &b.stop());
}
