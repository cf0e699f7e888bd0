//! Bus in a guest: the PCI function, through VFIO if vfio-pci is bound to it, otherwise through
//! sysfs. Only VFIO has interrupts for user space; with sysfs, mqnet polls the doorbell words.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mqnet_netdev::{HardwareDevice, Vectors};
use mqnet_shmem::Region;
use mqnet_sysio::eventfd::EventFd;
use mqnet_sysio::file_lock::FileLock;
use mqnet_sysio::vfio;

use super::card::{DOORBELLS, vectors_of_queues};
use super::wake::Via;
use super::{Attachment, Bus, check_size};

const DEVICES: &str = "/sys/bus/pci/devices";
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";

/// Base address registers: registers of the device, MSI-X table, shared memory.
const REGISTERS: usize = 0;
const MSIX: usize = 1;
const MEMORY: usize = 2;

/// Number of mapped bytes of the registers, and the offset of IVPosition, this end's number.
const REGISTERS_LEN: usize = 256;
const POSITION: usize = 8;

/// Delay between two attempts to open the device.
const RETRY: Duration = Duration::from_secs(1);

struct Opened {
    folder: PathBuf,
    attachment: Attachment,
    /// Registers of the device; `None` for a device without doorbells.
    registers: Option<Arc<Region>>,
    _vfio: Option<vfio::VfioDevice>,
    _lock: Option<FileLock>,
}

/// Bus over a PCI function. A failed open is repeated after [`RETRY`].
pub(super) struct Pci {
    address: Option<String>,
    opened: Option<Opened>,
    retry_at: Duration,
    why: String,
}

/// File and range of the memory of a base address register.
struct Bar {
    file: OwnedFd,
    offset: u64,
    len: u64,
}

impl Bar {
    fn map(&self, offset: u64, len: usize) -> Result<Arc<Region>, String> {
        let file = self.file.try_clone().map_err(|e| e.to_string())?;
        let region = Region::of_device(file, self.offset + offset, len);
        region.map(Arc::new).map_err(|e| e.to_string())
    }
}

fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// File name of the target of a symbolic link.
fn points_at(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

fn is_ours(folder: &Path) -> bool {
    let is = |file: &str, value: &str| read(&folder.join(file)).is_ok_and(|text| text == value);
    is("vendor", VENDOR) && is("device", DEVICE)
}

/// Folder of the ivshmem function with this address, or of the only one. `Err` if no function
/// matches, or several do; the text then names them.
fn find(root: &Path, address: Option<&str>) -> Result<PathBuf, String> {
    if let Some(address) = address {
        let folder = root.join(address);
        return match (folder.exists(), is_ours(&folder)) {
            (_, true) => Ok(folder),
            (true, false) => {
                Err(format!("PCI function {address} is not an ivshmem device (1af4:1110)"))
            }
            (false, false) => Err(format!("there is no PCI function {address}")),
        };
    }
    let all = fs::read_dir(root).map_err(|e| format!("{}: {e}", root.display()))?;
    let mut found: Vec<PathBuf> =
        all.flatten().map(|entry| entry.path()).filter(|path| is_ours(path)).collect();
    found.sort();
    match (found.pop(), found.as_slice()) {
        (Some(only), []) => Ok(only),
        (Some(last), others) => {
            let names = others.iter().chain([&last]).filter_map(|path| path.file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            Err(format!("several ivshmem devices: name one of {}", names.join(", ")))
        }
        (None, _) => Err("no ivshmem device (PCI 1af4:1110) here".to_owned()),
    }
}

/// Lengths of the first three base address registers, from the text of the sysfs file `resource`.
/// Each line has begin, end and flags of one register; an empty or invalid line gives 0.
fn lengths(text: &str) -> [u64; 3] {
    let mut lines = text.lines();
    std::array::from_fn(|_| {
        let mut numbers = lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0));
        match (numbers.next(), numbers.next()) {
            (Some(begin), Some(end)) if end > begin => end - begin + 1,
            _ => 0,
        }
    })
}

/// Opens registers and memory through sysfs, and locks the memory's file; `Err` if this fails or
/// another process has the lock.
fn by_sysfs(folder: &Path, lengths: [u64; 3]) -> Result<([Bar; 2], FileLock), String> {
    let enable = folder.join("enable");
    if read(&enable)? == "0" {
        fs::write(&enable, "1").map_err(|e| format!("{}: {e}", enable.display()))?;
    }
    let bar = |number: usize| {
        let path = folder.join(format!("resource{number}"));
        let file = fs::File::options().read(true).write(true).open(&path);
        let file = file.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, String>(Bar { file: file.into(), offset: 0, len: lengths[number] })
    };
    let bars = [bar(REGISTERS)?, bar(MEMORY)?];
    let memory = fs::File::open(folder.join(format!("resource{MEMORY}")));
    let lock = memory.and_then(FileLock::of);
    let lock = lock.map_err(|e| format!("{}: {e}", folder.display()))?;
    let lock = lock.ok_or("another process uses this ivshmem device")?;
    Ok((bars, lock))
}

/// Opens registers and memory through VFIO.
fn by_vfio(folder: &Path, address: &str) -> Result<([Bar; 2], vfio::VfioDevice), String> {
    let said = |e: std::io::Error| format!("{address} is bound to vfio-pci: {e}");
    let group = points_at(&folder.join("iommu_group")).and_then(|name| name.parse().ok());
    let group = group.ok_or_else(|| format!("{address} is bound to vfio-pci without an IOMMU"))?;
    let device = vfio::VfioDevice::open(address, group).map_err(said)?;
    device.enable().map_err(said)?;
    let bar = |number: usize| {
        let place = device.bar(number as u32).map_err(said)?;
        let file = device.as_fd().try_clone_to_owned().map_err(said)?;
        Ok::<_, String>(Bar { file, offset: place.offset, len: place.len })
    };
    Ok(([bar(REGISTERS)?, bar(MEMORY)?], device))
}

/// One event for each interrupt vector, at most as many as a side has doorbells.
fn vectors(device: &vfio::VfioDevice) -> std::io::Result<Vec<Arc<EventFd>>> {
    let count = (device.vectors()? as usize).min(DOORBELLS);
    let events = (0..count).map(|_| EventFd::new().map(Arc::new));
    let events = events.collect::<std::io::Result<Vec<_>>>()?;
    if !events.is_empty() {
        device.ring_on_interrupt(events.iter().map(|event| &**event))?;
    }
    Ok(events)
}

fn open(root: &Path, address: Option<&str>) -> Result<Opened, String> {
    let folder = find(root, address)?;
    let address = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let lengths = lengths(&read(&folder.join("resource"))?);
    let (bars, vfio, lock) = match points_at(&folder.join("driver")).as_deref() {
        Some("vfio-pci") => {
            let (bars, device) = by_vfio(&folder, &address)?;
            (bars, Some(device), None)
        }
        _ => {
            let (bars, lock) = by_sysfs(&folder, lengths)?;
            (bars, None, Some(lock))
        }
    };
    let [registers, memory] = bars;
    let half = check_size(memory.len)?;
    // A device without interrupts has no doorbells and does not number its peers.
    let registers = match lengths[MSIX] {
        0 => None,
        _ => Some(registers.map(0, REGISTERS_LEN)?),
    };
    let id = registers.as_ref().map(|registers| registers.register(POSITION));
    if let Some(id) = id.filter(|&id| id > u32::from(u16::MAX)) {
        return Err(format!(
            "ivshmem device {address} has the id {id:#x}: is it connected to a server?"
        ));
    }
    let said = |e: std::io::Error| format!("interrupts of {address}: {e}");
    let vectors = vfio.as_ref().map(vectors).transpose().map_err(said)?.unwrap_or_default();
    let halves = [memory.map(0, half)?, memory.map(half as u64, half)?];
    let attachment = Attachment { halves, size: memory.len, id, vectors };
    Ok(Opened { folder, attachment, registers, _vfio: vfio, _lock: lock })
}

impl Pci {
    pub(super) fn new(address: Option<String>) -> Self {
        let why = "waiting for the ivshmem device".to_owned();
        Self { address, opened: None, retry_at: Duration::ZERO, why }
    }
}

impl Bus for Pci {
    fn poll(&mut self, now: Duration) -> Result<(u64, &Attachment), String> {
        if self.opened.is_none() && now >= self.retry_at {
            self.retry_at = now + RETRY;
            match open(Path::new(DEVICES), self.address.as_deref()) {
                Ok(opened) => self.opened = Some(opened),
                Err(why) => self.why = why,
            }
        }
        match &self.opened {
            Some(opened) => Ok((0, &opened.attachment)),
            None => Err(self.why.clone()),
        }
    }

    fn has(&self, _id: u32) -> Option<bool> {
        None
    }

    fn via(&self, id: Option<u32>, vector: u32, of: u32) -> Result<Via, String> {
        if of == 0 {
            return Ok(Via::Nothing);
        }
        let registers = self.opened.as_ref().and_then(|opened| opened.registers.clone());
        match (registers, id) {
            (Some(registers), Some(id)) if id <= u32::from(u16::MAX) => {
                Ok(Via::Register(registers, id << 16 | vector))
            }
            (None, _) => Err("the peer requests interrupts, and this device has no doorbells (is \
                              it ivshmem-plain here and ivshmem-doorbell there?)"
                .to_owned()),
            (_, id) => Err(format!("the peer has the id {id:?}, which has no doorbell")),
        }
    }

    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn device(&self) -> Option<HardwareDevice> {
        let opened = self.opened.as_ref()?;
        let pci = opened.folder.file_name()?.to_string_lossy().into_owned();
        // `numa_node` is -1, which does not parse, if the firmware reports no node.
        let node = read(&opened.folder.join("numa_node")).ok().and_then(|text| text.parse().ok());
        let vectors = match opened.attachment.vectors.len() as u32 {
            0 => None,
            n => Some(Vectors { pci: pci.clone(), of_queue: vectors_of_queues(n) }),
        };
        Some(HardwareDevice { name: pci, node, interface: None, netns: None, vectors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: lengths are read from the kernel's table of resources; empty or invalid lines have
    // length 0.
    #[test]
    fn resources_are_measured() {
        let text = "0x00000000febd5000 0x00000000febd50ff 0x0000000000040200\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x000000fe00000000 0x000000fe00ffffff 0x000000000014220c\n";
        assert_eq!(lengths(text), [256, 0, 16 << 20]);
        assert_eq!(lengths("nonsense\n0x5"), [0, 0, 0]);
    }

    // Rule: the device is found by its address, or without an address if it is the only one. If
    // several exist, the refusal names them.
    #[test]
    fn devices_are_found() {
        let root = std::env::temp_dir().join(format!("mqnet-ivshmem-{}", std::process::id()));
        let add = |address: &str, device: &str| {
            let folder = root.join(address);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vendor"), "0x1af4\n").unwrap();
            fs::write(folder.join("device"), format!("{device}\n")).unwrap();
        };
        add("0000:00:03.0", "0x1000");
        let refused = |address| find(&root, address).unwrap_err();
        assert!(refused(None).contains("no ivshmem device"));
        assert!(refused(Some("0000:00:03.0")).contains("is not an ivshmem device"));
        assert!(refused(Some("0000:00:09.0")).contains("there is no PCI function"));
        add("0000:00:04.0", DEVICE);
        assert_eq!(find(&root, None), Ok(root.join("0000:00:04.0")));
        add("0000:00:05.0", DEVICE);
        assert!(refused(None).ends_with("name one of 0000:00:04.0, 0000:00:05.0"));
        assert_eq!(find(&root, Some("0000:00:05.0")), Ok(root.join("0000:00:05.0")));
        fs::remove_dir_all(&root).unwrap();
    }
}
