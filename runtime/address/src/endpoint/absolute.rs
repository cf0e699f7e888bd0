//! Conversion of relative paths in an address to absolute paths, for another process.

use std::path::Path;

use super::group::members_of;
use super::{kind_of, values};

/// Returns `address` with its relative paths joined to `base`. Text that is no address is returned
/// unchanged; the parser reports its errors.
pub fn absolute(address: &str, base: &Path) -> String {
    let members = members_of(address).unwrap_or_else(|| vec![address]);
    let members: Vec<String> = members.iter().map(|member| one(member, base)).collect();
    members.join("+")
}

fn one(address: &str, base: &Path) -> String {
    let Some((kind, rest)) = kind_of(address) else { return address.to_owned() };
    let mut parts = rest.split(',');
    let target = parts.next().unwrap_or_default();
    let target = if (kind.is_path)(target) { below(base, target) } else { target.to_owned() };
    let options = parts.map(|option| match option.split_once('=') {
        // A namespace without a slash is a name, not a path.
        Some((name, path)) if name == values::NETNS.name && path.contains('/') => {
            format!("{name}={}", below(base, path))
        }
        _ => option.to_owned(),
    });
    let target = format!("{}{target}", kind.prefix);
    std::iter::once(target).chain(options).collect::<Vec<_>>().join(",")
}

fn below(base: &Path, path: &str) -> String {
    match path {
        "" => String::new(),
        path => base.join(path).to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: relative paths of sockets and namespaces become absolute, also in groups. Names,
    // numbers and absolute paths do not change.
    #[test]
    fn relative_paths_become_absolute() {
        let there = |address: &str| absolute(address, Path::new("/srv/me"));
        for (address, wanted) in [
            ("vhost-user:x.sock,queues=2", "vhost-user:/srv/me/x.sock,queues=2"),
            ("virtio-user:./x,server", "virtio-user:/srv/me/./x,server"),
            ("ntb:sub/x.sock", "ntb:/srv/me/sub/x.sock"),
            ("ntb:a+ntb:b,name=z", "ntb:/srv/me/a+ntb:/srv/me/b,name=z"),
            ("ntb:ivshmem=iv.sock", "ntb:ivshmem=/srv/me/iv.sock"),
            ("tap:a,netns=ns/blue", "tap:a,netns=/srv/me/ns/blue"),
        ] {
            assert_eq!(there(address), wanted);
        }
        for same in [
            "vhost-user:/run/x",
            "vhost-user:,fd=7",
            "ntb:ivshmem=pci",
            "ntb:ivshmem=00:04.0",
            "tap:a,netns=blue",
            "xdp:eth0,netns=/run/netns/blue",
            "null:",
            "no address",
        ] {
            assert_eq!(there(same), same);
        }
    }
}
