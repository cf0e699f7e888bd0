//! Requests to a running mqnet and their replies: the types of the control interface `/v1`.
//!
//! Every access to a running link is a [`Request`]. The server creates one from each HTTP request;
//! the library and the tests create requests directly. A [`Host`] executes requests. The suffix
//! of a time is its unit (`-ms`, `-us` or `-ns`). Sizes are in bytes unless the name states another
//! unit.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod capture;
mod change;
mod error;
mod ethtool;
mod link;
mod netdev;
mod requests;
mod resources;
mod stats;
mod tc;
mod xdp;

pub use capture::{CaptureFilter, CapturedFrame, FrameDirection, FrameSink};
pub use change::{Change, Outcome, Ticket};
pub use error::{ApiError, Code, errors_page};
pub use ethtool::{
    Channels, Coalesce, DriverInfo, Feature, FieldMatch, FlowRule, FlowRules, NamedCounter,
    PrivFlag, Rings, Rss, SetChannels, SetCoalesce, SetFeatures, SetFlowRules, SetMtu,
    SetPrivFlags, SetRings, SetRss,
};
pub use link::{
    ChannelPlace, Event, FunctionPlace, Instance, LinkInfo, LinkSpec, LinkState, MemberInfo,
    NetdevInfo, QueuePairInfo, RecentDrops, SlotRingsInfo, WayOffloads, WindowInfo,
};
pub use netdev::{Napi, PagePoolInfo, QStats, QueueInfo, QueueType};
pub use requests::{FoundNetdev, Host, NetdevRequest, ObjectName, Reply, Request};
pub use resources::{PagePoolStats, RxBufferInfo, WorkerInfo};
pub use stats::{
    ChannelStats, DropCount, LaneStats, LinkStats, Locality, PoolUse, StopCause, StopState, Stopped,
};
pub use tc::{
    Action, Class, ControlAction, Filter, FilterOptions, QdiscEntry, TcCounters, TcObject,
    TcRequest, TcVerb,
};
pub use xdp::{SetXdp, XdpEntry, XdpInfo, XdpMap, XdpMapRequest, XdpMapVerb, XdpMode, XdpProgram};

/// Version of the interface: the first component of every path.
pub const VERSION: &str = "v1";
