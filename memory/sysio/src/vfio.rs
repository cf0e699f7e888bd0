//! PCI function assigned to this process (`linux/vfio.h`, Documentation/driver-api/vfio.rst): BARs
//! can be mapped, and interrupts signal eventfds.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use libc::{c_int, c_ulong};

use crate::descriptors::explained;
use crate::eventfd::EventFd;
use crate::ioctl::ioctl_request;

const GET_API_VERSION: u32 = 0x3b64;
const CHECK_EXTENSION: u32 = 0x3b65;
const SET_IOMMU: u32 = 0x3b66;
const GROUP_GET_STATUS: u32 = 0x3b67;
const GROUP_SET_CONTAINER: u32 = 0x3b68;
const GROUP_GET_DEVICE_FD: u32 = 0x3b6a;
const DEVICE_GET_REGION_INFO: u32 = 0x3b6c;
const DEVICE_GET_IRQ_INFO: u32 = 0x3b6d;
const DEVICE_SET_IRQS: u32 = 0x3b6e;

const TYPE1_IOMMU: c_ulong = 1;
const VIABLE: u32 = 1;
const CONFIG_SPACE: u32 = 7;
const MSIX: u32 = 2;
/// Data type eventfd, action trigger.
const RING_EVENTFDS: u32 = 1 << 2 | 1 << 5;

/// Command register of the configuration space.
const COMMAND: u64 = 4;
/// Memory space enable, and bus master enable (required for MSI-X).
const MEMORY_AND_MASTER: u16 = 1 << 1 | 1 << 2;

/// Maximum number of vectors that are requested.
const VECTORS_MAX: usize = 65;

#[repr(C)]
#[derive(Default)]
struct Status {
    argsz: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

#[repr(C)]
#[derive(Default)]
struct IrqInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    count: u32,
}

#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    fds: [i32; VECTORS_MAX],
}

const _: () = assert!(size_of::<Status>() == 8);
const _: () = assert!(size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<IrqInfo>() == 16);
const _: () = assert!(size_of::<IrqSet>() == 20 + 4 * VECTORS_MAX);

/// Location of a device region in the device's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLocation {
    /// Offset for a mapping.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Open device. The drop returns the function to other users.
#[derive(Debug)]
pub struct VfioDevice {
    device: OwnedFd,
    // The device works only while group and container are open.
    _group: File,
    _container: File,
}

/// Prefixes an error with the operation that failed.
fn context(what: &str) -> impl FnOnce(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{what}: {e}"))
}

/// Executes an ioctl with a number, or with the address of a structure.
fn call(fd: BorrowedFd<'_>, request: u32, argument: c_ulong) -> io::Result<c_int> {
    // SAFETY: every caller in this file passes a number, or the address of a structure with its
    // size in its first field, which outlives the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), ioctl_request(request), argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn call_with<T>(fd: BorrowedFd<'_>, request: u32, argument: &mut T) -> io::Result<c_int> {
    call(fd, request, std::ptr::from_mut(argument) as c_ulong)
}

fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path);
    file.map_err(explained).map_err(context(&path.display().to_string()))
}

impl VfioDevice {
    /// Opens the PCI function with this address (`0000:00:04.0`), which must be bound to vfio-pci,
    /// in the IOMMU group of this number.
    pub fn open(address: &str, group: u32) -> io::Result<Self> {
        let container = open(Path::new("/dev/vfio/vfio"))?;
        let version = call(container.as_fd(), GET_API_VERSION, 0)?;
        if version != 0 {
            return Err(io::Error::other(format!("VFIO: API version {version}, supported: 0")));
        }
        if call(container.as_fd(), CHECK_EXTENSION, TYPE1_IOMMU)? == 0 {
            return Err(io::Error::other("VFIO has no type 1 IOMMU: modprobe vfio_iommu_type1"));
        }
        let group = open(&Path::new("/dev/vfio").join(group.to_string()))?;
        let mut status = Status { argsz: size_of::<Status>() as u32, flags: 0 };
        call_with(group.as_fd(), GROUP_GET_STATUS, &mut status)?;
        if status.flags & VIABLE == 0 {
            let why = "other devices of its IOMMU group are not bound to vfio-pci";
            return Err(io::Error::other(why));
        }
        let mut number: c_int = container.as_raw_fd();
        call_with(group.as_fd(), GROUP_SET_CONTAINER, &mut number)
            .map_err(context("VFIO group"))?;
        call(container.as_fd(), SET_IOMMU, TYPE1_IOMMU).map_err(context("VFIO container"))?;
        let name = std::ffi::CString::new(address).map_err(io::Error::other)?;
        let raw = call(group.as_fd(), GROUP_GET_DEVICE_FD, name.as_ptr() as c_ulong);
        let raw: RawFd = raw.map_err(context("VFIO device"))?;
        // SAFETY: the kernel just created this descriptor; it has no other owner.
        let device = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { device, _group: group, _container: container })
    }

    fn region(&self, index: u32) -> io::Result<RegionLocation> {
        let argsz = size_of::<RegionInfo>() as u32;
        let mut info = RegionInfo { argsz, index, ..RegionInfo::default() };
        call_with(self.device.as_fd(), DEVICE_GET_REGION_INFO, &mut info)?;
        Ok(RegionLocation { offset: info.offset, len: info.size })
    }

    /// Location of base address register `index`.
    pub fn bar(&self, index: u32) -> io::Result<RegionLocation> {
        self.region(index).map_err(context("VFIO region"))
    }

    /// Enables memory space and bus mastering (interrupts) of the device.
    pub fn enable(&self) -> io::Result<()> {
        let at = self.region(CONFIG_SPACE)?.offset + COMMAND;
        let file = File::from(self.device.try_clone()?);
        let mut command = [0; 2];
        file.read_exact_at(&mut command, at).map_err(context("PCI command register"))?;
        let command = u16::from_le_bytes(command) | MEMORY_AND_MASTER;
        file.write_all_at(&command.to_le_bytes(), at).map_err(context("PCI command register"))
    }

    /// Number of MSI-X vectors.
    pub fn vectors(&self) -> io::Result<u32> {
        let argsz = size_of::<IrqInfo>() as u32;
        let mut info = IrqInfo { argsz, index: MSIX, ..IrqInfo::default() };
        call_with(self.device.as_fd(), DEVICE_GET_IRQ_INFO, &mut info)?;
        Ok(info.count)
    }

    /// Connects the first vectors to these eventfds, one each.
    pub fn ring_on_interrupt<'a>(
        &self,
        events: impl IntoIterator<Item = &'a EventFd>,
    ) -> io::Result<()> {
        let mut set = IrqSet {
            argsz: 0,
            flags: RING_EVENTFDS,
            index: MSIX,
            start: 0,
            count: 0,
            fds: [-1; VECTORS_MAX],
        };
        for (slot, event) in set.fds.iter_mut().zip(events) {
            *slot = event.as_fd().as_raw_fd();
            set.count += 1;
        }
        set.argsz = 20 + 4 * set.count;
        call_with(self.device.as_fd(), DEVICE_SET_IRQS, &mut set).map_err(context("MSI-X"))?;
        Ok(())
    }
}

impl AsFd for VfioDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
