//! Programs that run.

#[cfg(target_arch = "x86_64")]
mod compiled;
mod raw;

use std::sync::Arc;

use crate::elf::{LoadError, Object, Selector};
use crate::map::Map;
use crate::rewrite::rewrite;
use crate::verify::{Refused, verify};
use raw::Code;

/// Room in front of a frame, for headers that a program puts there.
pub const HEADROOM: usize = 256;

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As machine code.
    Jit,
    /// Instruction by instruction, and each access is checked once more.
    Interpret,
}

impl Mode {
    /// The best that there is on this machine.
    pub const BEST: Self = if cfg!(target_arch = "x86_64") { Self::Jit } else { Self::Interpret };

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jit => "jit",
            Self::Interpret => "interpreter",
        }
    }
}

/// Why there is no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The file is not as it should be.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It is not proven to be harmless.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The runtime cannot run it.
    #[error("{0}")]
    Runtime(String),
}

/// What a program decided about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It failed, or said so.
    Aborted,
    /// Away with it.
    Drop,
    /// On it goes.
    Pass,
    /// Back to where it came from.
    Tx,
    /// To the netdev with this number.
    Redirect(u32),
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is to be done.
    pub action: Action,
    /// Where in its page it begins now.
    pub start: usize,
    /// Its length now.
    pub len: usize,
}

/// Where a frame was received.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Number of the netdev.
    pub ifindex: u32,
    /// The channel.
    pub channel: u16,
    /// Nanoseconds since some start, for programs that ask.
    pub clock: fn() -> u64,
}

impl Default for Origin {
    fn default() -> Self {
        Self { ifindex: 0, channel: 0, clock: || 0 }
    }
}

/// A program that may run, with its maps.
#[derive(Debug)]
pub struct Program {
    name: String,
    section: String,
    insns: usize,
    walked: u32,
    mode: Mode,
    // Before the maps: it has their addresses.
    code: Code,
    maps: Box<[Map]>,
}

impl Program {
    /// Loads a program from an object file, proves that it is harmless, and prepares it for
    /// `channels` channels.
    pub fn load(
        bytes: &[u8],
        which: Selector<'_>,
        mode: Mode,
        channels: u16,
    ) -> Result<Arc<Self>, ProgramError> {
        Self::new(Object::load(bytes, which)?, mode, channels)
    }

    /// The same from an object that was loaded.
    pub fn new(object: Object, mode: Mode, channels: u16) -> Result<Arc<Self>, ProgramError> {
        let Object { name, section, insns, maps } = object;
        let proof = verify(&insns, &maps)?;
        let maps = Map::all(maps, channels)?;
        let code = rewrite(&insns, &proof, &maps, mode).map_err(ProgramError::Runtime)?;
        let code = Code::new(&code, &maps, mode).map_err(ProgramError::Runtime)?;
        let (insns, walked) = (insns.len(), proof.walked);
        Ok(Arc::new(Self { name, section, insns, walked, mode, code, maps }))
    }

    /// Name of its function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Section of its file.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// True for a program that takes large frames whole, as libbpf has it: `xdp.frags`.
    pub fn takes_large(&self) -> bool {
        self.section == "xdp.frags" || self.section.starts_with("xdp.frags/")
    }

    /// How many instructions it has.
    pub fn insns(&self) -> usize {
        self.insns
    }

    /// How many were walked to prove that it is harmless.
    pub fn walked(&self) -> u32 {
        self.walked
    }

    /// How it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its maps.
    pub fn maps(&self) -> &[Map] {
        &self.maps
    }

    /// Runs it on the frame of `len` bytes at `start` in `page`, all of which it may use.
    #[inline]
    pub fn run(&self, page: &mut [u8], start: usize, len: usize, from: Origin) -> Verdict {
        self.code.run(&self.maps, page, start, len, from)
    }
}

#[cfg(test)]
mod tests;
