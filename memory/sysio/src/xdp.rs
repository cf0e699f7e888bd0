//! AF_XDP sockets (`linux/if_xdp.h`, Documentation/networking/af_xdp.rst): options, binding and
//! wake-ups. What lies in the rings is the business of who maps them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_void, socklen_t};

use crate::descriptors::explained;

/// One of the four rings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Frames that have come.
    Rx,
    /// Frames to be sent.
    Tx,
    /// Memory for frames to come.
    Fill,
    /// Memory of frames that were sent.
    Completion,
}

impl RingKind {
    fn option(self) -> c_int {
        match self {
            Self::Rx => libc::XDP_RX_RING,
            Self::Tx => libc::XDP_TX_RING,
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }

    /// Where in the socket, as a file, it is mapped.
    pub fn offset(self) -> u64 {
        match self {
            Self::Rx => libc::XDP_PGOFF_RX_RING as u64,
            Self::Tx => libc::XDP_PGOFF_TX_RING as u64,
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
        }
    }
}

/// Where in a mapped ring its parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOffsets {
    /// Index of who puts entries in.
    pub producer: u32,
    /// Index of who takes them out.
    pub consumer: u32,
    /// What the kernel says about the ring.
    pub flags: u32,
    /// The entries.
    pub entries: u32,
}

/// Frames that a socket's kernel side dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// On the way in, for other reasons than those below.
    pub rx_dropped: u64,
    /// The RX ring was full.
    pub rx_ring_full: u64,
    /// The fill ring was empty: no memory for the frame.
    pub fill_ring_empty: u64,
    /// Entries of the TX ring that made no sense.
    pub tx_invalid: u64,
}

/// How frames get into and out of the socket's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// The device does it, or else the CPU.
    IfNeeded,
    /// The CPU does it.
    Always,
    /// The device does it.
    Never,
}

/// `XDP_MAX_TX_SKB_BUDGET`, which libc does not know yet.
const MAX_TX_SKB_BUDGET: c_int = 9;

const OFFSETS_LEN: usize = 16;
const _: () = assert!(size_of::<libc::xdp_mmap_offsets>() == 8 * OFFSETS_LEN);
const _: () = assert!(size_of::<libc::xdp_umem_reg>() == 32);
const _: () = assert!(size_of::<libc::sockaddr_xdp>() == 16);
const _: () = assert!(size_of::<libc::xdp_statistics>() == 48);

/// An AF_XDP socket.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl XdpSocket {
    /// Opens one in the calling thread's network namespace. Needs CAP_NET_RAW.
    pub fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes numbers only.
        let raw = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        check(raw).map_err(explained)?;
        // SAFETY: the socket was just made; nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as socklen_t;
        let value = std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: `value` holds `len` readable bytes.
        check(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, value, len) })
    }

    /// # Safety
    /// `T` is a plain structure of numbers.
    unsafe fn get<T>(&self, option: c_int) -> io::Result<T> {
        // SAFETY: numbers may be zero.
        let mut value: T = unsafe { std::mem::zeroed() };
        let (mut len, fd) = (size_of::<T>() as socklen_t, self.fd.as_raw_fd());
        let place = std::ptr::from_mut(&mut value).cast::<c_void>();
        // SAFETY: `value` has room for `len` bytes.
        check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, place, &raw mut len) })?;
        Ok(value)
    }

    /// Gives the socket its memory, in chunks of so many bytes.
    ///
    /// # Safety
    /// The range is mapped, and nothing of it is ever seen by a reference: the kernel writes it at
    /// any time. (It keeps the pages by itself: the mapping may go before the socket.)
    pub unsafe fn set_memory(&self, start: NonNull<u8>, len: usize, chunk: u32) -> io::Result<()> {
        let memory = libc::xdp_umem_reg {
            addr: start.addr().get() as u64,
            len: len as u64,
            chunk_size: chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)
    }

    /// Makes a ring of `entries` (a power of two).
    pub fn make_ring(&self, kind: RingKind, entries: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, kind.option(), &entries)
    }

    /// Where the parts of a ring are.
    pub fn offsets(&self, kind: RingKind) -> io::Result<RingOffsets> {
        // SAFETY: a structure of numbers.
        let all: libc::xdp_mmap_offsets = unsafe { self.get(libc::XDP_MMAP_OFFSETS)? };
        let ring = match kind {
            RingKind::Rx => all.rx,
            RingKind::Tx => all.tx,
            RingKind::Fill => all.fr,
            RingKind::Completion => all.cr,
        };
        let small = |n: u64| u32::try_from(n).map_err(io::Error::other);
        Ok(RingOffsets {
            producer: small(ring.producer)?,
            consumer: small(ring.consumer)?,
            flags: small(ring.flags)?,
            entries: small(ring.desc)?,
        })
    }

    /// Lets so many bytes of frames that were sent be on their way. Beyond the system's limit it
    /// needs CAP_NET_ADMIN.
    pub fn set_send_buffer(&self, bytes: c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Lets so many frames be sent in one call, at most as many as the TX ring has entries. Before
    /// Linux 6.17 it is 32.
    pub fn set_send_budget(&self, frames: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &frames)
    }

    fn bind_with(&self, address: &libc::sockaddr_xdp) -> io::Result<()> {
        let len = size_of::<libc::sockaddr_xdp>() as socklen_t;
        let address = std::ptr::from_ref(address).cast();
        // SAFETY: the address has `len` bytes.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), address, len) })
    }

    /// Takes over a queue of a device. With `frags` frames may lie in several chunks.
    pub fn bind(&self, ifindex: u32, queue: u32, copying: Copying, frags: bool) -> io::Result<()> {
        let copying = match copying {
            Copying::IfNeeded => 0,
            Copying::Always => libc::XDP_COPY,
            Copying::Never => libc::XDP_ZEROCOPY,
        };
        let frags = if frags { libc::XDP_USE_SG } else { 0 };
        self.bind_with(&libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copying | frags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        })
    }

    /// Takes over another queue, with the memory of a socket that is bound, in the same manner.
    pub fn bind_beside(&self, first: &Self, ifindex: u32, queue: u32) -> io::Result<()> {
        self.bind_with(&libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_SHARED_UMEM,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: first.fd.as_raw_fd() as u32,
        })
    }

    /// True when the device itself moves frames.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        // SAFETY: a structure of one number.
        let options: libc::xdp_options = unsafe { self.get(libc::XDP_OPTIONS)? };
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// What was dropped.
    pub fn statistics(&self) -> io::Result<Statistics> {
        // SAFETY: a structure of numbers; older kernels fill its first half.
        let s: libc::xdp_statistics = unsafe { self.get(libc::XDP_STATISTICS)? };
        Ok(Statistics {
            rx_dropped: s.rx_dropped,
            rx_ring_full: s.rx_ring_full,
            fill_ring_empty: s.rx_fill_ring_empty_descs,
            tx_invalid: s.tx_invalid_descs,
        })
    }

    /// Lets the kernel look at the TX ring: it sends some frames at once, or wakes the driver.
    /// `WouldBlock`: there are more.
    #[inline]
    pub fn wake_tx(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no bytes and no address are handed over.
        let n = unsafe {
            libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets the driver look at the fill ring.
    #[inline]
    pub fn wake_rx(&self) -> io::Result<()> {
        let (fd, none) = (self.fd.as_raw_fd(), std::ptr::null_mut::<c_void>());
        let (from, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no room for bytes or an address is handed over.
        let n = unsafe { libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, from, len) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
