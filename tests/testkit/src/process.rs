//! Commands that run to their end, and the state of processes in `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::stuck;
use crate::wait::until;

/// Time after which the state of all processes is printed for a running verb: the verb may wait for
/// an event that never occurs.
const SUSPICIOUS: Duration = Duration::from_secs(3);

/// Runs a command to its end and returns its output. Panics if the deadline expires.
#[track_caller]
pub fn run_command(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    finish(child, &format!("{command:?}"))
}

/// Waits for the end of a process and returns its output.
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

/// Child process that is killed when the guard is dropped.
pub(crate) struct Guard(pub(crate) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Both calls fail for a child that has already ended.
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

/// Number of open descriptors of a process, by kind: `socket`, `eventfd`, memory, files and devices
/// with their names, and so on.
pub fn descriptor_kinds(pid: u32) -> BTreeMap<String, u64> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors of a process");
    let mut kinds = BTreeMap::new();
    // Skip a descriptor that was closed after the listing: it has no target.
    for target in folder.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()) {
        *kinds.entry(kind_of(&target.to_string_lossy())).or_default() += 1;
    }
    kinds
}

/// Counts descriptors like [`descriptor_kinds`], for an mqnet process with an idle control thread.
/// While this thread waits, it holds duplicates of the descriptors that it polls, so a count at
/// another moment is too low. The process itself has one `signalfd`; a second one therefore shows
/// that the thread waits. Two equal results are required, because reading `/proc` is not atomic.
#[track_caller]
pub fn waiting_descriptor_kinds(pid: u32) -> BTreeMap<String, u64> {
    until("a control thread that waits", || {
        let [look, again] = [descriptor_kinds(pid), descriptor_kinds(pid)];
        (look == again && look.get("signalfd") != Some(&1)).then_some(look)
    })
}

/// Kind of a descriptor, from the target of its link in `/proc`.
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

/// Number of threads of a process.
pub fn threads(pid: u32) -> u64 {
    status_number(pid, "Threads:")
}

/// Resident anonymous memory of a process, in KiB.
pub fn anonymous_kib(pid: u32) -> u64 {
    status_number(pid, "RssAnon:")
}

/// Resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    status_number(pid, "VmRSS:")
}

fn status_number(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status of a process");
    number_in(&status, key).unwrap_or_else(|| panic!("no {key} in the status of {pid}"))
}

fn number_in(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Cost of a process without traffic.
#[derive(Clone, Copy, Debug)]
pub struct IdleCost {
    /// CPU time in clock ticks.
    pub ticks: u64,
    /// Number of voluntary context switches of the threads. Each is followed by a wake-up.
    pub sleeps: u64,
    /// Duration of the measurement.
    pub time: Duration,
}

impl IdleCost {
    /// Measures the process for `time`.
    pub fn measure(pid: u32, time: Duration) -> Self {
        let before = (ticks(pid), sleeps(pid));
        std::thread::sleep(time);
        Self { ticks: ticks(pid) - before.0, sleeps: sleeps(pid).saturating_sub(before.1), time }
    }

    /// CPU time in percent of a CPU.
    pub fn percent(&self) -> f64 {
        // A tick is 10 ms.
        self.ticks as f64 / self.time.as_secs_f64()
    }

    /// Fails unless the threads sleep with at most `sleeps` wake-ups per second. Also fails above
    /// 10 % of a CPU, to detect a thread that spins. This limit is ten times the goal, because CPU
    /// time depends on the machine and wake-ups do not.
    pub fn assert_below(&self, sleeps: u64) {
        let per_second = self.sleeps as f64 / self.time.as_secs_f64();
        assert!(per_second <= sleeps as f64, "{per_second} wake-ups per second: {self:?}");
        assert!(self.percent() < 10.0, "{self:?}");
    }
}

/// Sum of the voluntary context switches of the living threads of a process. The sum decreases when
/// a thread ends.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads of a process");
    let statuses = tasks.flatten().filter_map(|task| {
        // Skip a thread that has ended since the listing.
        fs::read_to_string(task.path().join("status")).ok()
    });
    statuses.map(|status| number_in(&status, "voluntary_ctxt_switches:").unwrap_or(0)).sum()
}

/// CPU time of a process in clock ticks (100 per second on every Linux).
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat of a process");
    // The name in brackets may hold any character; utime and stime are fields 12 and 13 after it.
    let rest = stat.rsplit_once(')').expect("a name in brackets").1;
    let numbers: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| numbers[at].parse::<u64>().expect("a number of ticks");
    number(11) + number(12)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: descriptors are classified by their target, and one more descriptor of a kind adds one.
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
        // No other test of this process opens this device.
        let of = || descriptor_kinds(std::process::id()).get("/dev/zero").copied().unwrap_or(0);
        let before = of();
        let file = fs::File::open("/dev/zero");
        assert_eq!(of(), before + 1);
        drop(file);
        assert_eq!(of(), before);
    }

    // Goal: the numbers of the test process itself are plausible, and count its descriptors.
    #[test]
    fn own_numbers_are_plausible() {
        let pid = std::process::id();
        assert!(threads(pid) >= 1);
        assert!(resident_kib(pid) > 100);
        let descriptors = || descriptor_kinds(pid).values().sum::<u64>();
        let before = descriptors();
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat")).collect();
        // Other tests open and close files at the same time.
        assert!(descriptors() >= before + 30);
        drop(files);
        assert!(ticks(pid) < 1_000_000);
    }
}
