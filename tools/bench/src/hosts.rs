//! Network namespaces that stand for hosts, and the commands that furnish them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Result;
use super::child;

/// Names of our namespaces: this, the process, a number, the contender, the side.
const PREFIX: &str = "mqnet-bench-";

/// A network namespace, removed when dropped.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
}

impl Host {
    /// Makes one; the name says whose it is.
    pub(super) fn create(who: &str, side: &str) -> Result<Self> {
        // A run may have two worlds of one kind.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{who}-{side}", std::process::id());
        ip(&["netns", "add", &name])?;
        let host = Self { name };
        host.ip(&["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// An `ip` command about this host.
    pub(super) fn ip(&self, args: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.name], args].concat())
    }

    /// Gives a device its address.
    pub(super) fn set_up(&self, device: &str, address: &str) -> Result<()> {
        self.ip(&["address", "add", address, "dev", device])?;
        self.ip(&["link", "set", "dev", device, "mtu", "1500", "up"])
    }

    /// How the next streams of this host are held back: a congestion control's name. An error where
    /// the kernel has none of this name, or does not let a network namespace choose it.
    pub(super) fn control(&self, name: &str) -> Result<()> {
        let script = format!("echo {name} >/proc/sys/net/ipv4/tcp_congestion_control");
        ip(&["netns", "exec", &self.name, "sh", "-c", &script])
            .map_err(|error| format!("no congestion control {name} here: {error}").into())
    }

    /// A command that will run here and ends when this thread does.
    pub(super) fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = child::guarded("ip")?;
        command.args(["netns", "exec", &self.name]).args(words);
        Ok(command)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It lacks only what somebody else has removed.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Removes the namespaces of benchmarks that were killed.
pub(super) fn remove_orphans() {
    let Ok(folder) = std::fs::read_dir("/run/netns") else { return };
    for entry in folder.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another benchmark may do the same at this moment.
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

/// An `ip` command.
pub(super) fn ip(args: &[&str]) -> Result<()> {
    run_short("ip", args)
}
