//! Where a process is that does not answer: stopped, or in which place of the kernel it waits. Read
//! while it does, since later nobody can say.

use std::fmt;
use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use super::wire;

/// What the kernel says of a process whose first thread answers requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pid: Option<i32>,
    /// `R`unning, `S`leeping, `D`: in the kernel and not to be disturbed, `T`: stopped.
    state: Option<char>,
    /// The kernel's function that its first thread waits in.
    place: Option<String>,
}

impl Whereabouts {
    /// Of the process that listens at `socket`.
    pub(crate) fn of_listener(socket: &str) -> Self {
        wire::connect(socket).map_or_else(|_| Self::default(), |stream| Self::of_peer(&stream))
    }

    /// Of the process at the other end.
    pub(super) fn of_peer(stream: &UnixStream) -> Self {
        // Of whoever made the socket listen: under systemd that is 1, from elsewhere it is 0.
        let who = getsockopt(stream, PeerCredentials).ok().filter(|who| who.pid() > 1);
        let Some(pid) = who.map(|who| who.pid()) else { return Self::default() };
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        // The name, in brackets, may hold anything; the state is what follows it.
        let state = read("stat").and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        // `0` where it runs, and where this user may not know.
        let place = read("wchan").filter(|place| !place.is_empty() && place != "0");
        Self { pid: Some(pid), state, place }
    }

    /// Somebody stopped it, or traces it.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, Some('T' | 't'))
    }

    /// It waits for the kernel, which will come back to it.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.state == Some('D')
    }
}

/// What follows the name of a process in a message; begins with a comma where there is something.
impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid else { return Ok(()) };
        write!(f, ", pid {pid}")?;
        match (&self.place, self.state) {
            _ if self.is_stopped() => write!(f, " (it is stopped: kill -CONT {pid})"),
            (Some(place), Some('D')) => write!(f, " (it waits in the kernel, in {place})"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: only who waits for the kernel is worth a longer wait.
    #[test]
    fn who_waits_for_the_kernel_is_waited_for() {
        let in_state = |state| Whereabouts { pid: Some(7), state, place: None };
        assert!(in_state(Some('D')).is_in_kernel());
        for state in [None, Some('S'), Some('R'), Some('T')] {
            assert!(!in_state(state).is_in_kernel(), "{state:?}");
        }
    }

    // Goal: a process that runs is named, one that is stopped or waits in the kernel with more.
    #[test]
    fn where_it_is_is_said() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = Whereabouts::of_peer(&one);
        assert_eq!(own.pid, Some(std::process::id() as i32));
        assert!(!own.is_stopped() && own.state.is_some(), "{own:?}");
        let at = |state, place: Option<&str>| {
            let place = place.map(str::to_owned);
            Whereabouts { pid: Some(7), state: Some(state), place }.to_string()
        };
        assert_eq!(at('T', Some("do_signal_stop")), ", pid 7 (it is stopped: kill -CONT 7)");
        assert_eq!(at('D', Some("rtnl_lock")), ", pid 7 (it waits in the kernel, in rtnl_lock)");
        assert_eq!(at('S', Some("do_epoll_wait")), ", pid 7");
        assert_eq!(Whereabouts::of_listener("/nowhere/at/all.sock").to_string(), "");
    }
}
