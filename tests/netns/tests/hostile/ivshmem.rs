//! Hostile server of an ivshmem device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mqnet_sysio::memory::memory_file;
use mqnet_sysio::poll;
use mqnet_sysio::socket::StreamSocket;

/// Attack of a server on its clients.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attack {
    /// Accepts and sends nothing.
    Silence,
    /// Sends half of the first message.
    Half,
    /// Sends a memory file that does not answer.
    Memory,
    /// Sends full and blocking eventfds of the client and of another member.
    Events,
    /// Sends memory smaller than the smallest device.
    Short,
}

pub(super) const ATTACKS: [Attack; 5] =
    [Attack::Silence, Attack::Half, Attack::Memory, Attack::Events, Attack::Short];

/// Listening socket, and the attack on its clients.
pub(super) struct Server {
    socket: StreamSocket,
    attack: Attack,
}

impl Server {
    pub(super) fn listen(path: &Path, attack: Attack) -> Self {
        Self { socket: StreamSocket::listen(path).expect("a listener"), attack }
    }

    /// Attacks a client that connects within 20 ms; returns its connection, or `None` if no client
    /// connects.
    pub(super) fn serve(
        &self,
        dead: BorrowedFd<'_>,
        event: impl Fn() -> OwnedFd,
    ) -> Option<StreamSocket> {
        let _ = poll::wait_readable(&[self.socket.as_fd()], Duration::from_millis(20));
        let client = self.socket.accept().ok()??;
        let send = |number: i64, fd: Option<BorrowedFd<'_>>| {
            // Sending fails if the client has closed the connection after an earlier message.
            let _ = client.send(&number.to_le_bytes(), fd.as_slice());
        };
        match self.attack {
            Attack::Silence => {}
            Attack::Half => drop(client.send(&[0; 3], &[])),
            Attack::Memory => {
                send(0, None);
                send(1, None);
                send(-1, Some(dead));
            }
            Attack::Events => {
                let memory = memory_file("ivshmem", 16 << 20, false).expect("memory");
                send(0, None);
                send(1, None);
                send(-1, Some(memory.as_fd()));
                for member in [1, 2] {
                    (0..9).for_each(|_| send(member, Some(event().as_fd())));
                }
            }
            Attack::Short => {
                let memory = memory_file("ivshmem", 4096, false).expect("memory");
                send(0, None);
                send(1, None);
                send(-1, Some(memory.as_fd()));
            }
        }
        Some(client)
    }
}
