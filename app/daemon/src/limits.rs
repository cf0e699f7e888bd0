//! Applies limits and policy of the configuration.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqnet_address::config::{Limits, Policy, is_below};
use mqnet_address::{CheckedLink, Endpoint};
use mqnet_control_api::{ApiError, Code};
use mqnet_sysio::{bounded, rate};

use crate::log;

/// Time limit for resolving a path.
const PATH_LIMIT: Duration = Duration::from_millis(500);

/// Applies the limits; absent limits get their defaults.
pub(crate) fn apply(limits: &Limits) {
    mqnet_shmem::set_peer_memory(limits.memory);
    mqnet_vhost_user::set_memory_max(limits.link_memory);
    rate::set_connections(limits.connections.unwrap_or(rate::CONNECTIONS_DEFAULT));
    log::set_rate(limits.log_lines.unwrap_or(log::PER_SECOND_DEFAULT));
}

/// Resolves symbolic links in the folder of `path`; the last component need not exist.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let name = path.file_name().unwrap_or(OsStr::new("")).to_owned();
    let found = bounded::run(PATH_LIMIT, move || folder.canonicalize().map(|at| at.join(name)));
    // Keep the path if its folder does not exist or does not respond: nothing can be opened there.
    found.and_then(|found| found).unwrap_or_else(|_| path.to_owned())
}

fn check_end(policy: &Policy, end: &Endpoint) -> Result<(), String> {
    if let Endpoint::Group(group) = end {
        return group.members.iter().try_for_each(|member| check_end(policy, member));
    }
    policy.check(end)?;
    let end = end.config();
    let namespace = end.namespace().map(Into::into);
    let named = [(&policy.paths, end.path()), (&policy.namespaces, namespace)];
    for (allowed, path) in named {
        let (Some(allowed), Some(path)) = (allowed, path) else { continue };
        let there = real(&path);
        let folders: Vec<PathBuf> = allowed.iter().map(|folder| real(folder)).collect();
        if !is_below(&there, allowed) && !is_below(&there, &folders) {
            let (path, there) = (path.display(), there.display());
            return Err(format!("{path} leads to {there}, which the policy does not allow"));
        }
    }
    Ok(())
}

/// Checks that the policy allows a request to add this link.
pub(crate) fn check(policy: &Policy, link: &CheckedLink) -> Result<(), ApiError> {
    for (field, end) in [("a", &link.a), ("b", &link.b)] {
        check_end(policy, end).map_err(|why| ApiError {
            field: Some(field.to_owned()),
            ..ApiError::new(Code::Permission, format!("{field}: {why}"))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a symbolic link that leads out of an allowed folder is refused.
    #[test]
    fn links_lead_nowhere_else() {
        let folder = std::env::temp_dir().join(format!("mqnet-policy-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("vms")).unwrap();
        let _ = std::os::unix::fs::symlink("/", folder.join("vms/out"));
        let policy = Policy { paths: Some(vec![folder.join("vms")]), ..Policy::default() };
        let check = |path: &str| {
            let address = format!("vhost-user:{}/vms/{path}", folder.display());
            check_end(&policy, &mqnet_address::parse(&address).unwrap())
        };
        assert_eq!(check("x.sock"), Ok(()));
        assert_eq!(check("missing/x.sock"), Ok(()));
        assert!(check("out/x.sock").unwrap_err().contains("leads to /x.sock"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
