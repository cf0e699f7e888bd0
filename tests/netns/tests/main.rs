//! The program between real network stacks: two hosts in network namespaces, each with its own
//! `mqnet link` process.

mod config;
mod control_bad;
mod control_daemon;
mod control_find;
mod control_reload;
mod control_see;
mod control_systemd;
mod control_verbs;
mod crash;
mod idle;
mod kernel_tools;
mod library;
mod load;
mod matrix;
mod packaging;
mod refusals;
mod resize;
mod resize_more;
mod retune;
mod stall;
mod steering;
mod tc;
mod tc_live;
mod transfer;
mod unprivileged;
