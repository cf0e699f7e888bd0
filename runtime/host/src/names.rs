//! Names of netdevs and links, as users write them, and what they stand for.
//!
//! The name of a kernel device is valid in one network namespace. A name is resolved in this order:
//!
//! - `SCOPE/DEV`: the netdev DEV of the link SCOPE, or of the network namespace SCOPE, which is a
//!   name below `/run/netns` or an inode number;
//! - `DEV` where a link is wanted: a link with that name, unless it has it only from its netdev; it
//!   has the rank of a netdev of that name in the network namespace of the caller;
//! - `DEV`: the netdev of that name in the network namespace of the caller, else anywhere;
//! - the name of a link stands for its first netdev.
//!
//! Two netdevs of one rank are refused, with a name for each that is unambiguous.

use std::fs;
use std::path::Path;

use mqnet_control_api::{ApiError, Code, LinkInfo, NetdevInfo};
use mqnet_sysio::namespace;

/// Folder in which network namespaces have names.
const NAMESPACES: &str = "/run/netns";

/// A netdev under its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// Number of the process, where several are searched.
    pub process: usize,
    /// Its link.
    pub link: &'a str,
    /// Its own name.
    pub name: &'a str,
    /// Inode of the network namespace in which the name is valid.
    pub netns: Option<u64>,
}

impl<'a> Named<'a> {
    /// A netdev of a process.
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

/// The netdevs of links, in their order.
pub fn of_links(links: &[LinkInfo]) -> Vec<Named<'_>> {
    links.iter().flat_map(|link| &link.netdevs).map(|dev| Named::new(0, dev)).collect()
}

/// Inode of the network namespace of the calling process.
pub fn own_netns() -> Option<u64> {
    inode(Path::new("/proc/self/ns/net"))
}

fn inode(file: &Path) -> Option<u64> {
    namespace::id_of(file).ok().map(|(_, inode)| inode)
}

/// The network namespace with a name or a number.
fn netns(scope: &str) -> Option<u64> {
    let is_name = !scope.is_empty() && !scope.starts_with('.');
    let named = || is_name.then(|| inode(&Path::new(NAMESPACES).join(scope))).flatten();
    scope.parse().ok().or_else(named)
}

/// The name of a network namespace, else its number.
pub fn netns_name(netns: u64) -> String {
    let names = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let mut named = names.filter(|entry| inode(&entry.path()) == Some(netns));
    let name = named.next().and_then(|entry| entry.file_name().into_string().ok());
    name.unwrap_or_else(|| netns.to_string())
}

/// Indices of the netdevs that a name stands for; more than one: it is ambiguous.
pub fn devices(asked: &str, caller: Option<u64>, all: &[Named<'_>]) -> Vec<usize> {
    let filter = |keep: &dyn Fn(&Named<'_>) -> bool| -> Vec<usize> {
        (0..all.len()).filter(|&at| keep(&all[at])).collect()
    };
    if let Some((scope, name)) = asked.rsplit_once('/') {
        let netns = netns(scope);
        return filter(&|dev| dev.name == name && dev.is_in(scope, netns));
    }
    let here = filter(&|dev| caller.is_some() && dev.name == asked && dev.netns == caller);
    if !here.is_empty() {
        return here;
    }
    let anywhere = filter(&|dev| dev.name == asked);
    if !anywhere.is_empty() {
        return anywhere;
    }
    let mut firsts = filter(&|dev| dev.link == asked);
    firsts.dedup_by(|one, other| all[*one].is_of(&all[*other]));
    firsts
}

/// The same where a link is wanted: one netdev for each link that the name stands for.
pub fn links(asked: &str, caller: Option<u64>, all: &[Named<'_>]) -> Vec<usize> {
    // A name that a link has from its netdev is the netdev's, which is valid in one namespace.
    let borrowed = |link: &Named<'_>| all.iter().any(|dev| dev.is_of(link) && dev.name == asked);
    let mut found: Vec<usize> =
        (0..all.len()).filter(|&at| all[at].link == asked && !borrowed(&all[at])).collect();
    let here = |at: &usize| caller.is_some() && all[*at].netns == caller;
    if found.iter().any(here) {
        found.retain(here);
    }
    if found.is_empty() {
        found = devices(asked, caller, all);
    } else {
        // A device of the caller's namespace with that name, on another link, is as good a match.
        let is_here = |at: &usize| caller.is_some() && all[*at].netns == caller;
        let rivals = (0..all.len()).filter(|at| all[*at].name == asked && is_here(at));
        found.extend(rivals.collect::<Vec<_>>());
    }
    found.dedup_by(|one, other| all[*one].is_of(&all[*other]));
    found
}

/// The only one of the netdevs that a name stands for.
pub fn only(
    asked: &str,
    what: &str,
    found: &[usize],
    all: &[Named<'_>],
) -> Result<usize, ApiError> {
    match found {
        [one] => Ok(*one),
        [] => {
            let why = format!("no {what} '{asked}' here");
            Err(ApiError::new(Code::NoDevice, why))
        }
        several => {
            let list: Vec<String> = several.iter().map(|&at| place(at, all)).collect();
            Err(ambiguous(asked, &list.join(", "), ""))
        }
    }
}

/// The refusal of a name that stands for several: nothing is wrong with the request but that.
pub fn ambiguous(asked: &str, list: &str, more: &str) -> ApiError {
    let why = format!(
        "{asked}: ambiguous: {list}: use one of these names, or run it in the network namespace \
         (ip netns exec){more}"
    );
    ApiError { field: Some("name".to_owned()), ..ApiError::new(Code::Busy, why) }
}

/// A netdev for a list of several: a name that stands for it alone, and where it is.
pub fn place(at: usize, all: &[Named<'_>]) -> String {
    let dev = &all[at];
    let netns = dev.netns.map(|netns| format!(" in network namespace {}", netns_name(netns)));
    let netns = netns.unwrap_or_default();
    format!("{} (link {}{netns})", reference(at, all), dev.link)
}

/// A name of a netdev that stands for it alone, wherever the caller is.
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

    // Goal: the namespace of the caller decides, a scope decides anywhere, and the name of a link
    // stands for its first netdev.
    #[test]
    fn devices_are_resolved_in_their_order() {
        for (asked, caller, found) in [
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
            assert_eq!(devices(asked, caller, &all()), found, "{asked} {caller:?}");
        }
    }

    // Goal: a link's own name wins over devices; one that it has from its netdev does not, and two
    // ends of one link are one link.
    #[test]
    fn links_are_resolved_in_their_order() {
        let with_own = [&all()[..], &[dev("eth0", "other", Some(2))]].concat();
        assert_eq!(links("eth0", Some(9), &with_own), [8]);
        assert_eq!(links("eth0", Some(1), &with_own), [8, 0], "neither is meant for certain");
        for (asked, caller, found) in [
            ("eth0", Some(2), &[2][..]),
            ("eth0", None, &[0, 2]),
            ("eth1", Some(1), &[4]),
            ("eth1", Some(2), &[6]),
            ("eth1", None, &[4, 6]),
            ("p3", None, &[6]),
            ("p3/eth1", None, &[6]),
        ] {
            assert_eq!(links(asked, caller, &all()), found, "{asked} {caller:?}");
        }
    }

    // Goal: every netdev has a name that stands for it alone, and a refusal has those of all.
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
