//! Ends and restarts of the guest, its drivers and mqnet on a link of `ntb:vfio-user=`.

use std::time::Duration;

use mqnet_guest::Guest;
use mqnet_testkit::{IdleCost, World, has, rounds, until};

use super::netdev::{NEEDS, guest, link, run, serve};
use super::there_with_ntb;

/// Number of rounds of each test, unless `MQNET_ROUNDS` sets another number.
const ROUNDS: u32 = 3;
/// Time limit of a guest for each round.
const ROUND: Duration = Duration::from_secs(100);

/// Maximum memory in MiB that the guest's kernel (7.3.4) does not free in a round of module
/// removals.
const LEAK: u32 = 16;

/// Guest with time and memory for this number of rounds.
fn timed(guest: Guest, rounds: u32) -> Guest {
    guest.limit(ROUND * rounds.max(ROUNDS)).memory(512 + LEAK * rounds)
}

/// Script that ends and restarts the drivers in several rounds: interface, MTU, channels, modules,
/// driver binding, PCI reset.
const DRIVERS: &str = r#"
device=$(basename /sys/bus/pci/drivers/ntb_hw_epf/0*)
again() {
    for i in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done
    ip addr add 10.0.0.2/24 dev eth0 2> /dev/null
    ip link set eth0 up
    carrier
    ping -c 4 -i 0.2 -W 5 10.0.0.1 > /dev/null || fail ping after $1
    echo "OK $1"
}
setup 2 1500
device=$(basename /sys/bus/pci/drivers/ntb_hw_epf/0*)
ethtool -L eth0 combined 2
again start
for round in $(seq ROUNDS); do
    ip link set eth0 down; again interface-$round
    ip link set eth0 mtu $((3000 + round)); again mtu-$round
    ip link set eth0 mtu 1500
    ethtool -L eth0 combined 1; again one-channel-$round
    ethtool -L eth0 combined 2; again two-channels-$round
    rmmod ntb_netdev; insmod /ntb/ntb_netdev.ko; again netdev-$round
    rmmod ntb_netdev ntb_transport
    insmod /ntb/ntb_transport.ko max_num_clients=2; insmod /ntb/ntb_netdev.ko
    again transport-$round
    echo $device > /sys/bus/pci/drivers/ntb_hw_epf/unbind
    echo $device > /sys/bus/pci/drivers/ntb_hw_epf/bind
    # The kernel does not make the netdev anew.
    rmmod ntb_netdev; insmod /ntb/ntb_netdev.ko; again binding-$round
    rmmod ntb_netdev ntb_transport ntb_hw_epf
    insmod /ntb/ntb_hw_epf.ko; insmod /ntb/ntb_transport.ko max_num_clients=2
    insmod /ntb/ntb_netdev.ko; again drivers-$round
    if [ -e /sys/bus/pci/devices/$device/reset ]; then
        rmmod ntb_netdev ntb_transport ntb_hw_epf
        echo 1 > /sys/bus/pci/devices/$device/reset
        insmod /ntb/ntb_hw_epf.ko; insmod /ntb/ntb_transport.ko max_num_clients=2
        insmod /ntb/ntb_netdev.ko; again reset-$round
    fi
done
echo DONE
"#;

// Rule: the link comes up again after each kind of end of the guest's drivers, in several rounds.
#[test]
fn link_returns_after_drivers_end() {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, "", ",queues=2");
    let rounds = rounds(ROUNDS);
    let script = DRIVERS.replace("ROUNDS", &rounds.to_string());
    let output = run(&link, timed(guest(&world, "ntb-drivers", &script), rounds));
    assert!(output.contains("DONE"), "{output}");
    link.stop();
}

/// Script that prints `FLOWS` once pings are answered, and then transfers files until the guest is
/// killed.
const STAY: &str = r#"
setup 2 1500
ethtool -L eth0 combined 2
for i in $(seq 100); do ping -c 1 -W 1 10.0.0.1 > /dev/null && break; done
pings 10.0.0.1 > /dev/null
echo "FLOWS" > /dev/ttyS0
while :; do upload /bin/busybox; download 0; done
"#;

// Rule: if a VMM is killed under traffic, the link goes down with the reason; the next VMM brings
// the link up again. After several rounds no resource of an earlier VMM remains open.
#[test]
fn link_returns_after_vmms_are_killed() {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, "", ",queues=2");
    let _server = serve(&world, 4_000_000);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", link.pid())).unwrap().count();
    let mut counts = Vec::new();
    for round in 1..=rounds(ROUNDS) {
        let running = guest(&world, "ntb-killed", STAY).start().unwrap();
        let mut running = running.boots().unwrap();
        running.says("FLOWS").unwrap();
        assert!(link.ups() >= round as usize);
        std::thread::sleep(Duration::from_millis(500));
        running.kill();
        link.wait_down("the client");
        until("the end of the guest's resources", || {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", link.pid())).ok()?;
            (!maps.contains("memory-backend-memfd")).then_some(())
        });
        counts.push(open());
    }
    assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "open descriptors: {counts:?}");
    link.stop();
}

/// Script that reboots several times; the host counts the boots.
const REBOOT: &str = r#"
setup 2 1500
pings 10.0.0.1 > /dev/null
boot=$(nc 10.0.0.1 7003 < /dev/null)
echo "BOOT $boot"
[ "$boot" = ROUNDS ] || reboot -f
echo DONE
"#;

// Rule: the link returns after each reboot of the guest.
#[test]
fn link_returns_after_reboots() {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, "", ",queues=2");
    let _server = serve(&world, 1000);
    // QEMU reboots the machine instead of ending.
    let rounds = rounds(ROUNDS);
    let script = REBOOT.replace("ROUNDS", &rounds.to_string());
    let guest = guest(&world, "ntb-reboot", &script).qemu(&["-action", "reboot=reset"]);
    let output = run(&link, timed(guest, rounds));
    assert!(output.contains(&format!("BOOT {rounds}")), "{output}");
    assert!(link.ups() >= rounds as usize);
    link.stop();
}

/// Script that checks, after mqnet was killed, that the guest continues and pings fail.
const ALONE: &str = r#"
setup 2 1500
pings 10.0.0.1 > /dev/null
echo "FLOWS" > /dev/ttyS0
sleep 5
ping -c 1 -W 1 10.0.0.1 > /dev/null && fail mqnet stays
rmmod ntb_netdev
ip link show eth0 && fail netdev stays
echo DONE
"#;

// Rule: if mqnet is killed, the guest continues without the link, and a new guest connects to the
// next mqnet. (QEMU 11.1.3 aborts if a server ends while QEMU waits for a reply, and if a vfio-user
// device is removed.)
#[test]
fn guest_goes_on_after_mqnet_is_killed() {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    for _ in 0..rounds(2) {
        let mut link = link(&world, "", ",queues=2");
        let running = guest(&world, "ntb-alone", ALONE).start().unwrap();
        let mut running = running.boots().unwrap();
        running.says("FLOWS").unwrap_or_else(|e| panic!("{e}\n{}", link.text()));
        std::thread::sleep(Duration::from_secs(2));
        link.kill();
        let outcome = running.wait().unwrap();
        let output = &outcome.passed("test").unwrap().output;
        assert!(output.contains("DONE"), "{output}");
    }
}

/// Maximum wake-ups per second of an idle link. Expected are about 32 of the thread that compares
/// registers, and 10 each of the control thread and of the check for missed doorbells.
const SLEEPS_MAX: u64 = 100;

/// Script that stays idle, and then pings.
const IDLE: &str = r#"
setup 1 1500
pings 10.0.0.1 > /dev/null
address=$(ip neigh show 10.0.0.1 | sed 's/.*lladdr \([^ ]*\).*/\1/')
ip neigh replace 10.0.0.1 lladdr $address dev eth0
echo "FLOWS" > /dev/ttyS0
sleep 12
ping -c 5 -i 1 -W 5 10.0.0.1 || fail ping
echo DONE
"#;

// Rule: with the link up and without traffic, mqnet uses less than 1 % of a CPU, and pings are
// answered promptly afterwards.
#[test]
fn idle_link_costs_little() {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, "", ",queues=1");
    let running = guest(&world, "ntb-idle", IDLE).start().unwrap();
    let mut running = running.boots().unwrap();
    running.says("FLOWS").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let cost = IdleCost::measure(link.pid(), Duration::from_secs(10));
    let outcome = running.wait().unwrap();
    let output = &outcome.passed("test").unwrap().output;
    println!("{cost:?}\n{output}");
    cost.assert_below(SLEEPS_MAX);
    link.stop();
}
