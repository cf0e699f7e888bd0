//! Section `[policy]` of a configuration file: endpoints that clients may use in requests.

use std::path::{Component, Path, PathBuf};

use super::document::{Document, Key, Value};
use crate::{Endpoint, KINDS, KindDecl};

/// Restrictions on the endpoints in requests. `None`: no restriction beyond the permissions of the
/// daemon. Links of the configuration are not restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Allowed kinds of endpoints.
    pub kinds: Option<Vec<String>>,
    /// Allowed sockets and files of endpoints, and folders that contain them.
    pub paths: Option<Vec<PathBuf>>,
    /// Allowed files of network namespaces, and folders that contain them. An empty list allows
    /// only the daemon's namespace.
    pub namespaces: Option<Vec<PathBuf>>,
}

const SECTION: &str = "[policy] ";
pub(super) const KEYS: [&str; 3] = ["kinds", "paths", "namespaces"];

/// True if `path` is an entry of `allowed` or is below an entry.
pub fn is_below(path: &Path, allowed: &[PathBuf]) -> bool {
    allowed.iter().any(|folder| path.starts_with(folder))
}

fn list(allowed: impl IntoIterator<Item = impl AsRef<Path>>) -> String {
    let names = allowed.into_iter().map(|path| path.as_ref().display().to_string());
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn check_path(what: &str, path: &Path, allowed: &[PathBuf]) -> Result<(), String> {
    let leaves = path.components().any(|part| part == Component::ParentDir);
    if !leaves && is_below(path, allowed) {
        return Ok(());
    }
    let (path, allowed) = (path.display(), list(allowed));
    Err(format!("the policy of the daemon does not allow {what} {path}; allowed: {allowed}"))
}

impl Policy {
    /// Checks an endpoint by its text; symbolic links are not resolved. Returns the reason if the
    /// endpoint is not allowed.
    pub fn check(&self, end: &Endpoint) -> Result<(), String> {
        if let Endpoint::Group(group) = end {
            return group.members.iter().try_for_each(|member| self.check(member));
        }
        let (kind, end) = (end.kind().name(), end.config());
        if let Some(kinds) = self.kinds.as_ref().filter(|kinds| !kinds.iter().any(|k| k == kind)) {
            let allowed = list(kinds);
            let why = "the policy of the daemon does not allow the kind";
            return Err(format!("{why} {kind}; allowed: {allowed}"));
        }
        if let (Some(allowed), Some(path)) = (&self.paths, end.path()) {
            check_path("the path", &path, allowed)?;
        }
        if let (Some(allowed), Some(path)) = (&self.namespaces, end.namespace()) {
            check_path("the namespace", path, allowed)?;
        }
        Ok(())
    }
}

fn kinds(document: &mut Document<'_>, value: &Value<'_>) -> Option<Vec<String>> {
    let kinds = document.strings(value, SECTION, "kinds")?;
    let mut known = KINDS.map(KindDecl::name).to_vec();
    known.dedup();
    if let Some(other) = kinds.iter().find(|kind| !known.contains(&kind.as_str())) {
        let what = format!("{SECTION}kinds: no kind {other:?}; allowed: {}", known.join(", "));
        document.report(value.span(), what);
    }
    Some(kinds)
}

fn paths(document: &mut Document<'_>, value: &Value<'_>, key: &str) -> Option<Vec<PathBuf>> {
    let paths = document.strings(value, SECTION, key)?;
    if let Some(other) = paths.iter().find(|path| !path.starts_with('/')) {
        let what = format!("{SECTION}{key}: {other:?} must be an absolute path");
        document.report(value.span(), what);
    }
    Some(paths.into_iter().map(PathBuf::from).collect())
}

/// Reads the section `[policy]`. Reports invalid keys and values.
pub(super) fn read<'a>(
    document: &mut Document<'a>,
    section: &Key<'a>,
    value: &Value<'a>,
) -> Policy {
    let mut policy = Policy::default();
    for (key, value) in document.table(value, section.get_ref(), "a table, [policy]") {
        let name = key.get_ref().as_ref();
        match name {
            "kinds" => policy.kinds = kinds(document, value),
            "paths" => policy.paths = paths(document, value, name),
            "namespaces" => policy.namespaces = paths(document, value, name),
            _ => document.unknown(key, SECTION, &KEYS),
        }
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a policy allows the listed endpoints, alone and in groups, and no others.
    #[test]
    fn policies_allow_their_entries() {
        let paths = |all: &[&str]| Some(all.iter().map(PathBuf::from).collect());
        let policy = Policy {
            kinds: Some(vec!["tap".to_owned(), "vhost-user".to_owned(), "ntb".to_owned()]),
            paths: paths(&["/run/vms"]),
            namespaces: paths(&["/run/netns/blue"]),
        };
        let check = |address: &str| policy.check(&crate::parse(address).unwrap());
        for allowed in [
            "tap:a",
            "tap:a,netns=blue",
            "vhost-user:/run/vms/x.sock",
            "ntb:/run/vms/a/b.sock",
            "tap:a+tap:b",
        ] {
            assert_eq!(check(allowed), Ok(()), "{allowed}");
        }
        for (refused, why) in [
            ("null:", "kind null; allowed: tap, vhost-user, ntb"),
            ("vhost-user:/run/vmsx/x.sock", "path /run/vmsx/x.sock; allowed: /run/vms"),
            ("vhost-user:/run/vms/../x.sock", "path /run/vms/../x.sock"),
            ("ntb:ivshmem=/dev/shm/x", "path /dev/shm/x"),
            ("ntb:ivshmem=pci", "path /sys/bus/pci/devices; allowed"),
            ("ntb:ivshmem=00:04.0", "path /sys/bus/pci/devices/0000:00:04.0"),
            ("tap:a,netns=red", "namespace /run/netns/red; allowed: /run/netns/blue"),
            ("tap:a+tap:b,netns=red", "namespace /run/netns/red"),
        ] {
            let error = check(refused).unwrap_err();
            assert!(error.contains(why), "{refused}: {error}");
        }
        assert_eq!(Policy::default().check(&crate::parse("null:").unwrap()), Ok(()));
        let none = Policy { namespaces: Some(Vec::new()), ..Policy::default() };
        let error = none.check(&crate::parse("tap:a,netns=red").unwrap()).unwrap_err();
        assert!(error.ends_with("allowed: none"), "{error}");
    }
}
