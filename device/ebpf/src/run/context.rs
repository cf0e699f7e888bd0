//! Argument of a program.

/// Argument of a program: `struct xdp_md` with fields of 64 bits.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    pub(super) data: u64,
    pub(super) data_end: u64,
    pub(super) data_meta: u64,
    pub(super) ifindex: u64,
    pub(super) channel: u64,
    pub(super) egress: u64,
}

const _: () = assert!(size_of::<Context>() == 48);
