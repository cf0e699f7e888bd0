//! The program between real network stacks: two hosts in network namespaces, each with its own
//! `mqnet link` process.

mod config;
mod crash;
mod idle;
mod kernel_tools;
mod load;
mod matrix;
mod packaging;
mod refusals;
mod resize;
mod resize_more;
mod retune;
mod stall;
mod steering;
mod transfer;
mod unprivileged;
