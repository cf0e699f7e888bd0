//! AF_XDP sockets (`linux/if_xdp.h`, Documentation/networking/af_xdp.rst): options, binding and
//! wake-ups. The contents of the rings are handled by the code that maps them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libc::{c_int, c_void, socklen_t};

use crate::descriptors::explained;

/// One of the four rings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Received frames.
    Rx,
    /// Frames to be sent.
    Tx,
    /// Empty chunks for reception.
    Fill,
    /// Chunks of frames that were sent.
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

    /// Offset at which the ring is mapped from the socket.
    pub fn offset(self) -> u64 {
        match self {
            Self::Rx => libc::XDP_PGOFF_RX_RING as u64,
            Self::Tx => libc::XDP_PGOFF_TX_RING as u64,
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
        }
    }
}

/// Offsets of the parts of a mapped ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOffsets {
    /// Producer index.
    pub producer: u32,
    /// Consumer index.
    pub consumer: u32,
    /// Flags set by the kernel.
    pub flags: u32,
    /// Descriptors.
    pub entries: u32,
}

/// Drop counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Received frames dropped for other reasons than a full RX ring or an empty fill ring.
    pub rx_dropped: u64,
    /// Frames dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Frames dropped because the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Invalid descriptors in the TX ring.
    pub tx_invalid: u64,
}

/// Copy mode of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// Zero copy if the driver supports it, else copy mode.
    IfNeeded,
    /// Copy mode.
    Always,
    /// Zero copy.
    Never,
}

/// `XDP_MAX_TX_SKB_BUDGET`, which libc does not define yet.
const MAX_TX_SKB_BUDGET: c_int = 9;

const OFFSETS_LEN: usize = 16;
const _: () = assert!(size_of::<libc::xdp_mmap_offsets>() == 8 * OFFSETS_LEN);
const _: () = assert!(size_of::<libc::xdp_umem_reg>() == 32);
const _: () = assert!(size_of::<libc::sockaddr_xdp>() == 16);
const _: () = assert!(size_of::<libc::xdp_statistics>() == 48);

/// AF_XDP socket.
#[derive(Debug)]
pub struct XdpSocket {
    fd: OwnedFd,
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl XdpSocket {
    /// Opens a socket in the calling thread's network namespace. Needs CAP_NET_RAW.
    pub fn new() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes numbers only.
        let raw = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        check(raw).map_err(explained)?;
        // SAFETY: the socket was just created; it has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as socklen_t;
        let value = std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: `value` holds `len` readable bytes.
        check(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, value, len) })
    }

    /// # Safety
    /// `T` must be a plain structure of numbers.
    unsafe fn get<T>(&self, option: c_int) -> io::Result<T> {
        // SAFETY: zero is a valid number.
        let mut value: T = unsafe { std::mem::zeroed() };
        let (mut len, fd) = (size_of::<T>() as socklen_t, self.fd.as_raw_fd());
        let place = std::ptr::from_mut(&mut value).cast::<c_void>();
        // SAFETY: `value` has space for `len` bytes.
        check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, place, &raw mut len) })?;
        Ok(value)
    }

    /// Registers the UMEM of the socket, in chunks of `chunk` bytes.
    ///
    /// # Safety
    /// The range must be mapped, and no reference to its bytes may ever exist: the kernel writes it
    /// at any time. (The kernel pins the pages, so the mapping may be removed before the socket is
    /// closed.)
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

    /// Creates a ring of `entries`, which must be a power of two.
    pub fn make_ring(&self, kind: RingKind, entries: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, kind.option(), &entries)
    }

    /// Offsets of the parts of a ring.
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

    /// Sets the limit of bytes in frames that are being sent. Above the system's limit this needs
    /// CAP_NET_ADMIN.
    pub fn set_send_buffer(&self, bytes: c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| self.set(libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Sets the number of frames sent per call, at most the number of entries of the TX ring.
    /// Before Linux 6.17 the number is 32.
    pub fn set_send_budget(&self, frames: u32) -> io::Result<()> {
        self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &frames)
    }

    fn bind_with(&self, address: &libc::sockaddr_xdp) -> io::Result<()> {
        let len = size_of::<libc::sockaddr_xdp>() as socklen_t;
        let address = std::ptr::from_ref(address).cast();
        // SAFETY: the address has `len` bytes.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), address, len) })
    }

    /// Binds the socket to a queue of a device. With `frags`, frames may span several chunks.
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

    /// Binds the socket to another queue, with the UMEM and mode of a bound socket.
    pub fn bind_shared(&self, first: &Self, ifindex: u32, queue: u32) -> io::Result<()> {
        self.bind_with(&libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_SHARED_UMEM,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: first.fd.as_raw_fd() as u32,
        })
    }

    /// True if the socket is in zero-copy mode.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        // SAFETY: a structure of one number.
        let options: libc::xdp_options = unsafe { self.get(libc::XDP_OPTIONS)? };
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Returns the drop counters.
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

    /// Makes the kernel process the TX ring: the kernel sends some frames immediately, or wakes the
    /// driver. The error `WouldBlock` means that frames remain.
    #[inline]
    pub fn wake_tx(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no buffer and no address is passed.
        let n = unsafe {
            libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the driver process the fill ring.
    #[inline]
    pub fn wake_rx(&self) -> io::Result<()> {
        let (fd, none) = (self.fd.as_raw_fd(), std::ptr::null_mut::<c_void>());
        let (from, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no buffer and no address is passed.
        let n = unsafe { libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, from, len) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
