//! bpf(2) system call (`linux/bpf.h`): array maps, and programs of type "socket filter".

mod btf;
pub mod xdp;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_long;

use crate::descriptors::explained;

/// BPF instruction in the kernel's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BpfInsn {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

const _: () = assert!(size_of::<BpfInsn>() == 8);

/// BPF register. `R0` holds results, `R6` to `R9` are preserved by calls and loads, `R10` is the
/// stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// Size of a load. Packet bytes are in network order; the result is in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// 4 bytes.
    Word = 0x00,
    /// 2 bytes.
    Half = 0x08,
    /// 1 byte.
    Byte = 0x10,
}

/// 32-bit operation; the upper half of the destination becomes zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alu {
    Add = 0x00,
    Mul = 0x20,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Set = 0xb0,
}

const LD_ABS: u8 = 0x20;
const LD_IND: u8 = 0x40;
const ALU32: u8 = 0x04;
const FROM_REG: u8 = 0x08;
const ADD64: u8 = 0x07;
const MOV64_REG: u8 = 0xbf;
const LD_IMM64: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const STORE_WORD: u8 = 0x63;
const STORE_HALF: u8 = 0x6b;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const JUMP: u8 = 0x05;
const JUMP_EQ: u8 = 0x15;
const JUMP_NE: u8 = 0x55;
const JUMP_GT_REG: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MAP_LOOKUP: i32 = 1;

impl BpfInsn {
    const fn new(code: u8, to: Reg, from: u8, offset: i16, value: i32) -> Self {
        Self { code, registers: to as u8 | (from << 4), offset, value }
    }

    /// `R0` = packet data at `at`. Beyond the packet's end the program exits with 0. Requires the
    /// context in `R6`.
    pub const fn load_packet(size: Size, at: i32) -> Self {
        Self::new(LD_ABS | size as u8, Reg::R0, 0, 0, at)
    }

    /// `R0` = packet data at `base + at`, with the conditions of [`BpfInsn::load_packet`].
    pub const fn load_packet_from(size: Size, base: Reg, at: i32) -> Self {
        Self::new(LD_IND | size as u8, Reg::R0, base as u8, 0, at)
    }

    /// `to = to OP value`.
    pub const fn alu(op: Alu, to: Reg, value: u32) -> Self {
        Self::new(ALU32 | op as u8, to, 0, 0, value as i32)
    }

    /// `to = to OP from`.
    pub const fn alu_reg(op: Alu, to: Reg, from: Reg) -> Self {
        Self::new(ALU32 | FROM_REG | op as u8, to, from as u8, 0, 0)
    }

    /// `to = from`, all 64 bits (for pointers).
    pub const fn copy(to: Reg, from: Reg) -> Self {
        Self::new(MOV64_REG, to, from as u8, 0, 0)
    }

    /// `to += value`, all 64 bits (for pointers).
    pub const fn advance(to: Reg, value: i32) -> Self {
        Self::new(ADD64, to, 0, 0, value)
    }

    /// The 32 bits at `base + offset` = `from`.
    pub const fn store(base: Reg, offset: i16, from: Reg) -> Self {
        Self::new(STORE_WORD, base, from as u8, offset, 0)
    }

    /// `to` = the 32 bits at `base + offset`.
    pub const fn load(to: Reg, base: Reg, offset: i16) -> Self {
        Self::new(LOAD_WORD, to, base as u8, offset, 0)
    }

    /// Skips `skip` instructions.
    pub const fn jump(skip: i16) -> Self {
        Self::new(JUMP, Reg::R0, 0, skip, 0)
    }

    /// Skips `skip` instructions if `left == value`.
    pub const fn jump_if_equal(left: Reg, value: i32, skip: i16) -> Self {
        Self::new(JUMP_EQ, left, 0, skip, value)
    }

    /// Skips `skip` instructions if `left != value`.
    pub const fn jump_unless_equal(left: Reg, value: i32, skip: i16) -> Self {
        Self::new(JUMP_NE, left, 0, skip, value)
    }

    /// `to` = the map (two instructions).
    pub fn load_map(to: Reg, map: &Array) -> [Self; 2] {
        [
            Self::new(LD_IMM64, to, PSEUDO_MAP_FD, 0, map.fd.as_raw_fd()),
            Self::new(0, Reg::R0, 0, 0, 0),
        ]
    }

    /// `R0` = address of the value with the key at `R2` in map `R1`, or 0 if there is none.
    pub const fn call_map_lookup() -> Self {
        Self::new(CALL, Reg::R0, 0, 0, MAP_LOOKUP)
    }

    /// Exits the program with `R0`.
    pub const fn exit() -> Self {
        Self::new(EXIT, Reg::R0, 0, 0, 0)
    }
}

const MAP_CREATE: i64 = 0;
const MAP_LOOKUP_ELEM: i64 = 1;
const MAP_UPDATE_ELEM: i64 = 2;
const PROG_LOAD: i64 = 5;
const PROG_TEST_RUN: i64 = 10;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SOCKET_FILTER: u32 = 1;

#[repr(C)]
struct CreateMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

#[repr(C)]
struct TestRun {
    program: u32,
    result: u32,
    data_in_size: u32,
    data_out_size: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

const _: () = assert!(size_of::<CreateMap>() == 16);
const _: () = assert!(size_of::<Element>() == 32);
const _: () = assert!(size_of::<LoadProgram>() == 40);
const _: () = assert!(size_of::<TestRun>() == 40);

/// # Safety
///
/// `T` must begin like the kernel's attributes of `command`. Every address in it must be valid for
/// the number of bytes that the kernel reads or writes there.
unsafe fn bpf<T>(command: i64, attributes: &mut T) -> io::Result<c_long> {
    let attributes = std::ptr::from_mut(attributes);
    // SAFETY: the structure is borrowed exclusively and its size is passed; the rest is required of
    // the caller.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(explained(io::Error::last_os_error())) } else { Ok(result) }
}

fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>() as u64
}

fn raw_fd(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// Creates a map with keys and values of 4 bytes.
fn create_map(kind: u32, entries: u32) -> io::Result<OwnedFd> {
    let mut attributes = CreateMap { kind, key_size: 4, value_size: 4, entries };
    // SAFETY: these attributes hold no address; the result is a descriptor without an owner.
    Ok(unsafe { OwnedFd::from_raw_fd(bpf(MAP_CREATE, &mut attributes)? as i32) })
}

/// Array of 32-bit values that programs can look up.
#[derive(Debug)]
pub struct Array {
    fd: OwnedFd,
}

impl Array {
    /// Creates an array of `entries` values, all 0. Needs CAP_BPF.
    pub fn create(entries: u32) -> io::Result<Self> {
        Ok(Self { fd: create_map(MAP_TYPE_ARRAY, entries)? })
    }

    fn access(&self, command: i64, key: u32, value: &mut u32) -> io::Result<()> {
        let (key, value) = (address(&raw const key), address(value));
        let mut attributes = Element { map: raw_fd(self.fd.as_fd()), pad: 0, key, value, flags: 0 };
        // SAFETY: keys and values of this map have 4 bytes, and both are locals of the callers.
        unsafe { bpf(command, &mut attributes) }.map(drop)
    }

    /// Sets one value. Programs read the old or the new value, never a mixture.
    pub fn set(&self, key: u32, mut value: u32) -> io::Result<()> {
        self.access(MAP_UPDATE_ELEM, key, &mut value)
    }

    /// Reads one value.
    pub fn get(&self, key: u32) -> io::Result<u32> {
        let mut value = 0;
        self.access(MAP_LOOKUP_ELEM, key, &mut value)?;
        Ok(value)
    }
}

/// BPF program of type "socket filter".
#[derive(Debug)]
pub struct SocketFilter {
    fd: OwnedFd,
}

impl SocketFilter {
    /// Loads a program. Needs CAP_BPF. If the verifier rejects the program, the error contains its
    /// log.
    pub fn load_socket_filter(insns: &[BpfInsn], license: &CStr) -> io::Result<Self> {
        match Self::load(insns, license, &mut []) {
            Err(e) if e.raw_os_error() != Some(libc::EPERM) => {}
            done => return done,
        }
        // Second attempt for the verifier's log, which is only written on request.
        let mut log = vec![0; 1 << 16];
        Self::load(insns, license, &mut log).map_err(|error| {
            let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let text = String::from_utf8_lossy(text);
            io::Error::new(error.kind(), format!("{error}: {}", text.trim_end()))
        })
    }

    fn load(insns: &[BpfInsn], license: &CStr, log: &mut [u8]) -> io::Result<Self> {
        let mut attributes = LoadProgram {
            kind: PROG_TYPE_SOCKET_FILTER,
            insn_count: insns.len() as u32,
            insns: address(insns.as_ptr()),
            license: address(license.as_ptr()),
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
        };
        // SAFETY: each address belongs to a slice passed with its length, or to a terminated
        // string; the result is a descriptor without an owner.
        let fd = unsafe { OwnedFd::from_raw_fd(bpf(PROG_LOAD, &mut attributes)? as i32) };
        Ok(Self { fd })
    }

    /// Runs the program once over `packet`, of at least 14 bytes, and returns its result. The
    /// program does not see the first 14 bytes.
    pub fn test_run(&self, packet: &[u8]) -> io::Result<u32> {
        let mut attributes = TestRun {
            program: raw_fd(self.fd.as_fd()),
            result: 0,
            data_in_size: packet.len() as u32,
            data_out_size: 0,
            data_in: address(packet.as_ptr()),
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: the kernel reads the packet, and writes only to the attributes.
        unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
        Ok(attributes.result)
    }
}

impl AsFd for SocketFilter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
