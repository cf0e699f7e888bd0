//! Requirements of a test on the machine.

use std::path::Path;

/// Requirement that not every machine meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Permission to create network namespaces.
    Root,
    /// `/dev/net/tun` that every user may open.
    OpenTun,
    /// An installed program.
    Program(&'static str),
}

impl Need {
    /// Reason to skip if the requirement is not met; `None` if it is met.
    fn missing(self) -> Option<String> {
        match self {
            Self::Root if mqnet_sysio::process::is_root() => None,
            Self::Root => Some("needs root (network namespaces)".to_owned()),
            Self::OpenTun if tun_is_open() => None,
            Self::OpenTun => Some("needs /dev/net/tun with mode 0666".to_owned()),
            Self::Program(name) if in_path(name) => None,
            Self::Program(name) => Some(format!("needs the program {name}")),
        }
    }
}

fn tun_is_open() -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata("/dev/net/tun").is_ok_and(|m| m.permissions().mode() & 0o666 == 0o666)
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(name).is_file())
}

/// Returns true if all requirements are met. Otherwise the test is [skipped](skip) and should
/// return.
#[must_use]
pub fn has(needs: &[Need]) -> bool {
    let missing = needs.iter().find_map(|need| need.missing());
    match &missing {
        Some(reason) => skip(reason),
        None => true,
    }
}

/// Number of rounds of a test that repeats ends and restarts: `$MQNET_ROUNDS` if set, otherwise
/// `usual`.
#[track_caller]
pub fn rounds(usual: u32) -> u32 {
    match std::env::var("MQNET_ROUNDS") {
        Ok(text) => match text.parse() {
            Ok(rounds) if rounds > 0 => rounds,
            _ => panic!("MQNET_ROUNDS={text}: allowed are numbers from 1 on"),
        },
        Err(_) => usual,
    }
}

/// Prints the reason why the calling test is skipped; panics if `MQNET_NO_SKIP=1` forbids skips.
/// Returns false.
pub fn skip(reason: &str) -> bool {
    let forbidden = std::env::var_os("MQNET_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!forbidden, "MQNET_NO_SKIP=1 forbids to skip: {reason}");
    println!("SKIP: {reason}");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a missing program is reported as the reason to skip, and an installed program gives no
    // reason.
    #[test]
    fn missing_program_is_reported() {
        assert!(Need::Program("sh").missing().is_none());
        let reason = Need::Program("mqnet-no-such-program").missing();
        assert_eq!(reason.as_deref(), Some("needs the program mqnet-no-such-program"));
    }
}
