//! Names of netdevs and links as written by users, and their resolution.
//!
//! The name of a kernel interface is valid in one network namespace. A name is resolved in this
//! order:
//!
//! - `SCOPE/DEV`: the netdev DEV of the link SCOPE, or of the network namespace SCOPE. The scope of
//!   a namespace is a name in `/run/netns` or an inode number.
//! - `DEV` for a request about a link: a link of that name. A link with the name of one of its
//!   netdevs does not count here. A netdev of that name in the caller's network namespace has the
//!   same rank.
//! - `DEV`: the netdev of that name in the caller's network namespace, otherwise in any namespace.
//! - `DEV` without a netdev of that name: the first netdev of the link with that name.
//!
//! If several netdevs of one rank match, the name is rejected with an unambiguous name for each.

use std::fs;
use std::path::Path;

use mqnet_control_api::{ApiError, Code, LinkInfo, NetdevInfo};
use mqnet_sysio::namespace;

/// Folder with the names of network namespaces.
const NAMESPACES: &str = "/run/netns";

/// Netdev with the names by which it can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// Index of the process, if several processes are searched.
    pub process: usize,
    /// Name of the link with the netdev.
    pub link: &'a str,
    /// Name of the netdev.
    pub name: &'a str,
    /// Inode of the network namespace in which the name is valid; `None`: no kernel interface, or
    /// unknown.
    pub netns: Option<u64>,
}

impl<'a> Named<'a> {
    /// Names of a netdev of the process with index `process`.
    pub fn new(process: usize, dev: &'a NetdevInfo) -> Self {
        Self { process, link: &dev.link, name: &dev.name, netns: dev.netns }
    }

    fn is_in(&self, scope: &str, netns: Option<u64>) -> bool {
        self.link == scope || netns.is_some() && self.netns == netns
    }

    fn is_of(&self, other: &Self) -> bool {
        (self.process, self.link) == (other.process, other.link)
    }
}

/// Names of all netdevs of `links`, in order.
pub fn of_links(links: &[LinkInfo]) -> Vec<Named<'_>> {
    links.iter().flat_map(|link| &link.netdevs).map(|dev| Named::new(0, dev)).collect()
}

/// Inode of the network namespace of the calling process; `None` if unknown.
pub fn own_netns() -> Option<u64> {
    inode(Path::new("/proc/self/ns/net"))
}

fn inode(file: &Path) -> Option<u64> {
    namespace::id_of(file).ok().map(|(_, inode)| inode)
}

/// Inode of the network namespace with the name or inode number `scope`; `None` if no namespace has
/// that name.
fn netns(scope: &str) -> Option<u64> {
    let is_name = !scope.is_empty() && !scope.starts_with('.');
    let named = || is_name.then(|| inode(&Path::new(NAMESPACES).join(scope))).flatten();
    scope.parse().ok().or_else(named)
}

/// Name of a network namespace in `/run/netns`, otherwise its inode number.
pub fn netns_name(netns: u64) -> String {
    let names = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let mut named = names.filter(|entry| inode(&entry.path()) == Some(netns));
    let name = named.next().and_then(|entry| entry.file_name().into_string().ok());
    name.unwrap_or_else(|| netns.to_string())
}

/// Indices of the netdevs to which a name refers. More than one index: the name is ambiguous.
pub fn devices(name: &str, caller: Option<u64>, all: &[Named<'_>]) -> Vec<usize> {
    let filter = |keep: &dyn Fn(&Named<'_>) -> bool| -> Vec<usize> {
        (0..all.len()).filter(|&at| keep(&all[at])).collect()
    };
    if let Some((scope, name)) = name.rsplit_once('/') {
        let netns = netns(scope);
        return filter(&|dev| dev.name == name && dev.is_in(scope, netns));
    }
    let here = filter(&|dev| caller.is_some() && dev.name == name && dev.netns == caller);
    if !here.is_empty() {
        return here;
    }
    let anywhere = filter(&|dev| dev.name == name);
    if !anywhere.is_empty() {
        return anywhere;
    }
    let mut firsts = filter(&|dev| dev.link == name);
    firsts.dedup_by(|one, other| all[*one].is_of(&all[*other]));
    firsts
}

/// Resolves the name of a link. Returns the index of one netdev for each matching link.
pub fn links(name: &str, caller: Option<u64>, all: &[Named<'_>]) -> Vec<usize> {
    // A link named after one of its netdevs is found through that netdev, which is valid in one
    // namespace.
    let borrowed = |link: &Named<'_>| all.iter().any(|dev| dev.is_of(link) && dev.name == name);
    let mut found: Vec<usize> =
        (0..all.len()).filter(|&at| all[at].link == name && !borrowed(&all[at])).collect();
    let here = |at: &usize| caller.is_some() && all[*at].netns == caller;
    if found.iter().any(here) {
        found.retain(here);
    }
    if found.is_empty() {
        found = devices(name, caller, all);
    } else {
        // A netdev of that name in the caller's namespace has the same rank as the link.
        let is_here = |at: &usize| caller.is_some() && all[*at].netns == caller;
        let rivals = (0..all.len()).filter(|at| all[*at].name == name && is_here(at));
        found.extend(rivals.collect::<Vec<_>>());
    }
    found.dedup_by(|one, other| all[*one].is_of(&all[*other]));
    found
}

/// Returns the only index in `found`. Returns an error if `found` has none or several; `what` is
/// the kind of object in the message.
pub fn only(name: &str, what: &str, found: &[usize], all: &[Named<'_>]) -> Result<usize, ApiError> {
    match found {
        [one] => Ok(*one),
        [] => {
            let why = format!("no {what} '{name}' here");
            Err(ApiError::new(Code::NoDevice, why))
        }
        several => {
            let list: Vec<String> = several.iter().map(|&at| place(at, all)).collect();
            Err(ambiguous(name, &list.join(", "), ""))
        }
    }
}

/// Creates the error for an ambiguous name, with the list of possible names.
pub fn ambiguous(name: &str, list: &str, more: &str) -> ApiError {
    let why = format!(
        "{name}: ambiguous: {list}: use one of these names, or run it in the network namespace (ip \
         netns exec){more}"
    );
    ApiError { field: Some("name".to_owned()), ..ApiError::new(Code::Busy, why) }
}

/// Describes a netdev in a list of several: unambiguous name, link and network namespace.
pub fn place(at: usize, all: &[Named<'_>]) -> String {
    let dev = &all[at];
    let netns = dev.netns.map(|netns| format!(" in network namespace {}", netns_name(netns)));
    let netns = netns.unwrap_or_default();
    format!("{} (link {}{netns})", reference(at, all), dev.link)
}

/// Returns a name of a netdev that is unambiguous in every network namespace.
pub fn reference(at: usize, all: &[Named<'_>]) -> String {
    let dev = &all[at];
    let by_link = format!("{}/{}", dev.link, dev.name);
    let by_netns = dev.netns.map(|netns| format!("{netns}/{}", dev.name));
    let mut names = [Some(dev.name.to_owned()), Some(by_link.clone()), by_netns].into_iter();
    let alone = names.find(|name| name.as_ref().is_some_and(|n| devices(n, None, all) == [at]));
    alone.flatten().unwrap_or(by_link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dev(link: &'static str, name: &'static str, netns: Option<u64>) -> Named<'static> {
        Named { process: 0, link, name, netns }
    }

    fn all() -> Vec<Named<'static>> {
        vec![
            dev("p1", "eth0", Some(1)),
            dev("p1", "null", None),
            dev("p2", "eth0", Some(2)),
            dev("p2", "null1", None),
            dev("eth1", "eth1", Some(1)),
            dev("eth1", "x", None),
            dev("p3", "eth1", Some(2)),
            dev("p3", "eth1", Some(3)),
        ]
    }

    // Goal: the caller's namespace has precedence, a scope selects netdevs of a link or of any
    // namespace, and a link's name refers to its first netdev.
    #[test]
    fn devices_are_resolved_in_their_order() {
        for (name, caller, found) in [
            ("eth0", Some(1), &[0][..]),
            ("eth0", Some(2), &[2]),
            ("eth0", Some(9), &[0, 2]),
            ("eth0", None, &[0, 2]),
            ("null1", Some(9), &[3]),
            ("p2", None, &[2]),
            ("p2/eth0", Some(1), &[2]),
            ("2/eth0", Some(1), &[2]),
            ("p1/eth1", None, &[]),
            ("p3/eth1", None, &[6, 7]),
            ("3/eth1", None, &[7]),
            ("../p1", None, &[]),
            ("", None, &[]),
        ] {
            assert_eq!(devices(name, caller, &all()), found, "{name} {caller:?}");
        }
    }

    // Goal: a link with a name of its own has precedence over netdevs; a link named after its
    // netdev has not. Two ends of one link are one match.
    #[test]
    fn links_are_resolved_in_their_order() {
        let with_own = [&all()[..], &[dev("eth0", "other", Some(2))]].concat();
        assert_eq!(links("eth0", Some(9), &with_own), [8]);
        assert_eq!(links("eth0", Some(1), &with_own), [8, 0], "neither is meant for certain");
        for (name, caller, found) in [
            ("eth0", Some(2), &[2][..]),
            ("eth0", None, &[0, 2]),
            ("eth1", Some(1), &[4]),
            ("eth1", Some(2), &[6]),
            ("eth1", None, &[4, 6]),
            ("p3", None, &[6]),
            ("p3/eth1", None, &[6]),
        ] {
            assert_eq!(links(name, caller, &all()), found, "{name} {caller:?}");
        }
    }

    // Goal: every netdev has an unambiguous name, and the error for an ambiguous name lists these
    // names.
    #[test]
    fn references_are_unambiguous() {
        let all = all();
        for at in 0..all.len() {
            assert_eq!(devices(&reference(at, &all), None, &all), [at]);
        }
        let e = only("eth0", "netdev", &devices("eth0", None, &all), &all).unwrap_err();
        assert!(e.message.contains("p1/eth0 (link p1 in network namespace 1), p2/eth0"), "{e}");
        assert_eq!(e.code, Code::Busy);
        let e = only("eth7", "netdev", &[], &all).unwrap_err();
        assert_eq!(e.code, Code::NoDevice);
    }
}
