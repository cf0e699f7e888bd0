//! Choice of system calls that move frames.

use std::str::FromStr;

/// System calls with which a system-call TX queue sends frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Many frames per system call if the kernel supports io_uring, otherwise one.
    #[default]
    Auto,
    /// Many frames per system call (io_uring); fails if not supported.
    Uring,
    /// One frame per system call.
    Plain,
}

impl FromStr for Io {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "plain" => Ok(Self::Plain),
            _ => Err("must be auto, uring or plain"),
        }
    }
}
