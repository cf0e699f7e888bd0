//! State of a process that does not respond: stopped, or blocked in a kernel function. The client
//! reads the state while its request is unanswered, because the state may change afterwards.

use std::fmt;
use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// Kernel's view of a process and its first thread, which answers requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pid: Option<i32>,
    /// State letter of `/proc/PID/stat`: `R` running, `S` sleeping, `D` uninterruptible wait, `T`
    /// stopped, `t` traced.
    state: Option<char>,
    /// Kernel function in which the first thread waits.
    place: Option<String>,
}

impl Whereabouts {
    /// Reads the state of the process at the other end of `stream`. All fields are `None` if the
    /// process is unknown.
    pub(super) fn of_peer(stream: &UnixStream) -> Self {
        // `SO_PEERCRED` returns the process that called `listen`: pid 1 with systemd's socket, 0 in
        // another pid namespace. Both count as unknown.
        let who = getsockopt(stream, PeerCredentials).ok().filter(|who| who.pid() > 1);
        let Some(pid) = who.map(|who| who.pid()) else { return Self::default() };
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        // The process name is in brackets and may contain any characters; the state follows it.
        let state = read("stat").and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        // `wchan` is `0` for a running thread, and for a reader without permission.
        let place = read("wchan").filter(|place| !place.is_empty() && place != "0");
        Self { pid: Some(pid), state, place }
    }

    /// True if the process is stopped or traced.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, Some('T' | 't'))
    }

    /// True if the process is in an uninterruptible wait in the kernel.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.state == Some('D')
    }
}

/// Formats a suffix for the name of a process in a message. The suffix begins with a comma, or is
/// empty if the process is unknown.
impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid else { return Ok(()) };
        write!(f, ", pid {pid}")?;
        match (&self.place, self.state) {
            _ if self.is_stopped() => write!(f, " (it is stopped: kill -CONT {pid})"),
            (Some(place), Some('D')) => write!(f, " (it is blocked in the kernel, in {place})"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: only a process in an uninterruptible wait gets a longer time limit.
    #[test]
    fn blocked_process_is_waited_for() {
        let in_state = |state| Whereabouts { pid: Some(7), state, place: None };
        assert!(in_state(Some('D')).is_in_kernel());
        for state in [None, Some('S'), Some('R'), Some('T')] {
            assert!(!in_state(state).is_in_kernel(), "{state:?}");
        }
    }

    // Goal: a message contains the process id, and the state if the process is stopped or in an
    // uninterruptible wait.
    #[test]
    fn whereabouts_are_printed() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = Whereabouts::of_peer(&one);
        assert_eq!(own.pid, Some(std::process::id() as i32));
        assert!(!own.is_stopped() && own.state.is_some(), "{own:?}");
        let at = |state, place: Option<&str>| {
            let place = place.map(str::to_owned);
            Whereabouts { pid: Some(7), state: Some(state), place }.to_string()
        };
        assert_eq!(at('T', Some("do_signal_stop")), ", pid 7 (it is stopped: kill -CONT 7)");
        assert_eq!(
            at('D', Some("rtnl_lock")),
            ", pid 7 (it is blocked in the kernel, in rtnl_lock)"
        );
        assert_eq!(at('S', Some("do_epoll_wait")), ", pid 7");
    }
}
