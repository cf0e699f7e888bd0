//! State of processes that keep a test waiting, printed while they still run.

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Describes every `mqnet` process: state, system call and kernel stack of each thread, open
/// descriptors, epoll sets. Threads of other processes are listed with their kernel stack if they
/// wait uninterruptibly (state D), because they may hold a lock.
pub(crate) fn everything() -> String {
    let mut text = String::new();
    for process in entries(Path::new("/proc")) {
        // Writing to a `String` cannot fail.
        let _ = if read(&process.join("comm")).trim() == "mqnet" {
            describe(&mut text, &process)
        } else {
            waits(&mut text, &process)
        };
    }
    text
}

fn waits(text: &mut String, process: &Path) -> std::fmt::Result {
    for task in entries(&process.join("task")) {
        if read(&task.join("status")).lines().any(|line| line.starts_with("State:\tD")) {
            let of = |name: &str| read(&task.join(name)).trim().replace('\n', " < ");
            writeln!(text, "{}: {} waits: {}", task.display(), of("comm"), of("stack"))?;
        }
    }
    Ok(())
}

fn describe(text: &mut String, process: &Path) -> std::fmt::Result {
    let command = read(&process.join("cmdline")).replace('\0', " ");
    writeln!(text, "{}: {command}", process.display())?;
    for task in entries(&process.join("task")) {
        let of = |name: &str| read(&task.join(name)).trim().replace('\n', " < ");
        let (status, comm) = (read(&task.join("status")), of("comm"));
        let state = status.lines().find_map(|line| line.strip_prefix("State:\t")).unwrap_or("?");
        let (system_call, stack) = (of("syscall"), of("stack"));
        // Nanoseconds on a CPU, nanoseconds of waiting for a CPU, number of time slices.
        let times = of("schedstat");
        writeln!(text, "  {comm}: {state}; ran {times}; system call {system_call}; {stack}")?;
    }
    for descriptor in entries(&process.join("fd")) {
        let target = fs::read_link(&descriptor).unwrap_or_default();
        let number = descriptor.file_name().unwrap_or_default();
        writeln!(text, "  {}: {}", number.display(), target.display())?;
        if target.to_string_lossy().contains("eventpoll") {
            let info = read(&process.join("fdinfo").join(number));
            for watched in info.lines().filter(|line| line.starts_with("tfd")) {
                writeln!(text, "    {watched}")?;
            }
        }
    }
    Ok(())
}

/// Reads a file; returns an empty text if the file cannot be read.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let list = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> = list.map(|entry| entry.path()).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: threads and descriptors of a process are described.
    #[test]
    fn a_process_is_described() {
        let mut text = String::new();
        describe(&mut text, Path::new("/proc/self")).unwrap();
        assert!(text.contains(": R (running); ") && text.contains("  0: "), "{text}");
    }
}
