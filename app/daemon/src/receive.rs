//! The process that receives descriptors of peers: see [`mqnet_sysio::broker`].

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use mqnet_command::Failure;
use mqnet_sysio::{broker, process, seccomp};

use crate::args::SandboxArgs;
use crate::privileges;

/// Has peers' messages received by a process of its own, from the first one on.
pub(crate) fn enable() {
    broker::enable(start);
}

fn start(socket: OwnedFd) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    // It ends with this process: keys of the terminal do not reach it, and it does not keep open
    // what others read until its end.
    command.arg0("mqnet").arg("receive-descriptors").stdin(Stdio::from(socket));
    if !seccomp::is_restricted() {
        command.arg("--no-seccomp");
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    let reap = move || {
        // It waits, and needs no privilege for that.
        let _ = process::drop_capabilities(&[]);
        child.wait()
    };
    std::thread::Builder::new().name("mqnet-reaper".to_owned()).spawn(reap)?;
    Ok(())
}

/// Runs the process.
pub fn run(sandbox: &SandboxArgs) -> Result<(), Failure> {
    privileges::restrict_receiver(sandbox)?;
    // It was executed by a link with another name.
    process::set_name(c"mqnet-receive")?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(broker::serve(socket)?)
}
