//! `cargo xtask guest`: a virtual machine with the kernel of one's choice and mqnet in it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use mqnet_guest::{Guest, Kernel, Store};

use crate::Result;

/// Boots a guest: a shell, or a command that runs in it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Its kernel: 6.1, 6.12 or 7.3
    #[arg(long, default_value_t = Kernel::V6_1)]
    kernel: Kernel,
    /// Number of its CPUs
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Its memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Seconds that a command may take, with the boot
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Get the newest packages first
    #[arg(long)]
    update: bool,
    /// Command to run in it, with words as a shell sees them (an interactive shell when missing)
    #[arg(last = true)]
    command: Vec<String>,
}

/// The status is that of the command.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.update {
        Store::open()?.forget()?;
    }
    mqnet_guest::build()?;
    let guest = Guest::new(arguments.kernel, "xtask")
        .cpus(arguments.cpus)
        .memory(arguments.memory)
        .limit(Duration::from_secs(arguments.limit));
    if arguments.command.is_empty() {
        return mqnet_guest::shell(guest);
    }
    let outcome = guest.script("command", &arguments.command.join(" ")).stream().run()?;
    let status = outcome.done.get("command").map_or(1, |done| done.status);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}
