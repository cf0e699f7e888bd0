//! Requests of ioctl(2).

/// Request of ioctl(2) in the type of the C library: `unsigned long` in glibc, `int` in musl. The
/// kernel reads its low 32 bits only.
pub(crate) const fn ioctl_request(number: u32) -> libc::Ioctl {
    number as libc::Ioctl
}
