//! Execution of programs.

#[cfg(target_arch = "x86_64")]
mod compiled;
mod context;
mod raw;

use std::sync::Arc;

use crate::elf::{ObjectProgram, Selector};
use crate::error::LoadError;
use crate::map::Map;
use crate::mode::ExecutionMode;
use crate::rewrite::rewrite;
use crate::verify::{VerifyError, verify};
use raw::Code;

/// Headroom of a frame in bytes, for headers that a program prepends.
pub const HEADROOM: usize = 256;

/// Reason why a program cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The object file or its maps are invalid or not supported.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The verifier rejected the program.
    #[error(transparent)]
    Refused(#[from] VerifyError),
    /// The runtime cannot execute the program.
    #[error("{0}")]
    Runtime(String),
}

/// Action of a program on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAction {
    /// The program failed, returned `XDP_ABORTED` or an unknown action, or redirected to no netdev.
    Aborted,
    /// Drop the frame.
    Drop,
    /// Pass the frame to the sink of the lane.
    Pass,
    /// Send the frame back to its source netdev.
    Tx,
    /// Send the frame to the netdev with this number.
    Redirect(u32),
}

/// Result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Action on the frame.
    pub action: XdpAction,
    /// New start of the frame in its page.
    pub start: usize,
    /// New length of the frame.
    pub len: usize,
}

/// Origin of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Number of the netdev.
    pub ifindex: u32,
    /// Channel of the netdev.
    pub channel: u16,
    /// Monotonic clock in nanoseconds, for `bpf_ktime_get_ns`.
    pub clock: fn() -> u64,
}

impl Default for Origin {
    fn default() -> Self {
        Self { ifindex: 0, channel: 0, clock: || 0 }
    }
}

/// Verified program with its maps.
#[derive(Debug)]
pub struct Program {
    name: String,
    section: String,
    insns: usize,
    walked: u32,
    mode: ExecutionMode,
    // Declare the code before the maps, so that the code is dropped first: it contains addresses of
    // the maps.
    code: Code,
    maps: Box<[Map]>,
}

impl Program {
    /// Loads a program from an object file, verifies it, and prepares it for `channels` channels.
    pub fn load(
        bytes: &[u8],
        which: Selector<'_>,
        mode: ExecutionMode,
        channels: u16,
    ) -> Result<Arc<Self>, ProgramError> {
        Self::new(ObjectProgram::load(bytes, which)?, mode, channels)
    }

    /// Verifies and prepares a program of a loaded object.
    pub fn new(
        object: ObjectProgram,
        mode: ExecutionMode,
        channels: u16,
    ) -> Result<Arc<Self>, ProgramError> {
        let ObjectProgram { name, section, insns, maps } = object;
        let proof = verify(&insns, &maps)?;
        let maps = Map::all(maps, channels)?;
        let code = rewrite(&insns, &proof, &maps, mode).map_err(ProgramError::Runtime)?;
        let code = Code::new(&code, &maps, mode).map_err(ProgramError::Runtime)?;
        let (insns, walked) = (insns.len(), proof.walked);
        Ok(Arc::new(Self { name, section, insns, walked, mode, code, maps }))
    }

    /// Name of the function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Section in the object file.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// True if the program accepts GSO frames unsegmented (section `xdp.frags` of libbpf).
    pub fn takes_large(&self) -> bool {
        self.section == "xdp.frags" || self.section.starts_with("xdp.frags/")
    }

    /// Number of instructions.
    pub fn insns(&self) -> usize {
        self.insns
    }

    /// Number of instructions that the verifier walked.
    pub fn walked(&self) -> u32 {
        self.walked
    }

    /// Execution mode.
    pub fn mode(&self) -> ExecutionMode {
        self.mode
    }

    /// Maps of the program.
    pub fn maps(&self) -> &[Map] {
        &self.maps
    }

    /// Runs the program on the frame of `len` bytes at `start` of `page`. The program may extend
    /// the frame to the whole page. Panics if the frame is not inside the page.
    #[inline]
    pub fn run(&self, page: &mut [u8], start: usize, len: usize, from: Origin) -> Verdict {
        self.code.run(&self.maps, page, start, len, from)
    }
}

#[cfg(test)]
mod tests;
