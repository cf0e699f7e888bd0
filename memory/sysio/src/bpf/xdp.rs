//! BPF objects for AF_XDP: a map of sockets, a program that redirects frames to the sockets, and
//! the link that attaches the program to a device.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::{
    BpfInsn, CALL, Element, JUMP_GT_REG, LD_IMM64, LOAD_HALF, MAP_UPDATE_ELEM, PROG_LOAD,
    PSEUDO_MAP_FD, Reg, STORE_HALF, address, bpf, btf, create_map, raw_fd,
};

const LINK_CREATE: i64 = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGS: u32 = 1 << 5;
/// Flag that binds the program to a device, so that it may read the driver's metadata.
const DEVICE_BOUND: u32 = 1 << 6;
const REDIRECT_MAP: i32 = 51;
const ADJUST_HEAD: i32 = 44;
const PSEUDO_KERNEL_CALL: u8 = 2;
const MOV64: u8 = 0xb7;
const TO_BIG_ENDIAN: u8 = 0xdc;
/// Action `XDP_PASS`.
const PASS: u32 = 2;
/// Offset of the RX queue index in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

/// Position of an XDP program in the receive path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttachMode {
    /// In the driver, before an skb exists.
    Native,
    /// In the network stack, for any driver.
    Generic,
}

impl XdpAttachMode {
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

/// Map from RX queue index to AF_XDP socket (XSKMAP).
#[derive(Debug)]
pub struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    /// Creates a map with space for `entries` sockets. Needs CAP_BPF.
    pub fn create(entries: u32) -> io::Result<Self> {
        Ok(Self { fd: create_map(MAP_TYPE_XSKMAP, entries)? })
    }

    /// Redirects frames of RX queue `queue` to `socket`, which must be bound to that queue.
    pub fn set(&self, queue: u32, socket: &impl AsFd) -> io::Result<()> {
        let value = raw_fd(socket.as_fd());
        let (key, value) = (address(&raw const queue), address(&raw const value));
        let mut attributes = Element { map: raw_fd(self.fd.as_fd()), pad: 0, key, value, flags: 0 };
        // SAFETY: keys and values of this map have 4 bytes, and both are locals.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }

    /// Instructions of `bpf_redirect_map(map, ctx->rx_queue_index, XDP_PASS)`: frames of queues
    /// without a socket pass. `context` is the register with the context.
    fn redirect(&self, context: Reg) -> [BpfInsn; 6] {
        [
            BpfInsn::load(Reg::R2, context, RX_QUEUE_INDEX),
            BpfInsn::new(LD_IMM64, Reg::R1, PSEUDO_MAP_FD, 0, self.fd.as_raw_fd()),
            BpfInsn::new(0, Reg::R0, 0, 0, 0),
            BpfInsn::alu(super::Alu::Set, Reg::R3, PASS),
            BpfInsn::new(CALL, Reg::R0, 0, 0, REDIRECT_MAP),
            BpfInsn::exit(),
        ]
    }
}

/// Inserts the VLAN tag from the frame's metadata, if there is one, after the MAC addresses (4
/// bytes). A frame without headroom passes without its tag. The context is in `R1` on entry, then
/// in `R6`.
fn insert_tag(rx_vlan_tag: u32) -> Vec<BpfInsn> {
    const TAG: i32 = 4;
    /// Bytes of both MAC addresses and the tag.
    const HEAD: i32 = 16;
    // Stack slots for the kernel's results: the protocol in network order, and the tag in host
    // order.
    const PROTOCOL: i16 = -4;
    const TCI: i16 = -8;
    let half = |to: Reg, from: Reg, at| BpfInsn::new(LOAD_HALF, to, from as u8, at, 0);
    let put_half = |to: Reg, at, from: Reg| BpfInsn::new(STORE_HALF, to, from as u8, at, 0);
    let mut insert = vec![
        BpfInsn::copy(Reg::R1, Reg::R6),
        BpfInsn::new(MOV64, Reg::R2, 0, 0, -TAG),
        BpfInsn::new(CALL, Reg::R0, 0, 0, ADJUST_HEAD),
    ];
    let mut rest = vec![
        BpfInsn::load(Reg::R2, Reg::R6, 0),
        BpfInsn::load(Reg::R3, Reg::R6, 4),
        BpfInsn::copy(Reg::R1, Reg::R2),
        BpfInsn::advance(Reg::R1, HEAD),
    ];
    let mut write = Vec::new();
    for at in [0, 4, 8] {
        write.push(BpfInsn::load(Reg::R1, Reg::R2, at + TAG as i16));
        write.push(BpfInsn::store(Reg::R2, at, Reg::R1));
    }
    write.extend([
        half(Reg::R1, Reg::R10, PROTOCOL),
        put_half(Reg::R2, 12, Reg::R1),
        half(Reg::R1, Reg::R10, TCI),
        BpfInsn::new(TO_BIG_ENDIAN, Reg::R1, 0, 0, 16),
        put_half(Reg::R2, 14, Reg::R1),
    ]);
    rest.push(BpfInsn::new(JUMP_GT_REG, Reg::R1, Reg::R3 as u8, write.len() as i16, 0));
    rest.extend(write);
    insert.push(BpfInsn::jump_unless_equal(Reg::R0, 0, rest.len() as i16));
    insert.extend(rest);
    let mut all = vec![
        BpfInsn::copy(Reg::R6, Reg::R1),
        BpfInsn::new(MOV64, Reg::R0, 0, 0, 0),
        BpfInsn::store(Reg::R10, PROTOCOL, Reg::R0),
        BpfInsn::store(Reg::R10, TCI, Reg::R0),
        BpfInsn::copy(Reg::R2, Reg::R10),
        BpfInsn::advance(Reg::R2, PROTOCOL.into()),
        BpfInsn::copy(Reg::R3, Reg::R10),
        BpfInsn::advance(Reg::R3, TCI.into()),
        BpfInsn::new(CALL, Reg::R0, PSEUDO_KERNEL_CALL, 0, rx_vlan_tag as i32),
        BpfInsn::jump_unless_equal(Reg::R0, 0, insert.len() as i16),
    ];
    all.extend(insert);
    all
}

/// BPF program of type XDP.
#[derive(Debug)]
pub struct KernelXdpProgram {
    fd: OwnedFd,
}

impl KernelXdpProgram {
    /// Loads the program that redirects each frame to the socket of its queue. With `frags` the
    /// program accepts multi-buffer frames. Needs CAP_BPF and CAP_NET_ADMIN.
    pub fn to_sockets(map: &SocketMap, frags: bool, license: &CStr) -> io::Result<Self> {
        Self::load(&map.redirect(Reg::R1), frags, 0, license)
    }

    /// Loads the program of [`to_sockets`](Self::to_sockets) for one device. The program also
    /// inserts each frame's VLAN tag from the driver's metadata (native mode only). Fails if the
    /// kernel or the driver does not provide the tag.
    pub fn to_sockets_with_tags(
        map: &SocketMap,
        frags: bool,
        license: &CStr,
        ifindex: u32,
    ) -> io::Result<Self> {
        let function = btf::rx_vlan_tag().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel does not report VLAN tags")
        })?;
        let mut insns = insert_tag(function);
        insns.extend(map.redirect(Reg::R6));
        Self::load(&insns, frags, ifindex, license)
    }

    /// Loads a program, bound to a device unless `ifindex` is 0.
    fn load(insns: &[BpfInsn], frags: bool, ifindex: u32, license: &CStr) -> io::Result<Self> {
        let bound = if ifindex == 0 { 0 } else { DEVICE_BOUND };
        let mut attributes = LoadXdp {
            kind: PROG_TYPE_XDP,
            insn_count: insns.len() as u32,
            insns: address(insns.as_ptr()),
            license: address(license.as_ptr()),
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: bound | if frags { HAS_FRAGS } else { 0 },
            name: *b"mqnet_af_xdp\0\0\0\0",
            ifindex,
            attach_type: ATTACH_XDP,
        };
        // SAFETY: each address belongs to a slice passed with its length, or to a terminated
        // string; the result is a descriptor without an owner.
        let fd = unsafe { OwnedFd::from_raw_fd(bpf(PROG_LOAD, &mut attributes)? as i32) };
        Ok(Self { fd })
    }

    /// Attaches the program to a device of the calling thread's network namespace. The kernel
    /// detaches the program when the returned link is closed, including at the end of this process.
    pub fn attach(&self, ifindex: u32, mode: XdpAttachMode) -> io::Result<XdpLink> {
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

/// Link that keeps a program attached to a device.
#[derive(Debug)]
pub struct XdpLink {
    _fd: OwnedFd,
}
