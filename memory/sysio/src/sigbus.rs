//! Guards for mappings of files that a peer may shrink. An access beyond the end raises SIGBUS. In
//! a guarded mapping the handler replaces the pages with zeros, and the guard reports the loss.
//!
//! The handler may run in any thread at any instruction. The handler therefore uses only a fixed
//! table of atomic words. System calls with such memory fail with `EFAULT` and raise no signal.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Maximum number of guarded mappings: 120 links with the maximum number of ranges each.
const GUARDS_MAX: usize = 8192;

/// Start value of a slot that is being filled; no mapping begins at this address.
const TAKEN: usize = 1;

struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot { start: AtomicUsize::new(0), len: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; GUARDS_MAX];

/// Previous SIGBUS action.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Guarded mapping. A guard must be dropped before its mapping is removed.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
}

impl Guard {
    /// Guards a mapping.
    ///
    /// # Safety
    /// `start..start + len` must be whole pages of one live mapping that is not removed before the
    /// guard is dropped, and its bytes may become zeros at any time.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> io::Result<Self> {
        install()?;
        let free = |slot: &Slot| {
            slot.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(at) = SLOTS.iter().position(free) else {
            return Err(io::Error::other(format!(
                "too many ranges of peers' memory: at most {GUARDS_MAX}"
            )));
        };
        let slot = &SLOTS[at];
        // Pairs with the fence in replace: a reader of this length sees that the slot was TAKEN in
        // between.
        fence(Ordering::Release);
        slot.len.store(len, Ordering::Relaxed);
        slot.lost.store(false, Ordering::Relaxed);
        // Release: a slot found by its start is complete.
        slot.start.store(start.addr().get(), Ordering::Release);
        Ok(Self { slot: at })
    }

    /// True if the peer removed pages. The mapping then consists of private zeros.
    pub fn is_lost(&self) -> bool {
        SLOTS[self.slot].lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        SLOTS[self.slot].start.store(0, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = DONE.get_or_init(|| {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a null action only queries; `before` is written on success, and zeros are valid
        // too.
        let before = unsafe {
            if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
            }
            before.assume_init()
        };
        // Set `BEFORE` first, because the handler chains to the previous action.
        let _ = BEFORE.set(before);
        // SAFETY: zeros are a valid sigaction; the handler has the signature required by SA_SIGINFO
        // and is async-signal-safe.
        let result = unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_bus_error as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
        }
        Ok(())
    });
    done.map_err(io::Error::from_raw_os_error)
}

/// Replaces the guarded mapping that contains `address` with zeros. Returns false if there is none.
fn replace(address: usize) -> bool {
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Relaxed);
        // Pairs with the fence in `new`. If the slot was reused between the two loads, the second
        // load of its start returns another value. The new length is then not combined with the old
        // start.
        fence(Ordering::Acquire);
        let same = slot.start.load(Ordering::Relaxed) == start;
        if start <= TAKEN || !same || address.wrapping_sub(start) >= len {
            continue;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: by the contract of Guard::new this is one live mapping with bytes that may
        // change; mmap is a plain system call.
        let mapped = unsafe {
            let place = ptr::with_exposed_provenance_mut(start);
            libc::mmap(place, len, prot, flags, -1, 0)
        };
        slot.lost.store(true, Ordering::Release);
        return mapped != libc::MAP_FAILED;
    }
    false
}

extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo_t to an SA_SIGINFO handler; errno belongs to this
    // thread.
    let (code, address, errno) = unsafe {
        let errno = libc::__errno_location();
        ((*info).si_code, (*info).si_addr() as usize, errno)
    };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let is_access = code > 0;
    if !(is_access && replace(address)) {
        let before = BEFORE.get().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: both calls are async-signal-safe. An access faults again after the return and
        // reaches the previous handler; a sent signal is repeated by `raise`.
        unsafe {
            libc::sigaction(signal, before, ptr::null_mut());
            if !is_access {
                libc::raise(signal);
            }
        }
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}
