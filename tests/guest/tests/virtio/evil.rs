//! VMM that removes its guest's memory.

use std::fs::File;
use std::time::Duration;

use mqnet_guest::{Guest, Kernel};
use mqnet_sysio::process;
use mqnet_testkit::{Control, Datagrams, World, until};

use super::peer::Numbers;
use super::{card, possible};

const MEMORY: u32 = 384;

/// True if every thread of a process is stopped.
fn is_frozen(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name in brackets may contain any character.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

// Goal: if the file of a guest's memory is truncated under traffic, the device is closed with a
// visible reason. Another link of the same process is not affected.
#[test]
fn removed_guest_memory_closes_one_device() {
    if !possible(Kernel::V6_1) {
        return;
    }
    let (world, control) = (World::create(), Control::create());
    let (a, b) = (world.a.name(), world.b.name());
    let socket = world.file("card");
    let links = format!(
        "[link.evil]\na = 'tap:t0,netns={a},address=10.9.0.1/24'\nb = 'vhost-user:{}'\n\
         [link.good]\na = 'tap:g0,netns={a},address=10.8.0.1/24'\n\
         b = 'tap:g1,netns={b},address=10.8.0.2/24'\n",
        socket.display()
    );
    let file = control.write("mqnet.toml", &links).display().to_string();
    let daemon = control.start(&["daemon", "-f", &file]);
    control.wait_up("good");
    world.a.lengthen("g0");
    until("the socket", || socket.exists().then_some(()));
    let numbers = Numbers::start(&world.a, Duration::from_millis(1));
    let flow = Datagrams::start(&world.a, &world.b, "10.8.0.2", 900, Duration::from_millis(1));
    let memory = world.file("memory");
    let backend =
        format!("memory-backend-file,id=mem,size={MEMORY}M,mem-path={},share=on", memory.display());
    let guest = Guest::new(Kernel::V6_1, "test-evil").bare().memory(MEMORY);
    let guest = guest.script("restart", include_str!("../../scripts/restart.sh"));
    let mut guest = card(&socket, false).put_into(guest, &backend).start().unwrap();
    numbers.more(200);
    // Stop QEMU before the truncation: QEMU accesses the memory too, and would crash before mqnet
    // detects the loss.
    process::freeze(guest.pid()).unwrap();
    until("QEMU to stand still", || is_frozen(guest.pid()).then_some(()));
    File::options().write(true).open(&memory).unwrap().set_len(0).unwrap();
    // The log contains the reason for either thread that may detect the loss: a worker with a
    // frame, or the connection thread of the device.
    until("the card to be closed", || {
        let output = daemon.err();
        let is_reason = |line: &str| {
            line.contains("evil: down: ") && line.contains("the VMM removed memory of the guest")
        };
        output.lines().any(is_reason).then_some(())
    });
    flow.wait_more(500);
    guest.kill();
    let (sent, received) = flow.finish();
    assert_eq!(sent, received, "the other link lost frames");
    daemon.stop();
}
