//! How frames are moved by system calls.

use std::str::FromStr;

/// How frames are written to a queue that borrows memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Many in one system call where the kernel lets us, otherwise one by one.
    #[default]
    Auto,
    /// Many in one system call (io_uring), or not at all.
    Uring,
    /// One by one.
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
