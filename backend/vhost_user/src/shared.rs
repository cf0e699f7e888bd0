//! Faults that both halves of a queue pair report.

use std::io;

use mqnet_netdev::Fault;

#[cold]
pub(crate) fn watching(channel: u16, error: &io::Error) -> Fault {
    Fault { channel, what: format!("watching a guest's kicks: {error}") }
}

#[cold]
pub(crate) fn interrupting(channel: u16, error: &io::Error) -> Fault {
    Fault { channel, what: format!("interrupting the guest: {error}") }
}
