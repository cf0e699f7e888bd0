//! Ends and restarts on either side of `ntb:vfio-user=`.

use std::time::Duration;

use mqnet_testkit::{World, has, until};

use super::netdev::{NEEDS, guest, link, run, serve};
use super::there_with_ntb;

/// Each way in which a driver can end, several times.
const DRIVERS: &str = r#"
device=$(basename /sys/bus/pci/drivers/ntb_hw_epf/0*)
again() {
    for i in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done
    ip addr add 10.0.0.2/24 dev eth0 2> /dev/null
    ip link set eth0 up
    carrier
    ping -c 2 -i 0.2 -W 5 10.0.0.1 > /dev/null || fail ping after $1
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
    insmod /ntb/ntb_transport.ko max_num_clients=2; insmod /ntb/ntb_netdev.ko; again transport-$round
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

// Rule: the link comes back after each way in which the guest's drivers end, several times.
#[test]
fn link_returns_after_drivers_end() {
    if !has(&NEEDS) || !there_with_ntb() {
        return;
    }
    let world = World::create();
    let link = link(&world, "", ",queues=2");
    let script = DRIVERS.replace("ROUNDS", "3");
    let output = run(&link, guest(&world, "ntb-drivers", &script));
    assert!(output.contains("DONE"), "{output}");
    println!("{output}");
    println!("{:#?}", link.events("down"));
    link.stop();
}
