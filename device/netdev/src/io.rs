//! Choice of system calls that move frames.

use std::str::FromStr;

/// System calls that write frames to a queue that borrows memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Many frames per system call where the kernel supports it, otherwise one.
    #[default]
    Auto,
    /// Many frames per system call (io_uring), or failure.
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
