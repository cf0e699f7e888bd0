//! Requests to a running mqnet, and the replies. HTTP, the library and the tests send the same.

use serde::Serialize;

use crate::{
    ApiError, CaptureFilter, Channels, Class, Coalesce, DriverInfo, Event, Feature, Filter,
    FlowRules, FrameSink, Instance, LinkInfo, LinkSpec, LinkStats, NamedCounter, Napi, NetdevInfo,
    PagePoolInfo, PagePoolStats, PrivFlag, QStats, QdiscEntry, QueueInfo, Rings, Rss, SetChannels,
    SetCoalesce, SetFeatures, SetFlowRules, SetMtu, SetPrivFlags, SetRings, SetRss, SetXdp,
    TcRequest, Ticket, XdpEntry, XdpInfo, XdpMapRequest,
};

/// Passes the table of the verbs of a netdev to the macro `$with`.
///
/// Rows of `read`: function, variant of [`NetdevRequest`] and of [`Reply`], type of the reply,
/// path, command of the kernel's tools. Rows of `change`: function, variant, type of the body, HTTP
/// method, path, command.
#[macro_export]
macro_rules! netdev_verbs {
    ($with:ident) => {
        $with! {
            read {
                channels Channels [Channels] "/v1/netdevs/{dev}/channels" "`ethtool -l`";
                rings Rings [Rings] "/v1/netdevs/{dev}/rings" "`ethtool -g`";
                coalesce Coalesce [Coalesce] "/v1/netdevs/{dev}/coalesce" "`ethtool -c`";
                rss Rss [Rss] "/v1/netdevs/{dev}/rss" "`ethtool -x`";
                rules Rules [FlowRules] "/v1/netdevs/{dev}/rules" "`ethtool -n`";
                features Features [Vec<Feature>] "/v1/netdevs/{dev}/features" "`ethtool -k`";
                priv_flags PrivFlags [Vec<PrivFlag>] "/v1/netdevs/{dev}/priv-flags"
                    "`ethtool --show-priv-flags`";
                driver Driver [DriverInfo] "/v1/netdevs/{dev}/driver" "`ethtool -i`";
                counters Counters [Vec<NamedCounter>] "/v1/netdevs/{dev}/counters" "`ethtool -S`";
                queues Queues [Vec<QueueInfo>] "/v1/netdevs/{dev}/queues" "`queue-get`";
                napis Napis [Vec<Napi>] "/v1/netdevs/{dev}/napis" "`napi-get`";
                qdiscs Qdiscs [Vec<QdiscEntry>] "/v1/netdevs/{dev}/qdiscs" "`tc qdisc show`";
                classes Classes [Vec<Class>] "/v1/netdevs/{dev}/classes" "`tc class show`";
                filters Filters [Vec<Filter>] "/v1/netdevs/{dev}/filters"
                    "`tc filter show`, of every parent";
                xdp Xdp [XdpInfo] "/v1/netdevs/{dev}/xdp"
                    "The attached XDP program, with its counters and maps";
            }
            change {
                set_channels SetChannels [SetChannels] patch "/v1/netdevs/{dev}/channels"
                    "`ethtool -L`";
                set_rings SetRings [SetRings] patch "/v1/netdevs/{dev}/rings" "`ethtool -G`";
                set_mtu SetMtu [SetMtu] patch "/v1/netdevs/{dev}/mtu" "Sets the MTU";
                set_coalesce SetCoalesce [SetCoalesce] patch "/v1/netdevs/{dev}/coalesce"
                    "`ethtool -C`";
                set_rss SetRss [SetRss] patch "/v1/netdevs/{dev}/rss" "`ethtool -X`";
                set_rules SetRules [SetFlowRules] patch "/v1/netdevs/{dev}/rules" "`ethtool -N`";
                set_features SetFeatures [SetFeatures] patch "/v1/netdevs/{dev}/features"
                    "`ethtool -K`";
                set_priv_flags SetPrivFlags [SetPrivFlags] patch "/v1/netdevs/{dev}/priv-flags"
                    "`ethtool --set-priv-flags`";
                set_tc SetTc [TcRequest] post "/v1/netdevs/{dev}/tc"
                    "`tc qdisc|class|filter add|change|replace|delete`";
                set_xdp SetXdp [SetXdp] post "/v1/netdevs/{dev}/xdp"
                    "Attaches an XDP program, or detaches it";
            }
        }
    };
}

macro_rules! declare {
    (
        read { $($read:ident $variant:ident [$reply:ty] $path:literal $what:literal;)+ }
        change {
            $($set:ident $change:ident [$body:ty] $method:ident $to:literal $does:literal;)+
        }
    ) => {
        /// Request about one netdev.
        #[derive(Clone, Debug, PartialEq)]
        pub enum NetdevRequest {
            $(#[doc = $what] $variant,)+
            $(#[doc = $does] $change($body),)+
            /// `qstats-get`: one record for the device, or one a queue.
            QStats {
                /// One record a queue.
                per_queue: bool,
            },
            /// Reads or writes a map of the XDP program.
            XdpMap(XdpMapRequest),
            /// Starts a capture of frames.
            Capture(CaptureFilter),
        }

        /// Reply to a [`Request`]. In JSON it is the value alone.
        #[derive(Serialize)]
        #[serde(untagged)]
        pub enum Reply {
            $(#[doc = $what] $variant($reply),)+
            /// `qstats-get`.
            QStats(Vec<QStats>),
            /// Entries of a map.
            XdpEntries(Vec<XdpEntry>),
            /// The frames of a capture.
            #[serde(skip)]
            Capture(Box<dyn FrameSink>),
            /// Outcome of a change, once it is done.
            #[serde(skip)]
            Change(Ticket),
            /// The process.
            Instance(Instance),
            /// Every link.
            Links(Vec<LinkInfo>),
            /// Every netdev.
            Netdevs(Vec<NetdevInfo>),
            /// Every counter of a link.
            LinkStats(Box<LinkStats>),
            /// Events, oldest first, and the number of the last one.
            Events(Vec<Event>, u64),
            /// `page-pool-get`.
            PagePools(Vec<PagePoolInfo>),
            /// `page-pool-stats-get`.
            PagePoolStats(Vec<PagePoolStats>),
            /// The netdev of a name.
            Found(FoundNetdev),
        }
    };
}

netdev_verbs!(declare);

/// Name of a netdev or a link, as a client writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// The name.
    pub name: String,
    /// Inode of the client's network namespace, if it is known.
    pub netns: Option<u64>,
}

/// Netdev that was found by a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundNetdev {
    /// Name that stands for this netdev alone.
    pub netdev: String,
    /// Name of its link.
    pub link: String,
}

/// Request to a running mqnet.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// The process.
    Instance,
    /// Every link.
    Links,
    /// Adds a link (daemon only). The same link again changes nothing.
    AddLink {
        /// Name for the link.
        name: String,
        /// Its ends and options.
        spec: LinkSpec,
    },
    /// Ends a link. A foreground `link` ends with it.
    DeleteLink(ObjectName),
    /// Every counter of a link, by its name or by that of one of its netdevs.
    LinkStats(ObjectName),
    /// Reads the configuration again (daemon only).
    Reload,
    /// Events with a number above this one.
    Events(u64),
    /// Every netdev.
    Netdevs,
    /// `page-pool-get`.
    PagePools,
    /// `page-pool-stats-get`.
    PagePoolStats,
    /// Finds a netdev by a name.
    Find(ObjectName),
    /// Something about one netdev.
    Netdev(ObjectName, NetdevRequest),
}

/// Owner of the links. No request waits: a change that takes longer is answered with an open
/// ticket. An unknown name is [`crate::Code::NoDevice`].
pub trait Host: Send {
    /// Validates a request, then carries it out.
    fn request(&mut self, request: Request) -> Result<Reply, ApiError>;
}
