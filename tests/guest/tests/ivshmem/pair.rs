//! Two guests with doorbells.

use std::time::Duration;

use mqnet_guest::{Guest, Kernel, Monitor, Running};
use mqnet_testkit::{World, until};
use serde_json::json;

use super::{build, serve};
use crate::virtio::possible;

/// Interrupt vectors: one for the link and eight for queue pairs.
const VECTORS: u16 = 9;

fn guest(world: &World, me: u8) -> Running {
    let monitor = format!("unix:{},server=on,wait=off", world.file(&format!("qmp{me}")).display());
    let chardev = format!("socket,id=iv,path={}", world.socket().display());
    let device = format!("ivshmem-doorbell,chardev=iv,vectors={VECTORS}");
    let script = format!("ME={me}\n{}", include_str!("../../scripts/vectors.sh"));
    Guest::new(Kernel::V7_3, &format!("test-ivshmem-vectors-{me}"))
        .memory(512)
        .limit(Duration::from_secs(400))
        .boot_words("intel_iommu=on")
        .qemu(&["-device", "intel-iommu,intremap=on", "-qmp", &monitor])
        .qemu(&["-chardev", &chardev, "-device", &device])
        .script("vectors", &script)
        .start()
        .unwrap()
}

/// Reboots the guest; its QEMU continues to run.
fn reboot(world: &World, me: u8) {
    let mut monitor = Monitor::connect(&world.file(&format!("qmp{me}"))).unwrap();
    // Guests are started with an option that ends QEMU at a reboot.
    let reset = json!({"execute": "set-action", "arguments": {"reboot": "reset"}});
    monitor.ask(&reset).unwrap();
    monitor.ask(&json!({"execute": "system_reset"})).unwrap();
}

// Goal: two guests interrupt each other, with a vector for each of 8 queue pairs. A stream survives
// changes between 1 and 8 channels. The affinity of every vector is the CPU of its channel's
// worker. After a reboot of one guest the link comes up again, without an action at the other end.
#[test]
fn two_guests_with_doorbells() {
    if !possible(Kernel::V7_3) {
        return;
    }
    build();
    let world = World::create();
    let _server = serve(&world, VECTORS);
    let serves = guest(&world, 2);
    let mut asks = guest(&world, 1);
    asks.says("guest: resized").unwrap();
    until("the monitor", || world.file("qmp2").exists().then_some(()));
    reboot(&world, 2);
    let outcome = asks.wait().unwrap();
    drop(serves);
    let printed = &outcome.passed("vectors").unwrap().output;
    println!("{} in {:?}: {printed}", outcome.release, outcome.wall);
    for channels in [8, 3, 1] {
        assert!(printed.contains(&format!("channels {channels}\n3 packets")), "{printed}");
    }
    assert_eq!(printed.matches("3 packets transmitted, 3 received").count(), 4, "{printed}");
    for channel in 0..8 {
        let cpu = printed.lines().find_map(|line| {
            let (cpu, rest) =
                line.strip_prefix(&format!("channel {channel}: "))?.split_once(' ')?;
            let vector = format!("vfio-msix[{}](", channel + 1);
            Some(rest.starts_with(&format!("is {cpu}, {vector}")))
        });
        assert_eq!(cpu, Some(true), "channel {channel}: {printed}");
    }
    let used =
        printed.lines().find_map(|line| line.strip_prefix("vectors used ")).expect("a number");
    assert!(used.parse::<u32>().expect("a number") >= 2, "{printed}");
    assert!(printed.contains(r#""event":"down""#), "the link was never lost: {printed}");
    assert_eq!(printed.matches("receiver").count(), 2, "a stream is missing: {printed}");
    assert!(printed.contains("5 packets transmitted, 5 received"), "{printed}");
    assert!(printed.ends_with("link 0\n== done\n"), "{printed}");
}
