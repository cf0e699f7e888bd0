//! Capabilities of a group, and groups that are rejected.

use std::time::Duration;

use mqnet_netdev::loopback::Loopback;
use mqnet_netdev::null::Null;
use mqnet_netdev::{Caps, Function, LinkStatus, Members, Offloads, Plan, Steering};
use mqnet_wire::Layer;

use super::driver::{Driver, EACH};
use super::fake::{Countdown, Fake, caps};
use crate::{GroupConfig, GroupFunction, OnLoss};

fn group(caps: Vec<Caps>, on_loss: OnLoss) -> Result<GroupFunction, String> {
    let failures = Countdown::default();
    let member = |(number, caps): (usize, Caps)| {
        let (fake, state) = Fake::new(number, caps.channels, &failures);
        state.get().up = true;
        Box::new(Fake { caps, ..fake }) as Box<dyn Function>
    };
    let members = caps.into_iter().enumerate().map(member).collect();
    let config = GroupConfig { name: "group".into(), members, on_loss, primary: None, seed: 1 };
    GroupFunction::new(config).map_err(|e| e.to_string())
}

// Goal: a group has the capabilities that all of its members have. With `Degrade`, its channels
// also fit if one member is lost.
#[test]
fn capabilities_are_the_intersection() {
    let small = Caps {
        mtu: Some(9000),
        mtu_max: 9000,
        tx_offloads: Offloads::CSUM,
        rx_fixed: Offloads::CSUM,
        ..caps(2)
    };
    let both = || vec![caps(8), small.clone()];
    let whole = group(both(), OnLoss::Destroy).unwrap().caps();
    // Expect five channels: channel 5 would be the third channel of the member that has two.
    assert_eq!((whole.channels, whole.wanted), (5, None));
    assert_eq!((whole.mtu, whole.mtu_max), (Some(9000), 9000));
    assert_eq!((whole.rx_offloads, whole.tx_offloads), (Offloads::ALL, Offloads::CSUM));
    assert_eq!(whole.rx_fixed, Offloads::CSUM);
    assert_eq!(group(both(), OnLoss::Degrade).unwrap().caps().channels, 2);
    let wants = |wanted| Caps { wanted, ..caps(8) };
    let wants = group(vec![wants(None), wants(Some(1))], OnLoss::Destroy).unwrap().caps();
    assert_eq!(wants.wanted, Some(3));
}

// Goal: one member, nine members, and incompatible members are rejected with a reason.
#[test]
fn impossible_groups_are_refused() {
    let of = |count| group(vec![caps(4); count], OnLoss::Destroy).err().unwrap();
    assert_eq!(of(1), "group: 1 members, allowed: 2 to 8");
    assert_eq!(of(9), "group: 9 members, allowed: 2 to 8");
    let mixed = vec![caps(4), Caps { layer: Layer::Ip, ..caps(4) }];
    let why = group(mixed, OnLoss::Destroy).err().unwrap();
    assert_eq!(why, "fake:0 and fake:1: one carries Ethernet frames, one IP packets");
    let mtu = |mtu| Caps { mtu: Some(mtu), ..caps(4) };
    let mut torn = group(vec![mtu(1500), mtu(9000)], OnLoss::Degrade).unwrap();
    let why = "group: fake:0 has mtu 1500, fake:1 has mtu 9000".to_owned();
    assert_eq!(torn.poll_link(Duration::ZERO), LinkStatus::Down(why));
}

// Goal: a link with fewer channels than members is rejected, with a remedy.
#[test]
fn each_member_needs_a_channel() {
    let mut group = group(vec![caps(4); 3], OnLoss::Destroy).unwrap();
    assert!(matches!(group.poll_link(Duration::ZERO), LinkStatus::Up { .. }));
    let plan = Plan::join(&group.caps(), &Caps { wanted: Some(2), ..caps(4) }).unwrap();
    let why = group.open(&plan).err().unwrap().to_string();
    assert!(why.contains("2 channels, fewer than the 3 members") && why.contains("--channels 3"));
    assert_eq!(group.least_channels(), 3);
}

// Goal: a queue of the other kind (owning or system call) cannot replace a lost queue; the group
// goes down with this reason.
#[test]
fn failover_needs_equal_memory_rules() {
    let failures = Countdown::default();
    let (fake, state) = Fake::new(0, 8, &failures);
    state.get().up = true;
    let members: Vec<Box<dyn Function>> = vec![Box::new(fake), Box::new(Loopback::new(8))];
    let config = GroupConfig {
        name: "g".into(),
        members,
        on_loss: OnLoss::Degrade,
        primary: Some(0),
        seed: 1,
    };
    let mut group = GroupFunction::new(config).unwrap();
    assert!(matches!(group.poll_link(Duration::ZERO), LinkStatus::Up { .. }));
    let plan = Plan::join(&group.caps(), &Null::new(4).caps()).unwrap();
    let channels = group.open(&Plan { channels: 4, ..plan }).unwrap();
    state.get().up = false;
    let LinkStatus::Down(why) = group.poll_link(Duration::ZERO) else { panic!() };
    assert!(why.contains("waiting for fake:0 (no carrier); no member could take over"), "{why}");
    assert!(why.contains("differ in the kind of memory"), "{why}");
    drop(channels);
    group.close("test");
    assert_eq!(state.get().queues, 0);
}

// Goal: a group offers only as many channels as fit with one member lost: after a loss, the other
// member serves all of them.
#[test]
fn failover_needs_room() {
    let mut driver = Driver::new(2, OnLoss::Degrade, EACH);
    (0..2).for_each(|member| driver.set_up(member, true));
    driver.settle();
    assert!(driver.running.is_some());
    // All channels that the group offers are in use.
    assert_eq!(driver.group.caps().channels, EACH);
    driver.set_up(0, false);
    driver.settle();
    assert_eq!(driver.members[1].get().open, Some(EACH));
    driver.end();
}

// Goal: the group's indirection table is that of the primary, in channel numbers of the group.
#[test]
fn a_table_names_channels_of_the_primary() {
    let mut group = group(vec![caps(8); 2], OnLoss::Destroy).unwrap();
    // Expect the last member as primary: it has the smallest identity.
    assert_eq!(group.table_queues(5), [1, 3]);
    let why = group.set_indirection(&[1, 2], true).unwrap_err().to_string();
    assert!(why.contains("primary, fake:1: channel 2, allowed: 1, 3, ..."), "{why}");
    assert!(group.set_indirection(&[1, 3], true).unwrap_err().to_string().contains("no such"));
}

// Goal: while a member is lost, the table of a primary that does not steer has and accepts all
// channels that the primary serves. These include channels of the lost member. A primary that
// steers has only its own channels.
#[test]
fn table_names_failed_over_channels() {
    let own = [1, 3, 1, 3];
    for (queues, stand_in) in [(Some(vec![0, 1, 2, 3]), Some([1, 3, 0, 2])), (None, None)] {
        let mut driver = Driver::new(2, OnLoss::Degrade, 4);
        // Use the last member, which is the primary.
        driver.members[1].get().table.clone_from(&queues);
        (0..2).for_each(|member| driver.set_up(member, true));
        driver.settle();
        let table = |driver: &Driver| driver.group.indirection().map(|spread| spread.table);
        assert_eq!(table(&driver), queues.as_ref().map(|_| own.to_vec()));
        assert_eq!(driver.group.table_queues(4), own[..2]);
        driver.set_up(0, false);
        driver.settle();
        assert_eq!(table(&driver), stand_in.map(Vec::from));
        assert_eq!(
            driver.group.table_queues(4),
            stand_in.as_ref().map_or(&own[..2], |all| &all[..])
        );
        let set = driver.group.set_indirection(&[0, 0, 1, 1], true);
        assert_eq!(set.is_ok(), stand_in.is_some(), "{set:?}");
        if set.is_ok() {
            assert_eq!(driver.members[1].get().table, Some(vec![2, 2, 0, 0]));
            assert_eq!(table(&driver), Some(vec![0, 0, 1, 1]));
        }
        driver.set_up(0, true);
        driver.settle();
        assert_eq!(table(&driver), stand_in.map(|_| vec![1; 4]));
        driver.end();
    }
}
