//! Commands that end, and what `/proc` tells of processes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::stuck;
use crate::wait::until;

/// A verb that takes so long waits for something that may never come.
const SUSPICIOUS: Duration = Duration::from_secs(3);

/// Runs a command to its end (at most the deadline) and returns what it wrote.
#[track_caller]
pub fn run_command(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    finish(child, &format!("{command:?}"))
}

/// Waits for the end of a process and returns what it wrote.
#[track_caller]
pub(crate) fn finish(child: Child, what: &str) -> Output {
    let mut guard = Guard(child);
    let out = drain(guard.0.stdout.take());
    let err = drain(guard.0.stderr.take());
    let (start, mut told) = (Instant::now(), !what.contains("mqnet"));
    let status = until(what, || {
        if !told && start.elapsed() > SUSPICIOUS {
            told = true;
            println!("{what} has not ended yet:\n{}", stuck::everything());
        }
        guard.0.try_wait().expect("waiting for a child")
    });
    let text = |thread: JoinHandle<Vec<u8>>| thread.join().expect("a reader of a pipe");
    Output { status, stdout: text(out), stderr: text(err) }
}

/// A child that does not outlive its owner.
pub(crate) struct Guard(pub(crate) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Either fails for a child that has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).expect("reading a pipe");
        }
        bytes
    })
}

/// How many descriptors of each kind a process has open: `socket`, `eventfd`, memory, files and
/// devices with their names, and so on.
pub fn descriptor_kinds(pid: u32) -> BTreeMap<String, u64> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors of a process");
    let mut kinds = BTreeMap::new();
    // One that is closed at this moment has no target any more.
    for target in folder.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()) {
        *kinds.entry(kind_of(&target.to_string_lossy())).or_default() += 1;
    }
    kinds
}

/// The same of a process of ours whose control thread waits. It waits on copies, which it closes
/// before it does anything, so a look in the middle of a turn sees fewer than all others: one copy
/// is that of the signals, of which a process has one. A look is no snapshot, two that agree are.
#[track_caller]
pub fn waiting_descriptor_kinds(pid: u32) -> BTreeMap<String, u64> {
    until("a control thread that waits", || {
        let [look, again] = [descriptor_kinds(pid), descriptor_kinds(pid)];
        (look == again && look.get("signalfd") != Some(&1)).then_some(look)
    })
}

/// The kind of a descriptor, by what its link in `/proc` says.
fn kind_of(target: &str) -> String {
    if let Some(inode) = target.strip_prefix("anon_inode:") {
        return inode.trim_matches(['[', ']']).to_owned();
    }
    match target.split_once(":[") {
        Some((kind, _)) => kind.to_owned(),
        None if target.starts_with("/dev/") => target.to_owned(),
        None => match target.strip_prefix("/memfd:") {
            Some(name) => format!("memfd {}", name.trim_end_matches(" (deleted)")),
            None => format!("file {}", target.rsplit('/').next().unwrap_or_default()),
        },
    }
}

/// How many threads a process has.
pub fn threads(pid: u32) -> u64 {
    status_number(pid, "Threads:")
}

/// Resident memory of a process in KiB that it shares with nobody and no file.
pub fn anonymous_kib(pid: u32) -> u64 {
    status_number(pid, "RssAnon:")
}

/// Resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    status_number(pid, "VmRSS:")
}

fn status_number(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status of a process");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {key} in the status of {pid}"))
}

/// CPU time that a process has used, in clock ticks (100 a second on every Linux).
pub fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat of a process");
    // The name in brackets may hold anything; utime and stime are the 12th and 13th after it.
    let rest = stat.rsplit_once(')').expect("a name in brackets").1;
    let numbers: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| numbers[at].parse::<u64>().expect("a number of ticks");
    number(11) + number(12)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: descriptors are told apart by what they are, and one more of a kind is one more.
    #[test]
    fn descriptors_have_kinds() {
        for (target, kind) in [
            ("anon_inode:[eventfd]", "eventfd"),
            ("anon_inode:bpf-prog", "bpf-prog"),
            ("socket:[4711]", "socket"),
            ("/memfd:window (deleted)", "memfd window"),
            ("/dev/net/tun", "/dev/net/tun"),
            ("/tmp/x.log", "file x.log"),
        ] {
            assert_eq!(kind_of(target), kind);
        }
        // No other test here opens this device.
        let of = || descriptor_kinds(std::process::id()).get("/dev/zero").copied().unwrap_or(0);
        let before = of();
        let file = fs::File::open("/dev/zero");
        assert_eq!(of(), before + 1);
        drop(file);
        assert_eq!(of(), before);
    }

    // Goal: the numbers are those of the process that is asked for.
    #[test]
    fn own_numbers_are_plausible() {
        let pid = std::process::id();
        assert!(threads(pid) >= 1);
        assert!(resident_kib(pid) > 100);
        let descriptors = || descriptor_kinds(pid).values().sum::<u64>();
        let before = descriptors();
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat")).collect();
        // Other tests open and close files meanwhile.
        assert!(descriptors() >= before + 30);
        drop(files);
        assert!(ticks(pid) < 1_000_000);
    }
}
