//! `xdp:IFNAME,group=auto`: group of the functions of a port, or of the ports of a switch.

use std::path::Path;

use mqnet_topology::port::siblings;

use super::BadAddress;

/// Group found for an address with `group=auto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoGroup {
    /// Equivalent address with all members.
    pub address: String,
    /// Property that the members have in common.
    pub why: String,
}

/// Finds the group of an address with `group=auto`. Returns `None` for other addresses. Returns an
/// error if no group is found, or for an address with `netns=`. `root` is `/` except in tests.
pub fn find_group(address: &str, root: &Path) -> Result<Option<AutoGroup>, BadAddress> {
    let Some((name, options)) = address.strip_prefix("xdp:").and_then(|rest| rest.split_once(','))
    else {
        return Ok(None);
    };
    let options: Vec<&str> = options.split(',').collect();
    // An address that names its members needs no search; the parser rejects `group=auto` there.
    if !options.contains(&"group=auto") || super::group::members_of(address).is_some() {
        return Ok(None);
    }
    let bad = |what: String| BadAddress { address: address.to_owned(), what };
    if options.iter().any(|option| option.starts_with("netns=")) {
        let what = "group=auto finds members in this network namespace only: omit netns=";
        return Err(bad(what.to_owned()));
    }
    let found = siblings(root, name).map_err(|why| {
        bad(format!("group=auto: {why}: name the members, as in xdp:{name}+xdp:OTHER"))
    })?;
    let (last, each): (Vec<&str>, Vec<&str>) = options
        .iter()
        .filter(|&&option| option != "group=auto")
        .partition(|option| super::group::is_of_group(option));
    let with = |head: String, options: &[&str]| {
        options.iter().fold(head, |all, option| format!("{all},{option}"))
    };
    let members: Vec<String> =
        found.names.iter().map(|name| with(format!("xdp:{name}"), &each)).collect();
    Ok(Some(AutoGroup { address: with(members.join("+"), &last), why: found.why }))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{Endpoint, parse};

    struct Tree(PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    // Goal: an address with group=auto is equivalent to the explicit group. Options of members
    // apply to all members; options of the group occur once. Without other members, or with a
    // namespace, the address is rejected with advice.
    #[test]
    fn a_port_is_a_group() {
        let root = std::env::temp_dir().join(format!("mqnet-auto-{}", std::process::id()));
        let tree = Tree(root.clone());
        for (name, id) in [("eth0", "a"), ("eth1", "a"), ("eth2", "b")] {
            let folder = root.join("sys/class/net").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("phys_switch_id"), id).unwrap();
        }
        let ask = |address: &str| find_group(address, &tree.0);
        let of_group = "primary=1,rx-locality=learn,on-member-loss=degrade";
        let found = ask(&format!("xdp:eth1,ring=512,group=auto,{of_group}")).unwrap().unwrap();
        let group = format!("xdp:eth0,ring=512+xdp:eth1,ring=512,{of_group}");
        assert_eq!(
            (&found.address[..], &found.why[..]),
            (&group[..], "the same switch (phys_switch_id a)")
        );
        let Ok(Endpoint::Group(group)) = parse(&found.address) else { panic!() };
        assert_eq!((group.members.len(), group.degrade, group.primary), (2, true, Some(1)));
        for other in ["xdp:eth0", "xdp:eth0,ring=512", "tap:x,group=auto", "null:"] {
            assert_eq!(ask(other), Ok(None));
        }
        let no = |address: &str| ask(address).unwrap_err().to_string();
        let alone = no("xdp:eth2,group=auto");
        assert!(alone.contains("no other interface has its phys_switch_id b"), "{alone}");
        assert!(alone.ends_with("name the members, as in xdp:eth2+xdp:OTHER"), "{alone}");
        assert!(no("xdp:eth0,netns=x,group=auto").contains("omit netns="));
        assert!(parse("xdp:eth0+xdp:eth1,group=auto").is_err());
    }
}
