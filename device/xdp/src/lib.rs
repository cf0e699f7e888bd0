//! XDP: eBPF programs that process each frame that a netdev receives.
//!
//! `mqnet-ebpf` loads, verifies and executes programs. This crate attaches them to queues.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod wrap;
