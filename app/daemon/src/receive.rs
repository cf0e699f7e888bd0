//! Process that receives the descriptors of peers: see [`mqnet_sysio::broker`].

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use mqnet_command::Failure;
use mqnet_sysio::{broker, process, seccomp};

use crate::args::SandboxArgs;
use crate::privileges;

/// Makes peers' messages go to a separate process, which the first message starts.
pub(crate) fn enable() {
    broker::enable(start);
}

fn start(socket: OwnedFd) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    // The receiver ends with this process. The separate process group keeps terminal signals away
    // from the receiver. Null outputs keep no pipe of the parent open.
    command.arg0("mqnet").arg("receive-descriptors").stdin(Stdio::from(socket));
    if !seccomp::is_restricted() {
        command.arg("--no-seccomp");
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn()?;
    let reap = move || {
        // This thread of the parent only waits for the receiver and needs no privilege.
        let _ = process::drop_capabilities(&[]);
        child.wait()
    };
    std::thread::Builder::new().name("mqnet-reaper".to_owned()).spawn(reap)?;
    Ok(())
}

/// Runs the receiver process.
pub fn run(sandbox: &SandboxArgs) -> Result<(), Failure> {
    privileges::restrict_receiver(sandbox)?;
    // The process was executed with another name.
    process::set_name(c"mqnet-receive")?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(broker::serve(socket)?)
}
