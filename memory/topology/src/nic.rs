//! Network interfaces in sysfs: their NUMA node and the interrupts of their queues.

use std::fs;
use std::path::{Path, PathBuf};

use crate::parse_cpu_list;

/// Interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Irq {
    /// Interrupt number.
    pub number: u32,
    /// Queue that the interrupt serves, or `None` if the interrupt's name contains no queue number.
    pub queue: Option<u16>,
    /// Name given by the driver.
    pub name: String,
}

/// Interface of the kernel, with the properties that placement needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicInfo {
    /// Interface name.
    pub name: String,
    /// NUMA node, or `None` if it is unknown or the interface has no hardware.
    pub node: Option<u32>,
    /// Interrupts, ascending by number.
    pub irqs: Vec<Irq>,
    /// Number of TX queues.
    pub tx_queues: u16,
    /// Number of RX queues.
    pub rx_queues: u16,
}

impl NicInfo {
    /// Interrupt numbers of a queue: two if RX and TX have one each.
    pub fn irqs_of(&self, queue: u16) -> impl Iterator<Item = u32> {
        self.irqs.iter().filter(move |irq| irq.queue == Some(queue)).map(|irq| irq.number)
    }
}

/// Queue number at the end of an interrupt's name, such as `virtio1-input.0`, `eth0-TxRx-3` or
/// `mlx5_comp2@pci:0000:08:00.0`; `None` for interrupts for other purposes.
pub fn queue_of(action: &str, interface: &str) -> Option<u16> {
    let name = action.split('@').next().unwrap_or_default().trim();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let other = ["async", "config", "ctrl", "admin", "mgmnt", "misc", "aux", "event", "link"];
    let lower = stem.to_ascii_lowercase();
    // A bare interface name, or the name of a driver instance, may end in a number of another
    // meaning.
    if name == interface || stem.is_empty() || other.iter().any(|word| lower.contains(word)) {
        return None;
    }
    name[stem.len()..].parse().ok()
}

/// Vector number in the interrupt name of vfio-pci: `vfio-msix[3](0000:00:04.0)`.
fn vector_of(action: &str) -> Option<u16> {
    let (number, _) = action.trim().strip_prefix("vfio-msi")?.split_once('[')?.1.split_once(']')?;
    number.parse().ok()
}

/// True if the name is a valid interface name and also a safe path component.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && c != '/' && !c.is_control();
    (1..16).contains(&name.len()) && name != "." && name != ".." && name.chars().all(plain)
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn entries(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the bus device. For a virtio interface this is the parent device.
fn bus_device(interface: &Path) -> Option<PathBuf> {
    ["device", "device/.."]
        .map(|there| interface.join(there))
        .into_iter()
        .find(|device| device.join("numa_node").exists() || device.join("msi_irqs").exists())
}

/// Reads an interface below `root` (`/`, except in tests). Returns `None` if it does not exist.
pub fn read(root: &Path, name: &str) -> Option<NicInfo> {
    let interface = root.join("sys/class/net").join(name);
    if !is_name(name) || !interface.exists() {
        return None;
    }
    let device = bus_device(&interface);
    let node = device.as_ref().and_then(|device| text(&device.join("numa_node"))?.parse().ok());
    let of_name = |action: &str| queue_of(action, name);
    let irqs = device.as_ref().map(|device| irqs(root, device, of_name)).unwrap_or_default();
    let queues = entries(&interface.join("queues"));
    let count = |kind: &str| queues.iter().filter(|q| q.starts_with(kind)).count();
    let [tx_queues, rx_queues] = ["tx-", "rx-"].map(|kind| count(kind).min(1 << 15) as u16);
    Some(NicInfo { name: name.to_owned(), node, irqs, tx_queues, rx_queues })
}

/// Reads a PCI function that is driven through vfio-pci. Its vectors count as queues. Returns
/// `None` if the function does not exist.
pub fn read_pci(root: &Path, address: &str) -> Option<NicInfo> {
    let device = root.join("sys/bus/pci/devices").join(address);
    if !is_name(address) || !device.exists() {
        return None;
    }
    let node = text(&device.join("numa_node")).and_then(|text| text.parse().ok());
    let irqs = irqs(root, &device, vector_of);
    Some(NicInfo { name: address.to_owned(), node, irqs, tx_queues: 0, rx_queues: 0 })
}

/// Interrupts of a device, with the queue in each name.
fn irqs(root: &Path, device: &Path, queue_of: impl Fn(&str) -> Option<u16>) -> Vec<Irq> {
    let one = |number: String| {
        let actions = text(&root.join("sys/kernel/irq").join(&number).join("actions"))?;
        let queue = actions.split(',').find_map(&queue_of);
        Some(Irq { number: number.parse().ok()?, queue, name: actions })
    };
    let mut irqs: Vec<Irq> =
        entries(&device.join("msi_irqs")).into_iter().filter_map(one).collect();
    irqs.sort_unstable_by_key(|irq| irq.number);
    irqs
}

/// Number of possible CPUs, which is the width of the kernel's masks.
pub fn cpu_numbers(root: &Path) -> usize {
    let possible = text(&root.join("sys/devices/system/cpu/possible"));
    let list = possible.and_then(|list| parse_cpu_list(&list).ok()).unwrap_or_default();
    list.last().map_or(1, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    // Goal: interrupt names of real drivers yield the queue. Names for link, configuration and
    // administration yield none.
    #[test]
    fn interrupt_names_yield_queues() {
        for (action, queue) in [
            ("virtio1-input.0", Some(0)),
            ("virtio1-output.12", Some(12)),
            ("virtio1-config", None),
            ("eth0-TxRx-3", Some(3)),
            ("i40e-eth0-TxRx-7", Some(7)),
            ("eth0", None),
            ("mlx5_comp2@pci:0000:08:00.0", Some(2)),
            ("mlx5_async0@pci:0000:08:00.0", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("eth0-Tx-Rx-1", Some(1)),
            ("gve-ntfy-blk4@pci:0000:00:04.0", Some(4)),
            ("99999", None),
            ("", None),
        ] {
            assert_eq!(queue_of(action, "eth0"), queue, "{action}");
        }
    }

    fn put(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    // Goal: node and interrupts of a virtio interface are those of its parent. A node of -1 and an
    // interface without hardware yield no node, and a path is not a valid name.
    #[test]
    fn interfaces_are_read() {
        let root = std::env::temp_dir().join(format!("mqnet-nic-{}", std::process::id()));
        let pci = "sys/devices/pci0000:40/0000:41:00.0";
        put(&root, &format!("{pci}/numa_node"), "1\n");
        put(&root, &format!("{pci}/virtio0/features"), "0\n");
        for (irq, action) in
            [(27, "virtio0-output.0"), (26, "virtio0-input.0"), (25, "virtio0-config")]
        {
            put(&root, &format!("{pci}/msi_irqs/{irq}"), "msix\n");
            put(&root, &format!("sys/kernel/irq/{irq}/actions"), &format!("{action}\n"));
        }
        for queue in ["tx-0", "tx-1", "rx-0"] {
            fs::create_dir_all(root.join("sys/class/net/eth0/queues").join(queue)).unwrap();
        }
        symlink(root.join(pci).join("virtio0"), root.join("sys/class/net/eth0/device")).unwrap();
        put(&root, "sys/class/net/eth1/device/numa_node", "-1\n");
        put(&root, "sys/class/net/veth0/mtu", "1500\n");
        put(&root, "sys/devices/system/cpu/possible", "0-39\n");

        let nic = read(&root, "eth0").unwrap();
        assert_eq!((nic.node, nic.tx_queues, nic.rx_queues), (Some(1), 2, 1));
        assert_eq!(nic.irqs.iter().map(|irq| irq.number).collect::<Vec<_>>(), [25, 26, 27]);
        assert_eq!(nic.irqs_of(0).collect::<Vec<_>>(), [26, 27]);
        assert_eq!(read(&root, "eth1").unwrap().node, None);
        assert_eq!(
            read(&root, "veth0").unwrap(),
            NicInfo { name: "veth0".into(), ..NicInfo::default() }
        );
        for bad in ["driver", "", "..", "../../etc", "a/b"] {
            assert_eq!(read(&root, bad), None, "{bad}");
        }
        assert_eq!(cpu_numbers(&root), 40);
        fs::remove_dir_all(&root).unwrap();
    }

    // Goal: vectors of a vfio-pci function are found by interrupt names, and other names yield no
    // vector. A path is not a valid address.
    #[test]
    fn vfio_functions_are_read() {
        let root = std::env::temp_dir().join(format!("mqnet-vfio-{}", std::process::id()));
        let pci = "sys/bus/pci/devices/0000:00:04.0";
        put(&root, &format!("{pci}/numa_node"), "-1\n");
        for (irq, action) in [
            (31, "vfio-msix[1](0000:00:04.0)"),
            (30, "vfio-msix[0](0000:00:04.0)"),
            (32, "vfio-intx(0000:00:04.0)"),
            (33, "virtio0-input.0"),
            (34, ""),
        ] {
            put(&root, &format!("{pci}/msi_irqs/{irq}"), "msix\n");
            put(&root, &format!("sys/kernel/irq/{irq}/actions"), &format!("{action}\n"));
        }
        let nic = read_pci(&root, "0000:00:04.0").unwrap();
        assert_eq!((nic.node, nic.tx_queues, nic.irqs.len()), (None, 0, 5));
        let of = |vector| nic.irqs_of(vector).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2)), (vec![30], vec![31], vec![]));
        for bad in ["0000:00:05.0", "", "..", "../pci"] {
            assert_eq!(read_pci(&root, bad), None, "{bad}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        // Goal: for any interrupt name the result is the number at its end, or none.
        #[test]
        fn arbitrary_names_do_not_panic(action in "\\PC{0,20}", number in 0u16..5000) {
            if let Some(queue) = queue_of(&action, "eth0") {
                let name = action.split('@').next().unwrap().trim();
                prop_assert!(name.ends_with(&queue.to_string()));
            }
            prop_assert_eq!(queue_of(&format!("x-rx-{number}"), "eth0"), Some(number));
        }
    }
}
