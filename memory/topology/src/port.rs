//! Interfaces that are functions of one port or ports of one switch, according to sysfs.

use std::fs;
use std::path::Path;

use crate::nic::is_name;

/// Group of interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Siblings {
    /// Names, including the requested name, sorted by bus address.
    pub names: Vec<String>,
    /// Attribute that the interfaces share.
    pub why: String,
}

/// Attribute of an interface, or `None` if it is empty or unreadable. The kernel fails to read an
/// attribute that the driver does not implement.
fn attribute(interface: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(interface.join(name)).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// True if the name is that of a representor (`pf0vf1`, `pf0sf8`, `pf0`), which does not lead to
/// the port.
fn is_representor(interface: &Path) -> bool {
    attribute(interface, "phys_port_name").is_some_and(|name| name.contains("pf"))
}

/// Finds the functions of an interface's port, or the ports of its switch, below `root` (`/`,
/// except in tests). Fails if the interface has no siblings.
pub fn siblings(root: &Path, name: &str) -> Result<Siblings, String> {
    let folder = root.join("sys/class/net");
    let own = folder.join(name);
    if !is_name(name) || !own.exists() {
        return Err(format!("no interface {name} in this network namespace"));
    }
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let all = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let all: Vec<String> = all.collect();
    let mut known = Vec::new();
    for (file, what) in [("phys_port_id", "port"), ("phys_switch_id", "switch")] {
        let Some(id) = attribute(&own, file) else { continue };
        let is_one = |other: &String| {
            let other = folder.join(other);
            attribute(&other, file).as_ref() == Some(&id) && !is_representor(&other)
        };
        let mut names: Vec<String> = all.iter().filter(|other| is_one(other)).cloned().collect();
        if names.len() > 1 && names.iter().any(|other| other == name) {
            // The map of channels must not depend on the requested name or on the directory order.
            names.sort_by_cached_key(|name| {
                let device = fs::canonicalize(folder.join(name).join("device")).ok();
                (device.is_none(), device, name.clone())
            });
            return Ok(Siblings { names, why: format!("the same {what} ({file} {id})") });
        }
        known.push(format!("no other interface has its {file} {id}"));
    }
    Err(match known.is_empty() {
        true => format!("{name} has neither phys_port_id nor phys_switch_id"),
        false => format!("{name}: {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Tree(PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Tree {
        fn new(name: &str) -> Self {
            let name = format!("mqnet-port-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn interface(&self, name: &str, device: Option<&str>, attributes: &[(&str, &str)]) {
            let folder = self.0.join("sys/class/net").join(name);
            fs::create_dir_all(&folder).unwrap();
            if let Some(device) = device {
                let there = self.0.join("sys/devices/pci0000:00").join(device);
                fs::create_dir_all(&there).unwrap();
                symlink(there, folder.join("device")).unwrap();
            }
            for (file, text) in attributes {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        }

        fn siblings(&self, name: &str) -> Result<(Vec<String>, String), String> {
            super::siblings(&self.0, name).map(|found| (found.names, found.why))
        }
    }

    // Goal: two functions of one port are found by its id, in bus order, for each requested name.
    // Another port of the same card is not included.
    #[test]
    fn functions_of_one_port_are_found() {
        let tree = Tree::new("port");
        let (switch, port) = (("phys_switch_id", "0c42"), ("phys_port_id", "e41d2d"));
        tree.interface("eth9", Some("0000:03:00.0"), &[switch, port]);
        tree.interface("eth1", Some("0000:82:00.0"), &[switch, port]);
        tree.interface("eth2", Some("0000:04:00.0"), &[switch, ("phys_port_id", "e41d2e")]);
        tree.interface("veth0", None, &[("phys_switch_id", "")]);
        let why = "the same port (phys_port_id e41d2d)".to_owned();
        let expected = (vec!["eth9".to_owned(), "eth1".to_owned()], why);
        for name in ["eth1", "eth9"] {
            assert_eq!(tree.siblings(name), Ok(expected.clone()));
        }
    }

    // Goal: ports of one switch are found by its id. Representors, and an interface with a unique
    // id, are not included.
    #[test]
    fn ports_of_one_switch_are_found() {
        let tree = Tree::new("switch");
        let port = |name| [("phys_switch_id", "0c42"), ("phys_port_name", name)];
        tree.interface("eth0", Some("0000:03:00.0"), &port("p0"));
        tree.interface("eth1", Some("0000:03:00.1"), &port("p1"));
        tree.interface("rep0", Some("0000:03:00.0"), &port("pf0vf0"));
        tree.interface("other", Some("0000:05:00.0"), &[("phys_switch_id", "77")]);
        tree.interface("plain", None, &[]);
        let (names, why) = tree.siblings("eth0").unwrap();
        assert_eq!(
            (names, &why[..]),
            (vec!["eth0".to_owned(), "eth1".to_owned()], "the same switch (phys_switch_id 0c42)")
        );
        let no = |name| tree.siblings(name).unwrap_err();
        assert_eq!(no("other"), "other: no other interface has its phys_switch_id 77");
        assert_eq!(no("plain"), "plain has neither phys_port_id nor phys_switch_id");
        assert!(no("rep0").starts_with("rep0: no other interface"));
        assert_eq!(no("../x"), "no interface ../x in this network namespace");
    }
}
