//! Network namespaces that act as hosts, and the commands that configure them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Result;
use super::child;

/// Prefix of namespace names, followed by process id, number, contender and end.
const PREFIX: &str = "mqnet-bench-";

/// Network namespace, removed when dropped.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
}

impl Host {
    /// Creates a namespace. Its name contains the contender and the end of the link.
    pub(super) fn create(who: &str, side: &str) -> Result<Self> {
        // The number distinguishes two hosts with the same contender and end.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{who}-{side}", std::process::id());
        ip(&["netns", "add", &name])?;
        let host = Self { name };
        host.ip(&["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// Runs an `ip` command in this namespace.
    pub(super) fn ip(&self, args: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.name], args].concat())
    }

    /// Assigns an address to a device and sets the device up.
    pub(super) fn set_up(&self, device: &str, address: &str) -> Result<()> {
        self.ip(&["address", "add", address, "dev", device])?;
        self.ip(&["link", "set", "dev", device, "mtu", "1500", "up"])
    }

    /// Sets the congestion control of later streams of this host. Fails if the kernel lacks the
    /// algorithm or does not allow it in a network namespace.
    pub(super) fn control(&self, name: &str) -> Result<()> {
        let script = format!("echo {name} >/proc/sys/net/ipv4/tcp_congestion_control");
        ip(&["netns", "exec", &self.name, "sh", "-c", &script])
            .map_err(|error| format!("no congestion control {name} here: {error}").into())
    }

    /// Command that runs in this namespace. The process ends with this thread.
    pub(super) fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = child::guarded("ip")?;
        command.args(["netns", "exec", &self.name]).args(words);
        Ok(command)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Deletion fails only if another process has removed the namespace.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Removes the namespaces of killed benchmarks.
pub(super) fn remove_orphans() {
    let Ok(folder) = std::fs::read_dir("/run/netns") else { return };
    for entry in folder.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another benchmark may remove the same namespace at the same time.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

/// Runs a short command.
pub(super) fn run_short(program: &str, args: &[&str]) -> Result<()> {
    let run = Command::new(program).args(args).stdin(Stdio::null()).output();
    let done = run.map_err(|error| format!("cannot run {program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let why = child::last_lines(&String::from_utf8_lossy(&done.stderr));
    Err(format!("{program} {} failed: {why}", args.join(" ")).into())
}

/// Runs an `ip` command.
pub(super) fn ip(args: &[&str]) -> Result<()> {
    run_short("ip", args)
}
