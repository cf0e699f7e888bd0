//! Commands that run links, `link` and `daemon`, and those that need the same knowledge of backends
//! and machine: `config`, `doctor`, `plan`, `ivshmem-server`.

#![forbid(unsafe_code)]

pub mod args;
pub mod config;
pub mod daemon;
pub mod doctor;
pub mod endpoint;
pub mod ivshmem_server;
mod leftovers;
mod limits;
pub mod link;
pub mod log;
pub mod plan;
mod platform;
mod privileges;
pub mod receive;
pub mod run;
pub mod status;
pub mod vmm;
