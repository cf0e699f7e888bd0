//! Descriptors that have run out, with what helps.

use std::fmt;
use std::io;

/// No descriptor was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfDescriptors {
    /// To this process (`EMFILE`).
    Process,
    /// To the whole system (`ENFILE`).
    System,
}

impl fmt::Display for OutOfDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => {
                "Too many open files (os error 24): raise the limit: ulimit -n, or LimitNOFILE= in \
                 a systemd unit"
            }
            Self::System => {
                "Too many open files in system (os error 23): raise the limit: sysctl fs.file-max"
            }
        })
    }
}

impl std::error::Error for OutOfDescriptors {}

/// The same error; one that says that descriptors have run out says what helps.
pub fn explained(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    match error.raw_os_error() {
        Some(libc::EMFILE) => io::Error::other(OutOfDescriptors::Process),
        Some(libc::ENFILE) => io::Error::other(OutOfDescriptors::System),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the knob is named where descriptors have run out, and other errors stay as they are.
    #[test]
    fn limits_are_named() {
        let of = |code| explained(io::Error::from_raw_os_error(code));
        assert!(of(libc::EMFILE).to_string().contains("ulimit -n"));
        assert!(of(libc::EMFILE).to_string().contains("LimitNOFILE="));
        assert!(of(libc::ENFILE).to_string().contains("fs.file-max"));
        assert_eq!(of(libc::EPERM).raw_os_error(), Some(libc::EPERM));
    }
}
