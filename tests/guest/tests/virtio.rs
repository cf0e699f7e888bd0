//! `vhost-user:` with real guests: their drivers, and typical operations of users.

mod evil;
mod life;
mod migrate;
mod pair;
pub(crate) mod peer;
mod restart;

use std::path::Path;

use mqnet_guest::{Guest, Kernel};
use mqnet_testkit::{LinkProcess, Need, World, has, until};

use crate::there;

/// QEMU options of one vhost-user device.
#[derive(Clone, Debug)]
struct Card<'a> {
    socket: &'a Path,
    pairs: u16,
    packed: bool,
    /// Additional options of QEMU's device.
    device: &'a str,
    /// Options of QEMU's socket in addition to its path.
    way: &'a str,
}

/// Device with one queue pair. QEMU reconnects to the socket after a disconnect.
fn card(socket: &Path, packed: bool) -> Card<'_> {
    Card { socket, pairs: 1, packed, device: "", way: "reconnect-ms=200" }
}

impl Card<'_> {
    /// Adds the device to a guest with the QEMU object `memory` as its memory.
    fn put_into(&self, guest: Guest, memory: &str) -> Guest {
        let chardev = format!("socket,id=c0,path={},{}", self.socket.display(), self.way);
        let netdev = format!("vhost-user,id=n0,chardev=c0,queues={}", self.pairs);
        let packed = if self.packed { "on" } else { "off" };
        let vectors = 2 * self.pairs + 2;
        let device = format!(
            "virtio-net-pci,netdev=n0,mq=on,vectors={vectors},packed={packed}{}",
            self.device
        );
        guest
            .qemu(&["-machine", "memory-backend=mem", "-object", memory])
            .qemu(&["-chardev", &chardev, "-netdev", &netdev, "-device", &device])
    }
}

/// QEMU object for `mib` MiB of memory that mqnet can map.
fn shared(mib: u32) -> String {
    format!("memory-backend-memfd,id=mem,size={mib}M,share=on")
}

/// True if all requirements are met; otherwise skips the test and returns false.
#[track_caller]
pub(crate) fn possible(kernel: Kernel) -> bool {
    has(&[Need::Root, Need::Program("iperf3")]) && there(kernel)
}

/// Starts a link between a TAP with the address 10.9.0.1 and a device.
fn link(world: &World, socket: &Path, tap: &str) -> LinkProcess {
    let mut command = world.folder().program();
    let tap = format!("tap:t0,netns={},address=10.9.0.1/24{tap}", world.a.name());
    command.args(["link", "--json", &tap, &format!("vhost-user:{}", socket.display())]);
    let link = LinkProcess::spawn(command);
    until("the socket", || socket.exists().then_some(()));
    link
}
