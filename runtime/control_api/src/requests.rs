//! Requests to a running mqnet and the replies, for HTTP, the library and the tests.

use serde::Serialize;

use crate::{
    ApiError, CaptureFilter, Channels, Class, Coalesce, DriverInfo, Event, Feature, Filter,
    FlowRules, FrameSink, Instance, LinkInfo, LinkSpec, LinkStats, NamedCounter, Napi, NetdevInfo,
    PagePoolInfo, PagePoolStats, PrivFlag, QStats, QdiscEntry, QueueInfo, Rings, Rss, SetChannels,
    SetCoalesce, SetFeatures, SetFlowRules, SetMtu, SetPrivFlags, SetRings, SetRss, SetXdp,
    TcRequest, Ticket, XdpEntry, XdpInfo, XdpMapRequest,
};

/// Passes the table of netdev requests to the macro `$with`.
///
/// Columns of `read` rows: function, variant of [`NetdevRequest`] and [`Reply`], type of the reply,
/// path, kernel tool command. Columns of `change` rows: function, variant, type of the body, HTTP
/// method, path, kernel tool command.
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
            /// `qstats-get`: one record for the netdev, or one per queue.
            QStats {
                /// True for one record per queue.
                per_queue: bool,
            },
            /// Reads or writes a map of the XDP program.
            XdpMap(XdpMapRequest),
            /// Starts a capture of frames.
            Capture(CaptureFilter),
        }

        /// Reply to a [`Request`]. The JSON document contains only the value, not the variant.
        #[derive(Serialize)]
        #[serde(untagged)]
        pub enum Reply {
            $(#[doc = $what] $variant($reply),)+
            /// `qstats-get`.
            QStats(Vec<QStats>),
            /// Entries of an XDP map.
            XdpEntries(Vec<XdpEntry>),
            /// Stream of captured frames.
            #[serde(skip)]
            Capture(Box<dyn FrameSink>),
            /// Ticket for the outcome of a change.
            #[serde(skip)]
            Change(Ticket),
            /// Description of the process.
            Instance(Instance),
            /// All links.
            Links(Vec<LinkInfo>),
            /// All netdevs.
            Netdevs(Vec<NetdevInfo>),
            /// All counters of a link.
            LinkStats(Box<LinkStats>),
            /// Events, oldest first, and the number of the latest event of the process.
            Events(Vec<Event>, u64),
            /// `page-pool-get`.
            PagePools(Vec<PagePoolInfo>),
            /// `page-pool-stats-get`.
            PagePoolStats(Vec<PagePoolStats>),
            /// Netdev that was found by name.
            Found(FoundNetdev),
        }
    };
}

netdev_verbs!(declare);

/// Name of a netdev or a link, as written by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Name as written.
    pub name: String,
    /// Inode of the client's network namespace; `None`: unknown.
    pub netns: Option<u64>,
}

/// Netdev found by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundNetdev {
    /// Unambiguous name of the netdev.
    pub netdev: String,
    /// Name of the link with the netdev.
    pub link: String,
}

/// Request to a running mqnet.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Describes the process.
    Instance,
    /// Lists all links.
    Links,
    /// Adds a link (daemon only). An identical link of the same name is left unchanged.
    AddLink {
        /// Name of the new link.
        name: String,
        /// Endpoints and options of the new link.
        spec: LinkSpec,
    },
    /// Ends a link. A process with a single link ends as well.
    DeleteLink(ObjectName),
    /// Reads all counters of a link, by the name of the link or of one of its netdevs.
    LinkStats(ObjectName),
    /// Reads the configuration file again (daemon only).
    Reload,
    /// Reads events with a larger number than this one.
    Events(u64),
    /// Lists all netdevs.
    Netdevs,
    /// `page-pool-get`.
    PagePools,
    /// `page-pool-stats-get`.
    PagePoolStats,
    /// Finds a netdev by name.
    Find(ObjectName),
    /// Request about one netdev.
    Netdev(ObjectName, NetdevRequest),
}

/// Owner of the links of a process. `request` never waits: a change that takes longer returns an
/// open ticket. Unknown names return [`crate::Code::NoDevice`].
pub trait Host: Send {
    /// Validates a request, then executes it.
    fn request(&mut self, request: Request) -> Result<Reply, ApiError>;
}
