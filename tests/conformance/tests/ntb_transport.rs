//! Link with the kernel's `ntb_transport` as the far end of its first function.

use mqnet_engine::{Link, LinkConfig, LinkSettings, RejectedRequest};
use mqnet_netdev::loopback::Loopback;
use mqnet_ntb::fuzzing::Cable;
use mqnet_sysio::clock;

/// Runs the link until `done` returns true. `repeat` repeats the requests of the far end, as a
/// kernel does.
fn until(
    link: &mut Link,
    what: &str,
    mut repeat: impl FnMut(),
    mut done: impl FnMut(&mut Link) -> bool,
) {
    mqnet_testkit::until(what, || {
        repeat();
        link.turn(clock::monotonic()).expect("a link");
        done(link).then_some(())
    });
}

fn channels(link: &Link) -> u16 {
    link.running().map_or(0, |running| running.plan.channels)
}

// Goal: the link has one channel per open queue pair of the far end, also after changes, and
// reports the protocol. The link refuses a requested number of channels and names the command for
// the far end.
#[test]
fn channels_are_the_far_ends() {
    let cable = Cable::new(4 << 20);
    let near = cable.end(0, 65_536);
    let mut link = Link::new(Box::new(near), Box::new(Loopback::new(4)), LinkConfig::default())
        .expect("a link");
    assert!(link.functions()[0].peer().is_some(), "until the far end is known");
    cable.greet(4);
    until(&mut link, "handshake", || (), |link| link.functions()[0].protocol().is_some());
    assert_eq!(link.functions()[0].protocol(), Some("ntb_transport v4"));
    assert!(link.functions()[0].peer().is_none());
    cable.join();
    until(&mut link, "one channel", || cable.request(0, 0b1), |link| channels(link) == 1);
    until(&mut link, "three channels", || cable.request(0, 0b111), |link| channels(link) == 3);
    let settings = LinkSettings { channels: Some(2), ..link.settings().clone() };
    let Err(RejectedRequest::Impossible(why)) = link.request(settings, clock::monotonic()) else {
        panic!("accepted")
    };
    assert_eq!(
        why,
        "channels: the peer's ntb_netdev decides their number: ethtool -L DEV combined N in the \
         guest"
    );
    assert_eq!(channels(&link), 3);
    // Changes of settings other than channels are accepted.
    let settings = LinkSettings { mtu: Some(9000), ..link.settings().clone() };
    link.request(settings, clock::monotonic()).expect("accepted");
    let mtu = |link: &Link| link.running().map(|running| running.plan.mtu);
    until(&mut link, "an MTU of 9000", || (), |link| mtu(link) == Some(9000));
}

// Goal: a link has at most as many channels as its other netdev, even if the far end has more queue
// pairs.
#[test]
fn channels_are_no_more_than_the_other_netdevs() {
    let cable = Cable::new(4 << 20);
    let near = cable.end(0, 65_536);
    let mut link = Link::new(Box::new(near), Box::new(Loopback::new(2)), LinkConfig::default())
        .expect("a link");
    cable.greet(4);
    until(&mut link, "handshake", || (), |link| link.functions()[0].protocol().is_some());
    cable.join();
    let all = || cable.request(0, 0b1111);
    until(&mut link, "two channels", all, |link| channels(link) == 2);
}
