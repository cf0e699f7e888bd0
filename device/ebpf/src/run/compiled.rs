//! Machine code in dedicated pages, which are never writable and executable at the same time.

#![allow(unsafe_code, reason = "maps memory, and calls what was compiled into it")]

use mqnet_shmem::code::CodePages;
use rbpf::EbpfVmMbuff;

use super::context::Context;

const PAGE: usize = 4096;
/// Upper bound of the machine code of an instruction in bytes (a division needs 45). The compiler
/// panics if the memory is too small.
const INSN_MAX: usize = 64;
/// Upper bound of the machine code of the prologue and epilogue in bytes.
const FRAME: usize = 256;

/// Compiled code.
pub(super) struct Compiled(CodePages);

impl Compiled {
    /// Compiles a program of `insns` instructions. All helpers must be registered before.
    pub(super) fn new(mut vm: EbpfVmMbuff<'static>, insns: usize) -> Result<Self, String> {
        let len = (FRAME + INSN_MAX * insns).next_multiple_of(PAGE);
        let pages = CodePages::new(len).map_err(|e| format!("memory for code: {e}"))?;
        // SAFETY: the pages are exclusively ours, and outlive `vm`, which this function drops.
        let memory = unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), len) };
        let done = vm.set_jit_exec_memory(memory).and_then(|()| vm.jit_compile());
        done.map_err(|e| format!("runtime: {e:?}"))?;
        drop(vm);
        // SAFETY: no reference to the pages exists any more.
        unsafe { pages.seal() }
            .map_err(|e| format!("memory for code cannot be made executable: {e}"))?;
        Ok(Self(pages))
    }

    /// # Safety
    /// The program must have been verified for a context like `context`, which must be valid.
    #[inline]
    pub(super) unsafe fn call(&self, context: *mut Context) -> u64 {
        type Entry = unsafe extern "sysv64" fn(*mut Context) -> u64;
        // SAFETY: the memory begins with the code, which takes r1 as its argument and preserves the
        // registers that this calling convention requires.
        let entry = unsafe { std::mem::transmute::<*mut u8, Entry>(self.0.start().as_ptr()) };
        // SAFETY: the caller's promise.
        unsafe { entry(context) }
    }
}
