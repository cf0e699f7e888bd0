//! mqnet links on the host between virtio-net devices of a guest, and emulated NTB endpoints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::Guest;
use crate::{Result, programs};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Device options that offer no receive offloads, and an MTU for large frames.
const FINISHED: &str = ",guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,\
                        guest_uso4=off,guest_uso6=off,host_mtu=9000";

/// Running links, ended on drop. Device *i* has the address 02:00:00:00:05:0*i*. The devices 2*i*
/// and 2*i* + 1 are the ends of a link.
pub(crate) struct Cards {
    links: Vec<Child>,
    folder: PathBuf,
    /// Number of queue pairs per device.
    pairs: u32,
    count: u32,
}

impl Cards {
    /// Starts the links for `count` devices, an even number.
    pub(crate) fn start(name: &str, count: u32, pairs: u32) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("mqnet-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut cards = Self { links: Vec::new(), folder, pairs, count };
        for card in (0..count).step_by(2) {
            let link = cards.link(card)?;
            cards.links.push(link);
        }
        let deadline = Instant::now() + PATIENCE;
        while !(0..count).all(|card| socket(&cards.folder, card).exists()) {
            if Instant::now() > deadline || cards.any_has_ended()? {
                let output = fs::read_to_string(cards.folder.join("log")).unwrap_or_default();
                return Err(format!("the host's links of the cards did not start: {output}").into());
            }
            sleep(POLL);
        }
        Ok(cards)
    }

    fn link(&self, card: u32) -> Result<Child> {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = Command::new(programs::program("mqnet"));
        command.args(["link", "--json", "--control-socket", "none"]);
        command.args([card, card + 1].map(|card| {
            let path = socket(&self.folder, card);
            format!("vhost-user:{}", path.display())
        }));
        command.args(["--channels", &self.pairs.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command.spawn().map_err(|e| format!("{command:?}: {e}"))?)
    }

    fn any_has_ended(&mut self) -> Result<bool> {
        for link in &mut self.links {
            if link.try_wait()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds all devices to a guest with `memory_mib` of memory, which is shared with the host. The
    /// devices in `plain` do not offer receive offloads: QEMU does not forward a later change by
    /// the driver to the back end.
    pub(crate) fn put_into(&self, guest: Guest, memory_mib: u32, plain: &[u32]) -> Guest {
        let memory = format!("memory-backend-memfd,id=mem,size={memory_mib}M,share=on");
        let guest = guest.memory(memory_mib);
        let guest = guest.qemu(&["-machine", "memory-backend=mem", "-object", &memory]);
        (0..self.count).fold(guest, |guest, card| {
            let path = socket(&self.folder, card);
            let chardev = format!("socket,id=c{card},path={},reconnect-ms=200", path.display());
            let netdev = format!("vhost-user,id=n{card},chardev=c{card},queues={}", self.pairs);
            let vectors = 2 * self.pairs + 2;
            let finished = if plain.contains(&card) { FINISHED } else { "" };
            let device = format!(
                "virtio-net-pci,netdev=n{card},mq=on,vectors={vectors},\
                 mac=02:00:00:00:05:0{card}{finished}"
            );
            guest.qemu(&["-chardev", &chardev, "-netdev", &netdev, "-device", &device])
        })
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        for link in &mut self.links {
            // Each call fails only if its object is already gone.
            let _ = link.kill();
            let _ = link.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Emulated NTB endpoint. The other netdev of its link on the host discards all frames.
pub(crate) struct Endpoint {
    link: Child,
    socket: PathBuf,
}

impl Endpoint {
    /// Starts an endpoint with `pairs` queue pairs.
    pub(crate) fn start(name: &str, pairs: u32) -> Result<Self> {
        let file = format!("mqnet-{name}-{}.ntb", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let mut command = Command::new(programs::program("mqnet"));
        command.args(["link", "--json", "--control-socket", "none", "null:"]);
        command.arg(format!("ntb:vfio-user={},queues={pairs}", socket.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let link = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let mut endpoint = Self { link, socket };
        let deadline = Instant::now() + PATIENCE;
        while !endpoint.socket.exists() {
            if Instant::now() > deadline || endpoint.link.try_wait()?.is_some() {
                return Err("the host's end of the NTB endpoint did not start".into());
            }
            sleep(POLL);
        }
        Ok(endpoint)
    }

    /// Adds the endpoint and the kernel's NTB drivers to a guest.
    pub(crate) fn put_into(&self, guest: Guest) -> Guest {
        let device = format!(
            "{{\"driver\":\"vfio-user-pci\",\"rombar\":0,\"socket\":{{\"type\":\"unix\",\
             \"path\":\"{}\"}}}}",
            self.socket.display()
        );
        guest.with_ntb().qemu(&["-device", &device])
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Each call fails only if its object is already gone.
        let _ = self.link.kill();
        let _ = self.link.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

fn socket(folder: &Path, card: u32) -> PathBuf {
    folder.join(format!("card{card}"))
}
