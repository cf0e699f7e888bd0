//! Resources of this process, which are counted to detect leaks and limited to make calls fail.

use std::fs;
use std::sync::Once;

use mqnet_sysio::eventfd::EventFd;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Numbers of descriptors, shared mappings and threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    pub descriptors: usize,
    pub mappings: usize,
    pub threads: usize,
}

impl Resources {
    /// Counts the resources in use. The first call creates those that exist once per process, so
    /// that every count includes them.
    pub fn now() -> Self {
        static KEPT: Once = Once::new();
        KEPT.call_once(|| {
            // The first signal to a peer creates the AIO context.
            EventFd::for_peer().and_then(|event| event.ring()).expect("an eventfd");
        });
        let count = |folder: &str| fs::read_dir(folder).expect("proc is mounted").count();
        let maps = fs::read_to_string("/proc/self/maps").expect("proc is mounted");
        let is_shared = |line: &&str| {
            line.split_whitespace().nth(1).is_some_and(|permissions| permissions.ends_with('s'))
        };
        Self {
            descriptors: count("/proc/self/fd"),
            mappings: maps.lines().filter(is_shared).count(),
            threads: count("/proc/self/task"),
        }
    }
}

/// Targets of this process's descriptors, for messages.
pub fn descriptors() -> Vec<String> {
    let open = fs::read_dir("/proc/self/fd").expect("proc is mounted");
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// Runs `call` with a limit that allows this process exactly `more` further descriptors; returns
/// its result.
pub fn with_descriptors<T>(more: usize, call: impl FnOnce() -> T) -> T {
    let open: Vec<u64> = fs::read_dir("/proc/self/fd")
        .expect("proc is mounted")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        // The listing contains its own descriptor, which is closed afterwards and therefore removed
        // from the list.
        .collect();
    let is_open = |fd: &u64| fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
    let open: Vec<u64> = open.into_iter().filter(is_open).collect();
    let free = (0..).filter(|fd| !open.contains(fd)).nth(more).expect("numbers have no end");
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, free, hard).expect("a lower limit");
    let result = call();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit of before");
    result
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    // Goal: exactly the requested number of descriptors can be opened.
    #[test]
    fn descriptors_are_limited_exactly() {
        for more in [0, 1, 5] {
            let opened = with_descriptors(more, || {
                let files: Vec<File> =
                    (0..more + 3).filter_map(|_| File::open("/dev/null").ok()).collect();
                files.len()
            });
            assert_eq!(opened, more);
        }
        assert!(File::open("/dev/null").is_ok());
    }
}
