//! eBPF programs for XDP: loader, verifier, maps and execution.
//!
//! [`elf`] loads objects of clang, `verify` proves that a program stays inside its memory and
//! terminates, and a [`Program`] runs it on frames in memory.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod elf;
mod error;
pub mod fuzzing;
mod helper;
mod inline;
mod insn;
mod map;
mod mode;
mod rewrite;
mod run;
mod verify;

pub use elf::{ObjectProgram, Selector};
pub use error::LoadError;
pub use insn::Insn;
pub use map::{Map, MapDef, MapError, MapKind};
pub use mode::ExecutionMode;
pub use run::{HEADROOM, Origin, Program, ProgramError, Verdict, XdpAction};
pub use verify::VerifyError;
