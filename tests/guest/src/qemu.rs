//! The command line of QEMU, and whether the host's processor can help it.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::store::Store;
use crate::tools::Tools;

/// `$MQNET_GUEST_ACCEL`: `kvm` or `tcg`.
const CHOICE: &str = "MQNET_GUEST_ACCEL";
const DEVICE: &str = "/dev/kvm";

/// Kernel arguments: no messages but ours, a panic ends the guest, and none of the work that
/// protects a real machine or corrects its clock. On a busy host the timer comes too late for its
/// check, and with interrupt remapping that is a panic.
const APPEND: &str = "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr \
                      tsc=unstable random.trust_cpu=on no_timer_check";

/// How the guest's instructions are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    Kvm,
    /// Software emulation.
    Tcg,
}

impl Accel {
    /// The one to use, and whether it is known to work.
    pub(crate) fn choose(store: &Store) -> Result<(Self, bool)> {
        match std::env::var(CHOICE).ok().as_deref() {
            Some("kvm") => return Ok((Self::Kvm, true)),
            Some("tcg") => return Ok((Self::Tcg, true)),
            Some(other) => return Err(format!("{CHOICE}={other}: kvm and tcg are known").into()),
            None => {}
        }
        if File::options().read(true).write(true).open(DEVICE).is_err() {
            return Ok((Self::Tcg, true));
        }
        // That the device opens does not tell that guests run: nested hosts lack instructions.
        let tried = fs::read_to_string(store.path("accel")).unwrap_or_default();
        match tried.strip_prefix(&host()).map(str::trim) {
            Some("kvm") => Ok((Self::Kvm, true)),
            Some("tcg") => Ok((Self::Tcg, true)),
            _ => Ok((Self::Kvm, false)),
        }
    }

    /// Remembers whether it works on this host.
    pub(crate) fn remember(self, store: &Store) -> Result<()> {
        let name = if self == Self::Kvm { "kvm" } else { "tcg" };
        Ok(fs::write(store.path("accel"), format!("{} {name}\n", host()))?)
    }
}

fn host() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// What a guest is made of.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) accel: Accel,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) image: &'a Path,
    pub(crate) initrd: &'a Path,
    /// More arguments of the kernel.
    pub(crate) words: &'a str,
    pub(crate) more: &'a [String],
    /// Where it lives.
    pub(crate) netns: Option<&'a str>,
}

impl Machine<'_> {
    /// QEMU with the first serial port as `console` says, and the second in the file `results`.
    pub(crate) fn command(&self, tools: &Tools, console: &str, results: &Path) -> Command {
        let plain = tools.command("bin/qemu-system-x86_64");
        // Whoever kills us shall not leave a guest behind.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "--"]);
        if let Some(name) = self.netns {
            qemu.args(["ip", "netns", "exec", name]);
        }
        qemu.arg(plain.get_program()).args(plain.get_args());
        for data in ["share/qemu", "share/seabios", "lib/ipxe/qemu"] {
            qemu.arg("-L").arg(tools.file(data));
        }
        let (accel, cpu) = match self.accel {
            Accel::Kvm => ("kvm", "host"),
            Accel::Tcg => ("tcg,thread=multi", "max"),
        };
        qemu.args(["-machine", "q35", "-accel", accel, "-cpu", cpu]);
        qemu.args(["-smp", &self.cpus.to_string(), "-m", &self.memory_mib.to_string()]);
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        qemu.args(["-append", &format!("{APPEND} {}", self.words)]);
        qemu.arg("-kernel").arg(self.image).arg("-initrd").arg(self.initrd);
        qemu.args(["-serial", console, "-serial", &format!("file:{}", results.display())]);
        qemu.args(self.more);
        qemu
    }
}
