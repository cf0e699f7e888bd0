//! XDP: eBPF programs that decide about each frame that a netdev receives.
//!
//! `mqnet-ebpf` loads, verifies and runs programs. This crate attaches them to queues.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod wrap;
