//! What AF_XDP needs of bpf(2): a map of sockets, a program that sends frames to them, and the
//! link that keeps it at a device.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::{
    CALL, Element, Insn, LD_IMM64, MAP_UPDATE_ELEM, PROG_LOAD, PSEUDO_MAP_FD, Reg, address, bpf,
    create_map, raw_fd,
};

const LINK_CREATE: i64 = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;
const REDIRECT_MAP: i32 = 51;
/// `XDP_PASS`.
const PASS: u32 = 2;
/// Where `struct xdp_md` has the number of the RX queue.
const RX_QUEUE_INDEX: i16 = 16;

/// Where in the kernel a program sees frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before there is more than the frame.
    Native,
    /// In the stack, for any driver.
    Generic,
}

impl Mode {
    fn flags(self) -> u32 {
        match self {
            Self::Generic => 1 << 1,
            Self::Native => 1 << 2,
        }
    }
}

/// Attributes of PROG_LOAD as far as a program of type XDP needs them.
#[repr(C)]
struct LoadXdp {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

#[repr(C)]
struct CreateLink {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

const _: () = assert!(size_of::<LoadXdp>() == 72);
const _: () = assert!(size_of::<CreateLink>() == 16);

/// AF_XDP sockets by the number of their RX queue.
#[derive(Debug)]
pub struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    /// Makes a map with room for `entries` sockets. Needs CAP_BPF.
    pub fn create(entries: u32) -> io::Result<Self> {
        Ok(Self { fd: create_map(MAP_TYPE_XSKMAP, entries)? })
    }

    /// Frames of this queue go to this socket, which is bound to it.
    pub fn set(&self, queue: u32, socket: &impl AsFd) -> io::Result<()> {
        let value = raw_fd(socket.as_fd());
        let (key, value) = (address(&raw const queue), address(&raw const value));
        let mut attributes = Element { map: raw_fd(self.fd.as_fd()), pad: 0, key, value, flags: 0 };
        // SAFETY: keys and values of this map have 4 bytes, and both are locals.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }

    /// `bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS)`: what has no socket passes.
    fn redirect(&self) -> [Insn; 6] {
        [
            Insn::load(Reg::R2, Reg::R1, RX_QUEUE_INDEX),
            Insn::new(LD_IMM64, Reg::R1, PSEUDO_MAP_FD, 0, self.fd.as_raw_fd()),
            Insn::new(0, Reg::R0, 0, 0, 0),
            Insn::alu(super::Alu::Set, Reg::R3, PASS),
            Insn::new(CALL, Reg::R0, 0, 0, REDIRECT_MAP),
            Insn::exit(),
        ]
    }
}

/// A program of type XDP.
#[derive(Debug)]
pub struct XdpProgram {
    fd: OwnedFd,
}

impl XdpProgram {
    /// Loads the one that sends each frame to the socket of its queue. With `frags` it takes
    /// frames that lie in several pages. Needs CAP_BPF and CAP_NET_ADMIN.
    pub fn to_sockets(map: &SocketMap, frags: bool, license: &CStr) -> io::Result<Self> {
        let insns = map.redirect();
        let mut attributes = LoadXdp {
            kind: PROG_TYPE_XDP,
            insn_count: insns.len() as u32,
            insns: address(insns.as_ptr()),
            license: address(license.as_ptr()),
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: if frags { HAS_FRAGS } else { 0 },
            name: *b"mqnet_af_xdp\0\0\0\0",
            ifindex: 0,
            attach_type: ATTACH_XDP,
        };
        // SAFETY: each address is that of a slice with its length, or of a string with its end;
        // the result is a descriptor without an owner.
        let fd = unsafe { OwnedFd::from_raw_fd(bpf(PROG_LOAD, &mut attributes)? as i32) };
        Ok(Self { fd })
    }

    /// Puts it at a device of the calling thread's network namespace. It stays as long as what is
    /// returned, and no longer, however this process ends.
    pub fn attach(&self, ifindex: u32, mode: Mode) -> io::Result<XdpLink> {
        let mut attributes = CreateLink {
            program: raw_fd(self.fd.as_fd()),
            ifindex,
            attach_type: ATTACH_XDP,
            flags: mode.flags(),
        };
        // SAFETY: these attributes hold no address; the result is a descriptor without an owner.
        let fd = unsafe { OwnedFd::from_raw_fd(bpf(LINK_CREATE, &mut attributes)? as i32) };
        Ok(XdpLink { _fd: fd })
    }
}

/// Keeps a program at a device.
#[derive(Debug)]
pub struct XdpLink {
    _fd: OwnedFd,
}
