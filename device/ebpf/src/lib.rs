//! eBPF programs for XDP: loader, verifier, maps and execution.
//!
//! [`elf`] loads objects of clang, `verify` proves that a program stays inside its memory and
//! terminates, and a [`Program`] runs it on frames in memory.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod elf;
pub mod fuzzing;
mod helper;
mod inline;
mod insn;
mod map;
mod rewrite;
mod run;
mod verify;

pub use elf::{LoadError, Object, Selector};
pub use insn::Insn;
pub use map::{Map, MapDef, MapError, MapKind};
pub use run::{Action, HEADROOM, Mode, Origin, Program, ProgramError, Verdict};
pub use verify::Refused;
