//! Commands that send requests to a running mqnet over its control socket: they show and change
//! devices and links, print counters, capture frames, and follow the syntax of ethtool, tc and ynl.

#![forbid(unsafe_code)]

mod api;
mod capture;
mod drops;
mod ethtool;
mod monitor;
mod show;
mod stats;
mod tc;
mod top;
mod verbs;
mod why;
mod xdp;
mod ynl;

pub use mqnet_control::discover::Search;

pub use capture::CaptureArgs;
pub use ethtool::EthtoolArgs;
pub use monitor::MonitorArgs;
pub use show::ShowArgs;
pub use stats::StatsArgs;
pub use tc::TcArgs;
pub use top::TopArgs;
pub use verbs::{
    AddArgs, DelArgs, SetArgs, add, del, reload, run_capture, run_ethtool, run_monitor, run_show,
    run_stats, run_tc, run_top, run_why, run_xdp, run_ynl, running, set,
};
pub use why::WhyArgs;
pub use xdp::XdpArgs;
pub use ynl::YnlArgs;
