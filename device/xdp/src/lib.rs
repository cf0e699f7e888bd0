//! XDP: programs that decide what happens to each frame that arrives.
//!
//! [`elf`] loads what clang makes, `verify` proves that it stays inside its memory and ends, and
//! a [`Program`] runs it.

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
pub mod wrap;

pub use elf::{LoadError, Object, Selector};
pub use insn::Insn;
pub use map::{Map, MapDef, MapError, MapKind};
pub use run::{Action, HEADROOM, Mode, Origin, Program, ProgramError, Verdict};
pub use verify::Refused;
