//! Interrupt affinity and XPS of kernel interfaces, restored when the settings are dropped.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use mqnet_topology::nic;
use mqnet_topology::{format_cpu_list, format_cpu_mask, parse_cpu_list, parse_cpu_mask};
use mqnet_undo::{Setting, SettingNetns, Undo, Value};

/// Settings for one queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Name of the interface, or the PCI address of a function that mqnet drives. Queue numbers of
    /// such a function are its vectors.
    pub(crate) interface: String,
    /// Network namespace of the interface, if it differs from this process's.
    pub(crate) netns: Option<PathBuf>,
    pub(crate) queue: u16,
    /// CPU for the interrupts of the queue.
    pub(crate) irq_cpu: usize,
    /// CPUs that send through the queue.
    pub(crate) senders: Vec<usize>,
}

/// Text format of a CPU set in a file.
#[derive(Clone, Copy, Debug)]
enum Format {
    List,
    /// Mask with digits for this number of CPUs.
    Mask(usize),
}

impl Format {
    fn write(self, cpus: &[usize]) -> String {
        match self {
            Self::List => format_cpu_list(cpus),
            Self::Mask(width) => format_cpu_mask(cpus, width),
        }
    }

    fn read(self, text: &str) -> Option<Vec<usize>> {
        match self {
            Self::List => parse_cpu_list(text.trim()).ok(),
            Self::Mask(_) => parse_cpu_mask(text).ok(),
        }
    }
}

/// CPUs and their text format.
type Goal<'a> = (Format, &'a [usize]);

/// Changed settings, restored on drop.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    changed: Vec<Undo>,
    /// Messages about changed settings and failures.
    pub(crate) lines: Vec<String>,
    /// Number of settings that could not be changed.
    pub(crate) failed: usize,
}

impl Applied {
    /// Applies the settings below `root`, which is `/` except in tests. A setting that fails is
    /// reported; the others are applied anyway.
    pub(crate) fn apply(root: &Path, wanted: &[Wanted]) -> Self {
        let mut applied = Self::default();
        for part in wanted.chunk_by(|one, next| one.netns == next.netns) {
            let netns = part[0].netns.as_deref();
            let done = SettingNetns::open(netns)
                .and_then(|place| place.enter(true, || applied.apply_here(root, part, &place)));
            let Err(e) = done else { continue };
            let place = netns.map(|place| place.display().to_string()).unwrap_or_default();
            if e.kind() == ErrorKind::PermissionDenied {
                // A missing privilege is information, not a failure: a warning at every start is
                // too much.
                applied.lines.push(format!("{place}: nothing placed there: needs CAP_SYS_ADMIN"));
            } else {
                applied.fail(format!("{place}: {e}"));
            }
        }
        applied
    }

    fn apply_here(&mut self, root: &Path, wanted: &[Wanted], place: &SettingNetns) {
        let mask = Format::Mask(nic::cpu_numbers(root));
        for one in wanted {
            let nic = nic::read(root, &one.interface);
            let Some(nic) = nic.or_else(|| nic::read_pci(root, &one.interface)) else {
                self.fail(format!("{}: no such interface", one.interface));
                continue;
            };
            let inside = one.netns.as_ref().map(|netns| format!(" in {}", netns.display()));
            let inside = inside.unwrap_or_default();
            let queue = format!("{}{inside} queue {}", one.interface, one.queue);
            for irq in nic.irqs_of(one.queue) {
                let file = root.join(format!("proc/irq/{irq}/smp_affinity_list"));
                let what = format!("{queue}: irq {irq}");
                // Interrupts have no network namespace.
                self.set(&what, file, &SettingNetns::here(), (Format::List, &[one.irq_cpu]));
            }
            // An interface with a single TX queue has no XPS file.
            if nic.tx_queues > 1 && one.queue < nic.tx_queues {
                let interface = root.join("sys/class/net").join(&one.interface);
                let file = interface.join(format!("queues/tx-{}/xps_cpus", one.queue));
                self.set(&format!("{queue}: xps"), file, place, (mask, &one.senders));
            }
        }
    }

    fn fail(&mut self, what: String) {
        self.failed += 1;
        self.lines.push(what);
    }

    fn set(&mut self, what: &str, file: PathBuf, place: &SettingNetns, (format, cpus): Goal<'_>) {
        let setting = Setting::File(file.clone());
        let done = setting.read().and_then(|before| {
            let was = format.read(&before.to_string());
            if was.as_deref() == Some(cpus) {
                return Ok(None);
            }
            let undo = Undo::set(place, setting, before, &Value::Text(format.write(cpus)))?;
            Ok(Some((undo, was.unwrap_or_default())))
        });
        match done {
            Ok(None) => self.lines.push(format!("{what}: {} already", format_cpu_list(cpus))),
            Ok(Some((undo, was))) => {
                let was = if was.is_empty() { "none".to_owned() } else { format_cpu_list(&was) };
                self.lines.push(format!("{what}: {} (was {was})", format_cpu_list(cpus)));
                self.changed.push(undo);
            }
            Err(e) => self.fail(format!("{what}: {}: {}", file.display(), explain(&e))),
        }
    }

    /// Restores the old settings, the last change first, and returns the failures. A setting that
    /// another program has changed in the meantime is kept.
    pub(crate) fn put_back(&mut self) -> Vec<String> {
        mqnet_undo::put_back(std::mem::take(&mut self.changed))
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        for what in self.put_back() {
            tracing::warn!("placement: {what}");
        }
    }
}

fn explain(e: &Error) -> String {
    match e.kind() {
        ErrorKind::PermissionDenied => {
            format!("{e} (needs root; an interrupt that the kernel manages cannot be moved)")
        }
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let tree =
                Self(std::env::temp_dir().join(format!("mqnet-{name}-{}", std::process::id())));
            let nic = "sys/class/net/eth0";
            tree.put(&format!("{nic}/device/numa_node"), "0");
            tree.put("sys/devices/system/cpu/possible", "0-39");
            for (irq, action) in [(30, "eth0-TxRx-0"), (31, "eth0-TxRx-1"), (32, "eth0-misc")] {
                tree.put(&format!("{nic}/device/msi_irqs/{irq}"), "msix");
                tree.put(&format!("sys/kernel/irq/{irq}/actions"), action);
                tree.put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-39");
            }
            for queue in 0..2 {
                tree.put(&format!("{nic}/queues/tx-{queue}/xps_cpus"), "00,00000000");
            }
            tree
        }

        fn put(&self, file: &str, text: &str) {
            let file = self.0.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }

        fn get(&self, file: &str) -> String {
            fs::read_to_string(self.0.join(file)).unwrap().trim().to_owned()
        }

        fn state(&self) -> Vec<String> {
            let irqs = [30, 31, 32].map(|irq| format!("proc/irq/{irq}/smp_affinity_list"));
            let xps = [0, 1].map(|tx| format!("sys/class/net/eth0/queues/tx-{tx}/xps_cpus"));
            irqs.iter().chain(&xps).map(|file| self.get(file)).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn wanted() -> [Wanted; 2] {
        let interface = "eth0".to_owned();
        [
            Wanted {
                interface: interface.clone(),
                netns: None,
                queue: 0,
                irq_cpu: 3,
                senders: vec![0, 3, 33],
            },
            Wanted { interface, netns: None, queue: 1, irq_cpu: 4, senders: vec![4] },
        ]
    }

    // Goal: each queue's interrupt and sender CPUs are set in the kernel's formats, the link
    // interrupt is unchanged, and all settings are restored at the end.
    #[test]
    fn set_and_put_back() {
        let tree = Tree::new("apply");
        let before = tree.state();
        let mut applied = Applied::apply(&tree.0, &wanted());
        assert_eq!(tree.state(), ["3", "4", "0-39", "02,00000009", "00,00000010"]);
        assert_eq!((applied.failed, applied.lines.len()), (0, 4));
        assert_eq!(applied.lines[0], "eth0 queue 0: irq 30: 3 (was 0-39)");
        assert_eq!(applied.lines[1], "eth0 queue 0: xps: 0,3,33 (was none)");
        let again = Applied::apply(&tree.0, &wanted());
        assert!(again.lines.iter().all(|line| line.ends_with(" already")), "{:?}", again.lines);
        drop(again);
        assert_eq!(tree.get("proc/irq/30/smp_affinity_list"), "3");
        assert!(applied.put_back().is_empty());
        assert_eq!(tree.state(), before);
    }

    // Goal: `drop` restores the settings. A setting changed by another program is kept, and a
    // removed device is not a failure.
    #[test]
    fn others_changes_are_theirs() {
        let tree = Tree::new("theirs");
        let mut applied = Applied::apply(&tree.0, &wanted());
        tree.put("proc/irq/30/smp_affinity_list", "7");
        fs::remove_file(tree.0.join("proc/irq/31/smp_affinity_list")).unwrap();
        let lines = applied.put_back();
        assert!(lines.len() == 1 && lines[0].contains("changed since"), "{lines:?}");
        assert_eq!(tree.get("proc/irq/30/smp_affinity_list"), "7");
        assert_eq!(tree.get("sys/class/net/eth0/queues/tx-0/xps_cpus"), "00,00000000");
        tree.put("proc/irq/31/smp_affinity_list", "0-39");
        drop(Applied::apply(&tree.0, &wanted()));
        assert_eq!(tree.get("proc/irq/30/smp_affinity_list"), "7");
    }

    // Goal: a setting that fails is reported with file and reason, and the others are applied.
    #[test]
    fn failures_are_reported() {
        let tree = Tree::new("reported");
        fs::remove_file(tree.0.join("proc/irq/30/smp_affinity_list")).unwrap();
        let absent = Wanted { interface: "absent".into(), ..wanted()[0].clone() };
        let wanted = [absent, wanted()[0].clone(), wanted()[1].clone()];
        let applied = Applied::apply(&tree.0, &wanted);
        assert_eq!(applied.failed, 2);
        assert_eq!(applied.lines[0], "absent: no such interface");
        assert!(applied.lines[1].contains("proc/irq/30/smp_affinity_list: No such file"));
        assert_eq!(tree.state_of_second(), ["4", "00,00000010"]);
    }

    impl Tree {
        fn state_of_second(&self) -> [String; 2] {
            [
                self.get("proc/irq/31/smp_affinity_list"),
                self.get("sys/class/net/eth0/queues/tx-1/xps_cpus"),
            ]
        }
    }
}
