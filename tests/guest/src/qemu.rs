//! Command line of QEMU, and selection of the accelerator.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::store::Store;
use crate::tools::Tools;

/// Variable that selects the accelerator: `kvm` or `tcg`.
const CHOICE: &str = "MQNET_GUEST_ACCEL";
const DEVICE: &str = "/dev/kvm";

/// Kernel arguments: no kernel messages, a panic ends the guest, no mitigations, and no checks of
/// timer and TSC. On a busy host the timer interrupt is late, and `check_timer()` panics if
/// interrupts are remapped; `no_timer_check` disables this check.
const APPEND: &str = "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr \
                      tsc=unstable random.trust_cpu=on no_timer_check";

/// Accelerator of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    Kvm,
    /// Software emulation.
    Tcg,
}

impl Accel {
    /// Returns the accelerator to use, and true if the user chose it or a guest has run with it
    /// before.
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
        // Opening `/dev/kvm` does not prove that guests run: nested KVM may lack instructions. KVM
        // is therefore tried once per host kernel.
        let tried = fs::read_to_string(store.path("accel")).unwrap_or_default();
        match tried.strip_prefix(&host()).map(str::trim) {
            Some("kvm") => Ok((Self::Kvm, true)),
            Some("tcg") => Ok((Self::Tcg, true)),
            _ => Ok((Self::Kvm, false)),
        }
    }

    /// Stores this accelerator as the working one for the host.
    pub(crate) fn remember(self, store: &Store) -> Result<()> {
        let name = if self == Self::Kvm { "kvm" } else { "tcg" };
        Ok(fs::write(store.path("accel"), format!("{} {name}\n", host()))?)
    }
}

fn host() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Configuration of a virtual machine.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) accel: Accel,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) image: &'a Path,
    pub(crate) initrd: &'a Path,
    /// Additional kernel arguments.
    pub(crate) words: &'a str,
    pub(crate) more: &'a [String],
    /// Network namespace of QEMU.
    pub(crate) netns: Option<&'a str>,
}

impl Machine<'_> {
    /// Command line of QEMU. The first serial port is `console`, and the second writes to the file
    /// `results`.
    pub(crate) fn command(&self, tools: &Tools, console: &str, results: &Path) -> Command {
        let plain = tools.command("bin/qemu-system-x86_64");
        // The guest ends with its parent, even if the parent is killed.
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
