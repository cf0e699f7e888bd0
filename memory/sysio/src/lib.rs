//! System calls: every libc call of the data path and the control plane, behind functions that are
//! safe to call.
//!
//! Excluded here: policy, logging, and retries (except `EINTR` where the call is a wait).

pub mod affinity;
pub mod bounded;
pub mod bpf;
pub mod broker;
pub mod clock;
pub mod descriptors;
pub mod epoll;
pub mod eventfd;
pub mod file_lock;
mod ioctl;
pub mod link_monitor;
pub mod listen;
pub mod memory;
mod message;
pub mod namespace;
pub mod nic;
pub mod poll;
pub mod process;
pub mod rate;
pub mod seccomp;
pub mod sigbus;
pub mod signal;
pub mod socket;
pub mod tap;
pub mod timer;
pub mod uring;
pub mod vduse;
pub mod vectored;
pub mod vfio;
pub mod xdp;
