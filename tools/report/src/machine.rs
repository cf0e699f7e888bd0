//! Description of the measured machine.

use std::fs;

use serde::{Deserialize, Serialize};

/// Machine as described by the kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cpus: usize,
    pub(super) nodes: usize,
    pub(super) virtual_machine: bool,
    pub(super) memory_gib: f64,
    pub(super) kernel: String,
    pub(super) system: String,
    /// One-minute load average at the start of the run.
    pub(super) load: f64,
}

impl Machine {
    pub(super) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let (memory, system) = (read("/proc/meminfo"), read("/etc/os-release"));
        let kilobytes = field(&memory, "MemTotal", ':').and_then(|text| {
            text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
        });
        let flags = field(&cpuinfo, "flags", ':').unwrap_or_default();
        let load = read("/proc/loadavg");
        Self {
            cpu: field(&cpuinfo, "model name", ':').unwrap_or("unknown").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            nodes: nodes(),
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            memory_gib: kilobytes.map_or(0.0, |kilobytes| kilobytes / 1_048_576.0),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: field(&system, "PRETTY_NAME", '=').unwrap_or("unknown").replace('"', ""),
            load: load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default(),
        }
    }
}

/// Value of the line with `name` before `separator`; `None` if there is no such line.
fn field<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn nodes() -> usize {
    let Ok(folder) = fs::read_dir("/sys/devices/system/node") else { return 1 };
    let number = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    let nodes = folder.flatten().filter(|entry| entry.file_name().to_str().is_some_and(number));
    nodes.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a field is found by its whole name; blanks around name and value are removed.
    #[test]
    fn fields_are_found() {
        let text = "model\t\t: 7\nmodel name\t: Some CPU @ 2:1\n";
        assert_eq!(field(text, "model name", ':'), Some("Some CPU @ 2:1"));
        assert_eq!(field(text, "name", ':'), None);
        assert!(Machine::this().cpus > 0);
    }
}
