//! Discovery of running mqnet processes, by a query to every control socket.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use mqnet_control_api::{ApiError, Code, Instance, LinkInfo, NetdevInfo};
use mqnet_sysio::clock;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{self, Client, IDENTITY_TIMEOUT, KERNELS_TIMEOUT, listener_state};
use crate::socket::{self, Places, SocketAddress};
pub use mqnet_host::names::{self, own_netns};

use mqnet_host::names::Named;

/// Extended time limit while no process has the requested device. The kernel can hold the lock of
/// all network configuration for seconds while it removes namespaces.
const LONG_PATIENCE: Duration = Duration::from_secs(25);
/// Time after which a warning reports the processes that have not answered.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// Scope of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// Exactly one socket.
    At(String),
    /// Every socket in the runtime directories.
    In(Places),
}

impl Search {
    /// Selects the socket `named` by the user (`--control`), otherwise the socket in
    /// `$MQNET_CONTROL`, otherwise all runtime directories. Returns an error for an invalid
    /// address.
    pub fn new(named: Option<&str>) -> Result<Self, ApiError> {
        let from_env = || std::env::var("MQNET_CONTROL").ok().filter(|name| !name.is_empty());
        match named.map(str::to_owned).or_else(from_env) {
            Some(name) => {
                SocketAddress::from_str(&name)?;
                Ok(Self::At(name))
            }
            None => Ok(Self::In(Places::from_env())),
        }
    }
}

/// Process that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredProcess {
    /// Control socket of the process.
    pub socket: String,
    /// Identity of the process.
    pub instance: Instance,
    /// Links of the process.
    pub links: Vec<LinkInfo>,
    /// Netdevs of the process.
    pub netdevs: Vec<NetdevInfo>,
}

impl DiscoveredProcess {
    /// Creates a client of the process.
    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// True if `name` may refer to one of the netdevs or links.
    fn has(&self, name: &str) -> bool {
        let name = name.rsplit('/').next().unwrap_or_default();
        self.netdevs.iter().any(|dev| dev.name == name || dev.link == name)
    }
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Processes that answered, sorted by socket.
    pub found: Vec<DiscoveredProcess>,
    /// Sockets without a valid answer, sorted, each with the error.
    pub silent: Vec<(String, ApiError)>,
}

/// Queries every process in parallel. Removes sockets of dead processes.
pub fn survey(search: &Search) -> Result<Survey, ApiError> {
    survey_until(search, |_| true)
}

/// Queries all processes in parallel. Extends the wait for late processes until `enough` accepts
/// the answers.
fn survey_until(
    search: &Search,
    enough: impl Fn(&[DiscoveredProcess]) -> bool,
) -> Result<Survey, ApiError> {
    let sockets = match search {
        Search::At(socket) => vec![socket.clone()],
        Search::In(places) => sockets(places),
    };
    let mut survey = client::runtime("any mqnet")?.block_on(query_all(sockets, enough));
    survey.found.sort_by(|a, b| a.socket.cmp(&b.socket));
    survey.silent.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(survey)
}

async fn query_all(sockets: Vec<String>, enough: impl Fn(&[DiscoveredProcess]) -> bool) -> Survey {
    let mut late: BTreeSet<String> = sockets.iter().cloned().collect();
    let mut asked = JoinSet::new();
    for socket in sockets {
        asked.spawn(async move {
            let answer = query(&socket).await;
            (socket, answer)
        });
    }
    let (begin, mut survey) = (clock::monotonic(), Survey::default());
    let waited = || clock::monotonic().saturating_sub(begin);
    for limit in [NOTICE_AFTER, IDENTITY_TIMEOUT, LONG_PATIENCE, KERNELS_TIMEOUT] {
        while let Ok(Some(done)) = timeout(limit.saturating_sub(waited()), asked.join_next()).await
        {
            // A task that panicked stays in `late`, so its socket counts as silent.
            let Ok((socket, answer)) = done else { continue };
            late.remove(&socket);
            match answer {
                Ok(found) => survey.found.push(found),
                Err(e) => survey.silent.push((socket, e)),
            }
        }
        let at = |socket: &String| listener_state(socket);
        let goes_on = match limit {
            _ if late.is_empty() => false,
            NOTICE_AFTER => true,
            IDENTITY_TIMEOUT => {
                !enough(&survey.found) && !late.iter().all(|one| at(one).is_stopped())
            }
            // The limit is `LONG_PATIENCE`; `KERNELS_TIMEOUT` follows and ends the loop.
            _ => !enough(&survey.found) && late.iter().any(|one| at(one).is_in_kernel()),
        };
        if !goes_on {
            break;
        }
        if limit == NOTICE_AFTER {
            for socket in &late {
                let at = listener_state(socket);
                tracing::warn!("waiting for mqnet at {socket}{at}");
            }
        }
    }
    let waited = waited().as_secs();
    for socket in late {
        let at = listener_state(&socket);
        let why = format!("mqnet at {socket}{at} did not answer within {waited} s");
        survey.silent.push((socket, ApiError::new(Code::TimedOut, why)));
    }
    survey
}

async fn query(socket: &str) -> Result<DiscoveredProcess, ApiError> {
    Ok(DiscoveredProcess {
        socket: socket.to_owned(),
        instance: client::get(socket, "/v1/instance").await?,
        links: client::get(socket, "/v1/links").await?,
        netdevs: client::get(socket, "/v1/netdevs").await?,
    })
}

/// Control sockets in the runtime directories, without stale ones.
fn sockets(places: &Places) -> Vec<String> {
    let folders = places.existing().into_iter().filter_map(|folder| folder.read_dir().ok());
    let paths = folders.flatten().flatten().map(|entry| entry.path());
    let is_alive = |path: &PathBuf| is_ours(path) && !socket::remove_stale(path);
    paths.filter(is_alive).filter_map(|path| path.to_str().map(str::to_owned)).collect()
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.strip_prefix("link-").and_then(|rest| rest.strip_suffix(".sock"));
    name == "ctl.sock" || pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
}

/// Finds the process with a netdev of this name. Fails if no process or several match.
pub fn find_device(
    name: &str,
    netns: Option<u64>,
    search: &Search,
) -> Result<DiscoveredProcess, ApiError> {
    survey_until(search, |found| found.iter().any(|one| one.has(name)))?.device(name, netns)
}

/// Finds the process with a link of this name, or a link with a netdev of this name. Fails if none
/// or several match.
pub fn find_link(
    name: &str,
    netns: Option<u64>,
    search: &Search,
) -> Result<DiscoveredProcess, ApiError> {
    survey_until(search, |found| found.iter().any(|one| one.has(name)))?.link(name, netns)
}

impl Survey {
    /// Returns the process with a netdev of this name, resolved by [`mqnet_host::names`]. Fails if
    /// none or several match.
    pub fn device(self, name: &str, netns: Option<u64>) -> Result<DiscoveredProcess, ApiError> {
        let all = self.names();
        let found = names::devices(name, netns, &all);
        self.only(name, "device", &found, &all)
    }

    /// Returns the process with a link of this name, or a link with a netdev of this name. Fails if
    /// none or several match.
    pub fn link(self, name: &str, netns: Option<u64>) -> Result<DiscoveredProcess, ApiError> {
        let all = self.names();
        let found = names::links(name, netns, &all);
        self.only(name, "link or device", &found, &all)
    }

    /// Netdevs of all processes.
    fn names(&self) -> Vec<Named<'_>> {
        let processes = self.found.iter().enumerate();
        let named = processes
            .flat_map(|(at, found)| found.netdevs.iter().map(move |dev| Named::new(at, dev)));
        named.collect()
    }

    fn only(
        &self,
        name: &str,
        what: &str,
        found: &[usize],
        all: &[Named<'_>],
    ) -> Result<DiscoveredProcess, ApiError> {
        match found {
            [one] => Ok(self.found[all[*one].process].clone()),
            [] => {
                let why = format!("no running mqnet has a {what} `{name}`{}", self.silence());
                // A process that did not answer in time may have the device, so the search has no
                // definite result.
                let is_late = |(_, e): &(String, ApiError)| e.code == Code::TimedOut;
                let late = self.silent.iter().any(is_late);
                Err(ApiError::new(if late { Code::TimedOut } else { Code::NoDevice }, why))
            }
            several => {
                let place = |&at: &usize| {
                    let found = &self.found[all[at].process];
                    let (pid, socket) = (found.instance.pid, &found.socket);
                    format!("{}, pid {pid} ({socket})", names::place(at, all))
                };
                let list: Vec<String> = several.iter().map(place).collect();
                let first = all[several[0]].process;
                let is_one = several.iter().all(|&at| all[at].process == first);
                let more = if is_one { "" } else { ", or choose a process with --control SOCKET" };
                Err(names::ambiguous(name, &list.join(", "), more))
            }
        }
    }

    /// Returns a note on the processes that did not answer; empty if all answered.
    fn silence(&self) -> String {
        let all: Vec<&str> = self.silent.iter().map(|(_, e)| e.message.as_str()).collect();
        if all.is_empty() { String::new() } else { format!(" ({})", all.join("; ")) }
    }
}
