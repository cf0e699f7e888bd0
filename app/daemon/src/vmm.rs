//! Command line of a VMM for a guest on a listening socket, and arguments of a vhost-user backend
//! program.

use std::fmt::Write;

use clap::Args;
use mqnet_address::{NtbVfioUser, VhostUser};
use mqnet_command::Failure;
use mqnet_ntb::hw::vfio_user::qemu_device;

use crate::args::{AccessArgs, LinkArgs};

/// Default number of queue pairs of a guest.
const PAIRS: u16 = 4;

/// Options of QEMU and cloud-hypervisor for a guest with this network card; `None` for an inherited
/// descriptor.
pub(crate) fn flags(card: &VhostUser, channels: Option<u16>) -> Option<String> {
    if card.fd.is_some() {
        return None;
    }
    let pairs = channels.unwrap_or(PAIRS).min(card.queues);
    let (rings, vectors) = (2 * pairs, 2 * pairs + 2);
    let path = card.path.display();
    // The VMM is the server if mqnet connects, and the client if mqnet listens. As a client, QEMU
    // reconnects after a restart of mqnet.
    let (chardev, mode) = match card.connect {
        true => (",server=on,wait=off", "server"),
        false => (",reconnect=1", "client"),
    };
    let packed = if card.packed { ",packed=on" } else { "" };
    let qemu_mtu = card.mtu.map(|mtu| format!(",host_mtu={mtu}")).unwrap_or_default();
    let mac = card.mac.map(|mac| {
        let hex: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(",mac={}", hex.join(":"))
    });
    let mac = mac.unwrap_or_default();
    let cloud_mtu = card.mtu.map(|mtu| format!(",mtu={mtu}")).unwrap_or_default();
    let mut text = String::new();
    let _ = write!(
        text,
        "A guest for {path} with {pairs} queue pairs (any number up to {most}: vectors=2N+2):\n\
         qemu-system-x86_64 -m 1G -machine q35,memory-backend=mem \\\n  \
           -object memory-backend-memfd,id=mem,size=1G,share=on \\\n  \
           -chardev socket,id=c0,path={path}{chardev} \\\n  \
           -netdev vhost-user,id=n0,chardev=c0,queues={pairs} \\\n  \
           -device virtio-net-pci,netdev=n0,mq=on,vectors={vectors}{packed}{mac}{qemu_mtu}\n\
         cloud-hypervisor --memory size=1G,shared=on \\\n  \
           --net vhost_user=true,socket={path},num_queues={rings},\
           vhost_mode={mode}{mac}{cloud_mtu}\n",
        most = card.queues,
    );
    Some(text)
}

/// Default slot size of the kernel's `ntb_transport`.
const TRANSPORT_MTU: u32 = 64 << 10;
/// Largest window that a guest can allocate without `cma=`.
const WINDOW_PLAIN: u32 = 4 << 20;

/// Options of QEMU for a guest with this NTB endpoint, and the commands for the guest.
pub(crate) fn ntb_commands(end: &NtbVfioUser) -> String {
    let (path, queues) = (end.path.display(), end.queues);
    let mut text = format!(
        "A guest for {path} (QEMU 11 or newer):\n\
         qemu-system-x86_64 -m 1G -machine q35,memory-backend=mem \\\n  \
           -object memory-backend-memfd,id=mem,size=1G,share=on \\\n  \
           -device '{}'\n",
        qemu_device(&end.path)
    );
    let mtu = match end.transport_mtu {
        TRANSPORT_MTU => String::new(),
        bytes => format!(" transport_mtu={bytes}"),
    };
    let _ = write!(
        text,
        "In the guest:\n\
         modprobe ntb_hw_epf; modprobe ntb_transport max_num_clients={queues}{mtu}; \
         modprobe ntb_netdev\n\
         ethtool -L eth0 combined {queues}\n"
    );
    if end.window > WINDOW_PLAIN {
        let need = u64::from(end.window) * u64::from(end.windows) * 2;
        let _ = writeln!(text, "Kernel command line of the guest: cma={}M", need >> 20);
    }
    text
}

/// Options of a backend program according to QEMU (docs/interop/vhost-user.rst).
#[derive(Args, Debug)]
pub struct BackendArgs {
    /// Path of the socket to listen on.
    #[arg(long, value_name = "PATH", conflicts_with = "fd",
          required_unless_present_any = ["fd", "print_capabilities"])]
    socket_path: Option<String>,
    /// Number of an inherited socket descriptor.
    #[arg(long, value_name = "FDNUM")]
    fd: Option<i32>,
    /// Print the capabilities of this program as JSON and exit.
    #[arg(long)]
    print_capabilities: bool,
    #[command(flatten)]
    access: AccessArgs,
    /// Second endpoint of the link, such as tap:vm0.
    #[arg(long = "link", value_name = "ENDPOINT", default_value = "tap:vm%d")]
    other: String,
}

impl BackendArgs {
    /// Returns the link, or `None` after the requested capabilities were printed.
    pub fn link(&self) -> Result<Option<LinkArgs>, Failure> {
        if self.print_capabilities {
            println!("{{\"type\": \"net\"}}");
            return Ok(None);
        }
        let card = match (&self.socket_path, self.fd) {
            (_, Some(fd)) => format!("vhost-user:,fd={fd}"),
            (path, None) => format!("vhost-user:{}", path.as_deref().unwrap_or_default()),
        } + &self.access.options();
        LinkArgs::of(&self.other, &card).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use mqnet_address::{Endpoint, parse};

    use super::*;

    fn text(address: &str, channels: Option<u16>) -> Option<String> {
        let Ok(Endpoint::VhostUser(card)) = parse(address) else { panic!("{address}") };
        flags(&card, channels)
    }

    // Goal: QEMU options count queue pairs, cloud-hypervisor options count rings, and the VMM has
    // the opposite role (client or server) of the endpoint.
    #[test]
    fn flags_fit_the_card() {
        let plain = text("vhost-user:/run/vm0.sock", Some(8)).unwrap();
        for words in ["queues=8", "vectors=18,packed=on", "num_queues=16", "vhost_mode=client"] {
            assert!(plain.contains(words), "{words}: {plain}");
        }
        let odd = "vhost-user:/x,connect,packed=off,queues=2,mtu=9000,mac=02:00:00:00:00:01";
        let odd = text(odd, Some(8)).unwrap();
        for words in ["server=on,wait=off", "vectors=6,mac=02:00:00:00:00:01,host_mtu=9000"] {
            assert!(odd.contains(words), "{words}: {odd}");
        }
        assert!(odd.contains("num_queues=4,vhost_mode=server,mac=02:00:00:00:00:01,mtu=9000\n"));
        assert_eq!(text("vhost-user:,fd=7", None), None);
    }
}
