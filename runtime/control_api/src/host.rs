//! What stands behind the server.

use crate::{
    ApiError, Change, Channels, Class, Coalesce, Code, DriverInfo, Event, Feature, Filter,
    FlowRules, Instance, LinkInfo, LinkSpec, LinkStats, NamedCounter, Napi, NetdevInfo, PagePool,
    PagePoolStats, PrivFlag, QStats, Qdisc, Queue, Rings, Rss, SetChannels, SetCoalesce,
    SetFeatures, SetFlowRules, SetMtu, SetPrivFlags, SetRings, SetRss, SetXdp, TcRequest, XdpEntry,
    XdpInfo, XdpMapRequest,
};

/// Which frames of a netdev are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Only this channel.
    pub channel: Option<u16>,
    /// Only frames that were dropped.
    pub drops: bool,
    /// Bytes kept of each frame.
    pub snaplen: u32,
}

/// Which way a captured frame went, seen from the netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// It arrived there.
    Inbound,
    /// It left there.
    Outbound,
}

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Its channel.
    pub channel: u16,
    /// Which way.
    pub direction: FrameDirection,
    /// Its whole length.
    pub len: u32,
    /// What was kept of it.
    pub bytes: Vec<u8>,
    /// Why it was dropped.
    pub drop_reason: Option<&'static str>,
}

/// Where captured frames wait for their reader.
pub trait FrameSink: Send {
    /// Takes what has been captured since, oldest first, and says how many frames were missed
    /// because the reader was slow. Dropping the sink ends the capture.
    fn take(&mut self, frames: &mut Vec<CapturedFrame>) -> u64;
}

/// A netdev that was found by a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNetdev {
    /// A name that stands for it alone.
    pub netdev: String,
    /// Name of its link.
    pub link: String,
}

fn no_rules(dev: &str) -> ApiError {
    ApiError::new(Code::NotSupported, format!("{dev}: takes no rules"))
}

fn no_xdp(dev: &str) -> ApiError {
    ApiError::new(Code::NotSupported, format!("{dev}: takes no XDP programs"))
}

/// The owner of the links. Every call returns at once; changes that take longer answer with a
/// ticket. Netdevs and links are named; unknown names are [`crate::Code::NoDevice`].
pub trait Host: Send {
    /// The process.
    fn instance(&self) -> Instance;
    /// Every link.
    fn links(&mut self) -> Vec<LinkInfo>;
    /// Every netdev.
    fn netdevs(&mut self) -> Vec<NetdevInfo>;
    /// Finds a netdev by a name as a client writes it; `caller` is the inode of the network
    /// namespace of the client, if that is known. The other calls take names that this one returns.
    fn find_netdev(&mut self, asked: &str, _caller: Option<u64>) -> Result<FoundNetdev, ApiError> {
        Ok(FoundNetdev { netdev: asked.to_owned(), link: asked.to_owned() })
    }
    /// Finds a link by its name or by one of its netdevs, and returns its name.
    fn find_link(&mut self, asked: &str, _caller: Option<u64>) -> Result<String, ApiError> {
        Ok(asked.to_owned())
    }
    /// Adds a link (a daemon only).
    fn add_link(&mut self, name: &str, spec: &LinkSpec) -> Change;
    /// Ends a link. A foreground `link` ends with it.
    fn del_link(&mut self, name: &str) -> Change;
    /// Reads the configuration again (a daemon only).
    fn reload(&mut self) -> Change;
    /// Every counter of a link, by the name of the link or of one of its netdevs.
    fn stats(&mut self, name: &str) -> Result<LinkStats, ApiError>;
    /// Events with a number above `after`, and the number of the last.
    fn events(&mut self, after: u64) -> (Vec<Event>, u64);

    /// `ethtool -l`.
    fn channels(&mut self, dev: &str) -> Result<Channels, ApiError>;
    /// `ethtool -L`.
    fn set_channels(&mut self, dev: &str, want: &SetChannels) -> Change;
    /// `ethtool -g`.
    fn rings(&mut self, dev: &str) -> Result<Rings, ApiError>;
    /// `ethtool -G`.
    fn set_rings(&mut self, dev: &str, want: &SetRings) -> Change;
    /// Sets the MTU.
    fn set_mtu(&mut self, dev: &str, want: &SetMtu) -> Change;
    /// `ethtool -c`.
    fn coalesce(&mut self, dev: &str) -> Result<Coalesce, ApiError>;
    /// `ethtool -C`.
    fn set_coalesce(&mut self, dev: &str, want: &SetCoalesce) -> Change;
    /// `ethtool -x`.
    fn rss(&mut self, dev: &str) -> Result<Rss, ApiError>;
    /// `ethtool -X`.
    fn set_rss(&mut self, dev: &str, want: &SetRss) -> Change;
    /// `ethtool -n`.
    fn rules(&mut self, dev: &str) -> Result<FlowRules, ApiError> {
        Err(no_rules(dev))
    }
    /// `ethtool -N`.
    fn set_rules(&mut self, dev: &str, _want: &SetFlowRules) -> Change {
        Err(no_rules(dev))
    }
    /// `ethtool -k`.
    fn features(&mut self, dev: &str) -> Result<Vec<Feature>, ApiError>;
    /// `ethtool -K`.
    fn set_features(&mut self, dev: &str, want: &SetFeatures) -> Change;
    /// `ethtool -i`.
    fn driver(&mut self, dev: &str) -> Result<DriverInfo, ApiError>;
    /// `ethtool --show-priv-flags`; a device without any is [`crate::Code::NotSupported`].
    fn priv_flags(&mut self, dev: &str) -> Result<Vec<PrivFlag>, ApiError>;
    /// `ethtool --set-priv-flags`.
    fn set_priv_flags(&mut self, dev: &str, want: &SetPrivFlags) -> Change;
    /// `ethtool -S`.
    fn counters(&mut self, dev: &str) -> Result<Vec<NamedCounter>, ApiError>;

    /// `tc qdisc show`.
    fn qdiscs(&mut self, dev: &str) -> Result<Vec<Qdisc>, ApiError>;
    /// `tc class show`.
    fn classes(&mut self, dev: &str) -> Result<Vec<Class>, ApiError>;
    /// `tc filter show`, of every parent.
    fn filters(&mut self, dev: &str) -> Result<Vec<Filter>, ApiError>;
    /// `tc ... add|change|replace|del`. Words that make no sense are refused with the field
    /// `options`; other refusals have the kernel's message, or none where it has none.
    fn set_tc(&mut self, dev: &str, want: &TcRequest) -> Change;

    /// The XDP program of a netdev.
    fn xdp(&mut self, dev: &str) -> Result<XdpInfo, ApiError> {
        Err(no_xdp(dev))
    }
    /// Attaches an XDP program, or takes it off. A program that is refused is the field `object`.
    fn set_xdp(&mut self, dev: &str, _want: &SetXdp) -> Change {
        Err(no_xdp(dev))
    }
    /// Reads or writes a map of the XDP program.
    fn xdp_map(&mut self, dev: &str, _want: &XdpMapRequest) -> Result<Vec<XdpEntry>, ApiError> {
        Err(no_xdp(dev))
    }

    /// `queue-get` of a netdev: all RX, then all TX; nothing while it is down.
    fn queues(&mut self, dev: &str) -> Result<Vec<Queue>, ApiError>;
    /// `napi-get` of a netdev, ids descending; nothing while it is down.
    fn napis(&mut self, dev: &str) -> Result<Vec<Napi>, ApiError>;
    /// `qstats-get` of a netdev: one record for the device, or one a queue (with `per_queue`).
    fn qstats(&mut self, dev: &str, per_queue: bool) -> Result<Vec<QStats>, ApiError>;
    /// `page-pool-get`.
    fn page_pools(&mut self) -> Vec<PagePool>;
    /// `page-pool-stats-get`.
    fn page_pool_stats(&mut self) -> Vec<PagePoolStats>;

    /// Begins to capture frames of a netdev.
    fn capture(&mut self, dev: &str, filter: CaptureFilter)
    -> Result<Box<dyn FrameSink>, ApiError>;
}
