//! What a running mqnet can be asked and what it answers: the types behind `/v1`.
//!
//! [`Host`] is implemented by the program that owns the links; the server turns HTTP requests into
//! its calls, and the verbs of the command line are clients of that server. Times are microseconds
//! (`-us`) or nanoseconds (`-ns`), sizes bytes unless the name says otherwise.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod error;
mod ethtool;
mod host;
mod link;
mod netdev;
mod stats;
mod tc;
mod xdp;

pub use change::{Change, Outcome, Ticket};
pub use error::{ApiError, Code};
pub use ethtool::{
    Channels, Coalesce, DriverInfo, Feature, FieldMatch, FlowRule, FlowRules, NamedCounter,
    PrivFlag, Rings, Rss, SetChannels, SetCoalesce, SetFeatures, SetFlowRules, SetMtu,
    SetPrivFlags, SetRings, SetRss,
};
pub use host::{CaptureFilter, CapturedFrame, FoundNetdev, FrameDirection, FrameSink, Host};
pub use link::{
    ChannelPlace, Event, FunctionPlace, Instance, LinkInfo, LinkSpec, LinkState, MemberInfo,
    NetdevInfo, RecentDrops, RxBufferInfo, WayOffloads, WorkerInfo,
};
pub use netdev::{Napi, PagePool, PagePoolStats, QStats, Queue, QueueType};
pub use stats::{
    ChannelStats, DropCount, LaneStats, LinkStats, Locality, PoolUse, StopCause, StopState, Stopped,
};
pub use tc::{
    Action, Class, ControlAction, Filter, FilterOptions, Qdisc, TcCounters, TcObject, TcRequest,
    TcVerb,
};
pub use xdp::{SetXdp, XdpEntry, XdpInfo, XdpMap, XdpMapRequest, XdpMapVerb, XdpMode, XdpProgram};

/// Version of the interface: the first part of every path.
pub const VERSION: &str = "v1";
