//! Memory files that a peer may shrink under our mapping: an access then ends in SIGBUS. Guarded
//! mappings survive it: their pages become zeroes of our own, and the guard tells.
//!
//! The handler may run in any thread at any instruction, so all it looks at is a fixed table of
//! atomic words. System calls that are handed such memory fail with `EFAULT` and raise no signal.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Mappings that can be guarded at a time: 120 links, each with as many ranges as one may have.
const GUARDS_MAX: usize = 8192;

/// A slot that somebody is filling in: no mapping begins there.
const TAKEN: usize = 1;

struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot { start: AtomicUsize::new(0), len: AtomicUsize::new(0), lost: AtomicBool::new(false) }
}; GUARDS_MAX];

/// What handled SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A guarded mapping. Drop it before the mapping is removed.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
}

impl Guard {
    /// Guards a mapping from now on.
    ///
    /// # Safety
    /// `start..start + len` must be whole pages of one live mapping that nobody removes before the
    /// guard is dropped, and whose bytes may become zeroes at any time.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> io::Result<Self> {
        install()?;
        let free = |slot: &Slot| {
            slot.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(at) = SLOTS.iter().position(free) else {
            return Err(io::Error::other(format!("{GUARDS_MAX} ranges of peers' memory at most")));
        };
        let slot = &SLOTS[at];
        // Pairs with replace: whoever sees this length sees that the slot was TAKEN in between.
        fence(Ordering::Release);
        slot.len.store(len, Ordering::Relaxed);
        slot.lost.store(false, Ordering::Relaxed);
        // What the handler finds by its start is complete.
        slot.start.store(start.addr().get(), Ordering::Release);
        Ok(Self { slot: at })
    }

    /// True when the peer took pages away: the mapping is zeroes of our own now.
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
        // SAFETY: a null action only asks; `before` is written when the call succeeds, and a
        // zeroed one is valid too.
        let before = unsafe {
            if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
            }
            before.assume_init()
        };
        // Whoever is called has somebody to hand on to.
        let _ = BEFORE.set(before);
        // SAFETY: zeroes are a valid sigaction; the handler has the signature that SA_SIGINFO asks
        // for and does only what a handler may.
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

/// Puts zeroes where `address` faulted; false when no guarded mapping is there.
fn replace(address: usize) -> bool {
    for slot in &SLOTS {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Relaxed);
        // Pairs with new: a slot that became another mapping's between the two loads has another
        // start now, or had one for a moment; its length must not be taken for the old one's.
        fence(Ordering::Acquire);
        let same = slot.start.load(Ordering::Relaxed) == start;
        if start <= TAKEN || !same || address.wrapping_sub(start) >= len {
            continue;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: Guard::new was promised that this is one live mapping whose bytes may change;
        // mmap is a bare system call.
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
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid siginfo_t; errno is this thread's.
    let (code, address, errno) = unsafe {
        let errno = libc::__errno_location();
        ((*info).si_code, (*info).si_addr() as usize, errno)
    };
    // SAFETY: as above.
    let kept = unsafe { *errno };
    let is_access = code > 0;
    if !(is_access && replace(address)) {
        let before = BEFORE.get().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: both are calls that a handler may make. An access faults again when we return,
        // and comes to whoever handled it before us; what was sent comes again by `raise`.
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
