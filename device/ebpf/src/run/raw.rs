//! Exchange of addresses with a running program, restricted to this module.
//!
//! The verifier has proven every program in a [`Code`]. Every address that the program uses is
//! inside its page, its stack or its maps. Every helper argument has the type that the helper
//! requires.

#![allow(unsafe_code, reason = "compiled programs take and give addresses")]

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rbpf::EbpfVmMbuff;

#[cfg(target_arch = "x86_64")]
use super::compiled::Compiled;
use super::context::Context;
use super::{ExecutionMode, Origin, Verdict, XdpAction};
use crate::helper;
use crate::insn::{Insn, atomic};
use crate::map::Map;
use crate::rewrite::{ATOMIC, ATOMIC_WIDE};

const ABORTED: u64 = 0;
const REDIRECT: u64 = 4;
const INVALID: i64 = -22;
/// Minimum length in bytes of the frame that a program leaves.
const ETHERNET: u64 = 14;
const META_MAX: u64 = 32;

type HelperFn = fn(u64, u64, u64, u64, u64) -> u64;
#[cfg(target_arch = "x86_64")]
type Stub = extern "sysv64" fn(u64, u64, u64, u64, u64) -> u64;

const CONTEXT_BYTES: usize = size_of::<Context>();

/// State of the current run, which helpers use.
#[derive(Clone, Copy)]
struct Call {
    maps: *const [Map],
    page: (u64, u64),
    channel: u16,
    clock: fn() -> u64,
    redirect: u32,
}

thread_local! {
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
    static RANDOM: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
}

/// Executable form of a program.
pub(super) enum Code {
    #[cfg(target_arch = "x86_64")]
    Compiled(Compiled),
    Interpreted(Box<Interpreted>),
}

pub(super) struct Interpreted {
    vm: EbpfVmMbuff<'static>,
    /// Bytecode that `vm` borrows; dropped after `vm`.
    _bytes: Box<[u8]>,
}

// SAFETY: running takes `&self` and does not change it; the state of a run is on the stack and in
// thread-locals.
unsafe impl Send for Interpreted {}
// SAFETY: as above.
unsafe impl Sync for Interpreted {}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").finish_non_exhaustive()
    }
}

impl Code {
    /// Prepares a verified and rewritten program.
    pub(super) fn new(insns: &[Insn], maps: &[Map], mode: ExecutionMode) -> Result<Self, String> {
        if mode == ExecutionMode::Jit && !cfg!(target_arch = "x86_64") {
            return Err("compiled programs need x86-64: use --interpret".to_owned());
        }
        let words = |e: rbpf::lib::Error| format!("runtime: {e:?}");
        let bytes: Box<[u8]> = insns.iter().flat_map(|insn| insn.to_bytes()).collect();
        // SAFETY: the bytes are on the heap, are never changed, and are dropped after `vm`.
        let program: &'static [u8] = unsafe { &*std::ptr::from_ref(&*bytes) };
        let mut vm = EbpfVmMbuff::new(Some(program)).map_err(words)?;
        for (number, function) in FUNCTIONS {
            let function =
                if mode == ExecutionMode::Jit { aligned(number, function) } else { function };
            vm.register_helper(number as u32, function).map_err(words)?;
        }
        #[cfg(target_arch = "x86_64")]
        if mode == ExecutionMode::Jit {
            return Compiled::new(vm, insns.len()).map(Self::Compiled);
        }
        for map in maps {
            let Range { start, end } = map.memory();
            vm.register_allowed_memory(start..end);
        }
        Ok(Self::Interpreted(Box::new(Interpreted { vm, _bytes: bytes })))
    }

    #[inline]
    pub(super) fn run(
        &self,
        maps: &[Map],
        page: &mut [u8],
        start: usize,
        len: usize,
        from: Origin,
    ) -> Verdict {
        assert!(start <= page.len() && len <= page.len() - start);
        let first = page.as_mut_ptr() as u64;
        let data = first + start as u64;
        let mut context = Context {
            data,
            data_end: data + len as u64,
            data_meta: data,
            ifindex: from.ifindex.into(),
            channel: from.channel.into(),
            egress: 0,
        };
        let pages = (first, first + page.len() as u64);
        let Origin { channel, clock, .. } = from;
        CALL.set(Some(Call { maps, page: pages, channel, clock, redirect: 0 }));
        let result = match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the verifier has proven every access of the program, and the program was
            // rewritten for this compiler.
            Self::Compiled(code) => Ok(unsafe { code.call(&raw mut context) }),
            Self::Interpreted(program) => {
                // SAFETY: a context is plain bytes; no other reference to it exists while the
                // program runs.
                let bytes = unsafe {
                    std::slice::from_raw_parts((&raw mut context).cast::<u8>(), CONTEXT_BYTES)
                };
                let result = program.vm.execute_program(page, bytes);
                // The program wrote the frame and the context through pointers that the interpreter
                // derives from these two shared slices: keep no earlier value of either.
                std::hint::black_box((page.as_mut_ptr(), &raw mut context));
                result
            }
        };
        let call = CALL.take();
        // Helpers move the frame through the program's pointer to the context: read the context
        // only now, and with a volatile read.
        // SAFETY: the context is valid, and no reference to it is left.
        let Context { data, data_end, .. } = unsafe { (&raw const context).read_volatile() };
        let start = data.wrapping_sub(first) as usize;
        let len = data_end.wrapping_sub(data) as usize;
        // Use the low 32 bits: an action has 32 bits.
        let action = match result.map(|action| action & 0xffff_ffff) {
            Ok(1) => XdpAction::Drop,
            Ok(2) => XdpAction::Pass,
            Ok(3) => XdpAction::Tx,
            Ok(REDIRECT) => match call {
                Some(Call { redirect, .. }) if redirect != 0 => XdpAction::Redirect(redirect),
                _ => XdpAction::Aborted,
            },
            _ => XdpAction::Aborted,
        };
        Verdict { action, start, len }
    }
}

fn with_call<T>(f: impl FnOnce(&[Map], &Call) -> T) -> Option<T> {
    let call = CALL.get()?;
    // SAFETY: `run` has set the pointer from a slice that lives until it returns.
    let maps = unsafe { &*call.maps };
    Some(f(maps, &call))
}

/// # Safety
/// `len` bytes at `at` must be a proven helper argument, and must not be written during use.
unsafe fn bytes<'a>(at: u64, len: u64) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) }
}

/// # Safety
/// `at` must be the context of the run.
unsafe fn context<'a>(at: u64) -> &'a mut Context {
    // SAFETY: the caller's promise; the program does not run during a helper call.
    unsafe { &mut *(at as *mut Context) }
}

fn map_of(maps: &[Map], number: u64) -> Option<&Map> {
    maps.get(usize::try_from(number.checked_sub(1)?).ok()?)
}

fn lookup(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    let found = with_call(|maps, call| {
        let map = map_of(maps, map)?;
        // SAFETY: proven: `key` points to a key of this map.
        map.lookup(unsafe { bytes(key, map.def().key_size.into()) }, call.channel)
    });
    found.flatten().unwrap_or(0)
}

fn update(map: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    let done = with_call(|maps, call| {
        let map = map_of(maps, map)?;
        let (key_size, size) = (map.def().key_size.into(), map.def().value_size.into());
        // Key and value may overlap the value that is written; the update then copies bytes that it
        // has written already.
        // SAFETY: proven: `key` and `value` point to a key and a value of this map.
        let (key, value) = unsafe { (bytes(key, key_size), bytes(value, size)) };
        Some(map.update(key, value, flags, call.channel))
    });
    done.flatten().unwrap_or(INVALID) as u64
}

fn delete(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    let done = with_call(|maps, _| {
        let map = map_of(maps, map)?;
        // SAFETY: proven: `key` points to a key of this map.
        Some(map.delete(unsafe { bytes(key, map.def().key_size.into()) }))
    });
    done.flatten().unwrap_or(INVALID) as u64
}

fn time(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    with_call(|_, call| (call.clock)()).unwrap_or(0)
}

fn no_operation(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    0
}

fn random(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    let mut x = RANDOM.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.set(x);
    x >> 32
}

fn processor(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    with_call(|_, call| call.channel.into()).unwrap_or(0)
}

fn set_redirect(ifindex: u32) {
    if let Some(call) = CALL.get() {
        CALL.set(Some(Call { redirect: ifindex, ..call }));
    }
}

fn redirect(ifindex: u64, flags: u64, _: u64, _: u64, _: u64) -> u64 {
    if flags != 0 {
        return ABORTED;
    }
    set_redirect(ifindex as u32);
    REDIRECT
}

fn redirect_map(map: u64, key: u64, flags: u64, _: u64, _: u64) -> u64 {
    let device = with_call(|maps, _| map_of(maps, map)?.device(key as u32)).flatten();
    match device {
        Some(ifindex) if ifindex != 0 => {
            set_redirect(ifindex);
            REDIRECT
        }
        // Return the low bits of the flags as the action if the entry is empty.
        _ => flags & 3,
    }
}

fn csum_diff(from: u64, from_size: u64, to: u64, to_size: u64, seed: u64) -> u64 {
    if (from_size | to_size) & 3 != 0 {
        return INVALID as u64;
    }
    // SAFETY: proven: both arguments are memory of that size.
    let (from, to) = unsafe { (bytes(from, from_size), bytes(to, to_size)) };
    let words = |bytes: &[u8]| -> u64 {
        bytes.as_chunks::<4>().0.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum()
    };
    let all = from.len() as u64 / 4;
    let mut sum = (seed & 0xffff_ffff) + all * 0xffff_ffff - words(from) + words(to);
    while sum >> 32 != 0 {
        sum = (sum & 0xffff_ffff) + (sum >> 32);
    }
    sum
}

fn adjust_head(at: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    let Some((first, _)) = with_call(|_, call| call.page) else { return INVALID as u64 };
    // SAFETY: proven: the argument is the context.
    let c = unsafe { context(at) };
    let meta = c.data - c.data_meta;
    let data = c.data.wrapping_add_signed(i64::from(by as i32));
    if data < first + meta || data + ETHERNET > c.data_end {
        return INVALID as u64;
    }
    // SAFETY: both ranges are in the page, which is exclusively ours while the program runs.
    unsafe {
        std::ptr::copy(c.data_meta as *const u8, (data - meta) as *mut u8, meta as usize);
    }
    (c.data, c.data_meta) = (data, data - meta);
    0
}

fn adjust_meta(at: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    let Some((first, _)) = with_call(|_, call| call.page) else { return INVALID as u64 };
    // SAFETY: proven: the argument is the context.
    let c = unsafe { context(at) };
    let meta = c.data_meta.wrapping_add_signed(i64::from(by as i32));
    if meta < first
        || meta > c.data
        || c.data - meta > META_MAX
        || !(c.data - meta).is_multiple_of(4)
    {
        return INVALID as u64;
    }
    c.data_meta = meta;
    0
}

fn adjust_tail(at: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    let Some((_, last)) = with_call(|_, call| call.page) else { return INVALID as u64 };
    // SAFETY: proven: the argument is the context.
    let c = unsafe { context(at) };
    let end = c.data_end.wrapping_add_signed(i64::from(by as i32));
    if end > last || end < c.data + ETHERNET {
        return INVALID as u64;
    }
    if end > c.data_end {
        let n = (end - c.data_end) as usize;
        // SAFETY: the range is in the page, which is exclusively ours while the program runs.
        unsafe { std::ptr::write_bytes(c.data_end as *mut u8, 0, n) };
    }
    c.data_end = end;
    0
}

fn buff_len(at: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: proven: the argument is the context.
    let c = unsafe { context(at) };
    c.data_end - c.data
}

/// Copies between the frame and the program's memory, which may overlap. Returns an error if the
/// range exceeds the frame.
fn copy(at: u64, offset: u64, memory: u64, len: u64, to_frame: bool) -> u64 {
    // SAFETY: proven: the argument is the context.
    let c = unsafe { context(at) };
    let (offset, len) = (offset & 0xffff_ffff, len & 0xffff_ffff);
    if offset + len > c.data_end - c.data {
        if !to_frame {
            // Initialize the memory on failure too, because the verifier lets the program read it.
            // SAFETY: proven memory of that size.
            unsafe { std::ptr::write_bytes(memory as *mut u8, 0, len as usize) };
        }
        return INVALID as u64;
    }
    let frame = c.data + offset;
    let (from, to) = if to_frame { (memory, frame) } else { (frame, memory) };
    // SAFETY: the range of the frame was checked, and the range at `memory` is proven memory of
    // that size.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
    0
}

fn load_bytes(at: u64, offset: u64, memory: u64, len: u64, _: u64) -> u64 {
    copy(at, offset, memory, len, false)
}

fn store_bytes(at: u64, offset: u64, memory: u64, len: u64, _: u64) -> u64 {
    copy(at, offset, memory, len, true)
}

/// Defines a function that executes an atomic operation and returns the previous value. The
/// operation is not atomic on unaligned memory: concurrent readers may observe a partial update.
macro_rules! atomic_operation {
    ($name:ident, $number:ty, $atomic:ty) => {
        fn $name(at: u64, by: u64, op: i32, compared: u64) -> u64 {
            let (at, by, compared) = (at as *mut $number, by as $number, compared as $number);
            if !at.is_aligned() {
                // SAFETY: proven: memory of that size in a map value or on the stack.
                let old = unsafe { at.read_unaligned() };
                let new = match op & !atomic::FETCH {
                    atomic::ADD => old.wrapping_add(by),
                    atomic::OR => old | by,
                    atomic::AND => old & by,
                    atomic::XOR => old ^ by,
                    _ if op == atomic::CMPXCHG && old != compared => old,
                    _ => by,
                };
                // SAFETY: as above.
                unsafe { at.write_unaligned(new) };
                return old.into();
            }
            // SAFETY: as above, and aligned.
            let word = unsafe { <$atomic>::from_ptr(at) };
            // Pairs with the same operations of programs on other channels: as in the kernel,
            // programs order their accesses by atomic operations.
            let order = Ordering::SeqCst;
            let old = match op & !atomic::FETCH {
                atomic::ADD => word.fetch_add(by, order),
                atomic::OR => word.fetch_or(by, order),
                atomic::AND => word.fetch_and(by, order),
                atomic::XOR => word.fetch_xor(by, order),
                _ if op == atomic::CMPXCHG => {
                    let done = word.compare_exchange(compared, by, order, order);
                    done.unwrap_or_else(|old| old)
                }
                _ => word.swap(by, order),
            };
            old.into()
        }
    };
}

atomic_operation!(atomic_32, u32, AtomicU32);
atomic_operation!(atomic_64, u64, AtomicU64);

fn atomic(at: u64, by: u64, how: u64, compared: u64, _: u64) -> u64 {
    let op = how as i32 & !ATOMIC_WIDE;
    if how as i32 & ATOMIC_WIDE != 0 {
        atomic_64(at, by, op, compared)
    } else {
        atomic_32(at, by, op, compared)
    }
}

/// Defines helpers for compiled code. The runtime's compiler calls helpers with a stack misaligned
/// by 8 bytes, while Rust code requires an alignment of 16.
macro_rules! stubs {
    ($($number:expr => $function:ident),* $(,)?) => {
        const FUNCTIONS: [(i32, HelperFn); [$($number),*].len()] = [$(($number, $function)),*];

        #[cfg(target_arch = "x86_64")]
        fn aligned(number: i32, other: HelperFn) -> HelperFn {
            $(
                if number == $number {
                    extern "sysv64" fn plain(a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
                        $function(a, b, c, d, e)
                    }
                    #[unsafe(naked)]
                    extern "sysv64" fn stub(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
                        std::arch::naked_asm!(
                            "push rbp",
                            "mov rbp, rsp",
                            "and rsp, -16",
                            "call {plain}",
                            "mov rsp, rbp",
                            "pop rbp",
                            "ret",
                            plain = sym plain,
                        )
                    }
                    let stub: Stub = stub;
                    // SAFETY: only compiled code calls the stub, with this calling convention.
                    return unsafe { std::mem::transmute::<Stub, HelperFn>(stub) };
                }
            )*
            other
        }
    };
}

stubs! {
    helper::MAP_LOOKUP => lookup,
    helper::MAP_UPDATE => update,
    helper::MAP_DELETE => delete,
    helper::KTIME => time,
    helper::TRACE => no_operation,
    helper::RANDOM => random,
    helper::PROCESSOR => processor,
    helper::REDIRECT => redirect,
    helper::CSUM_DIFF => csum_diff,
    helper::ADJUST_HEAD => adjust_head,
    helper::REDIRECT_MAP => redirect_map,
    helper::ADJUST_META => adjust_meta,
    helper::ADJUST_TAIL => adjust_tail,
    helper::KTIME_BOOT => time,
    helper::BUFF_LEN => buff_len,
    helper::LOAD_BYTES => load_bytes,
    helper::STORE_BYTES => store_bytes,
    ATOMIC => atomic,
}

#[cfg(not(target_arch = "x86_64"))]
fn aligned(_: i32, other: HelperFn) -> HelperFn {
    other
}
