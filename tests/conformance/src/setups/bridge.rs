//! Bridges over memory files or ivshmem, and groups of bridges.

use std::path::PathBuf;
use std::time::Duration;

use mqnet_group::OnLoss;
use mqnet_netdev::Function;
use mqnet_ntb::{
    DeviceLocation, IvshmemConfig, IvshmemServer, NtbConfig, NtbFunction, ServerConfig,
};

use super::plain::group;
use super::{Loss, Setup};
use crate::rigs::Folder;

/// Hardware that joins the two ends of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// Memory files that the ends exchange over a socket.
    Memfd,
    /// Memory and doorbells of an ivshmem server.
    Ivshmem,
}

/// Two ends of one bridge, or two groups joined by two bridges.
pub struct Bridge {
    hardware: Hardware,
    window: u32,
    /// Reaction of the groups to the loss of a bridge; `None` for a single bridge.
    members: Option<OnLoss>,
    servers: Vec<IvshmemServer>,
    seed: u64,
    folder: Folder,
}

impl Bridge {
    /// Creates a bridge with windows of `window` bytes.
    pub fn new(hardware: Hardware, window: u32) -> Self {
        let (members, servers) = (None, Vec::new());
        let mut bridge =
            Self { hardware, window, members, servers, seed: 0, folder: Folder::new() };
        bridge.plug();
        bridge
    }

    /// Creates two groups joined by two bridges.
    pub fn groups(hardware: Hardware, on_loss: OnLoss) -> Self {
        let mut bridge = Self { members: Some(on_loss), ..Self::new(hardware, 2 << 20) };
        bridge.plug();
        bridge
    }

    fn path(&self, member: usize) -> PathBuf {
        self.folder.0.join(format!("{member}.sock"))
    }

    fn function(&mut self, member: usize) -> Box<dyn Function> {
        self.seed += 1;
        let (path, seed) = (self.path(member), self.seed);
        Box::new(match self.hardware {
            Hardware::Memfd => {
                NtbFunction::memfd(&NtbConfig { path, window: self.window, mtu: None }, seed)
            }
            Hardware::Ivshmem => {
                let config = IvshmemConfig { place: DeviceLocation::Socket(path), side: None };
                NtbFunction::ivshmem(config, None, seed)
            }
        })
    }

    fn count(&self) -> usize {
        if self.members.is_some() { 2 } else { 1 }
    }
}

impl Setup for Bridge {
    fn name(&self) -> String {
        match self.members {
            None => format!("ntb ({:?})", self.hardware),
            Some(on_loss) => format!("group of ntb ({:?}, {on_loss:?})", self.hardware),
        }
    }

    fn rig_name(&self) -> &'static str {
        "ntb"
    }

    fn make(&mut self, _end: usize) -> Box<dyn Function> {
        let mut functions: Vec<_> = (0..self.count()).map(|at| self.function(at)).collect();
        match self.members {
            None => functions.remove(0),
            Some(on_loss) => group(functions, on_loss, self.seed),
        }
    }

    fn channels(&self) -> std::ops::RangeInclusive<u16> {
        self.count() as u16..=4
    }

    fn notices(&self, _end: usize, _loss: Loss) -> bool {
        true
    }

    fn turn(&mut self, now: Duration) {
        for server in &mut self.servers {
            server.turn(now);
        }
    }

    fn unplug(&mut self) -> Vec<usize> {
        if self.servers.is_empty() {
            return Vec::new();
        }
        self.servers.clear();
        vec![0, 1]
    }

    fn plug(&mut self) {
        if self.hardware == Hardware::Memfd {
            return;
        }
        self.servers.clear();
        for member in 0..self.count() {
            let size = u64::from(self.window) * 2;
            let config = ServerConfig { path: self.path(member), size, vectors: 65 };
            self.servers.push(IvshmemServer::new(config).expect("a server"));
        }
    }
}
