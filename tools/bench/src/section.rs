//! Sections that callgrind counts, one per run.

/// Counted work, all on one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Section {
    /// Both ends of a link.
    Link,
    /// Both ends of a link with an empty discipline.
    LinkQdisc,
    /// Both ends of a link over two windows as a group; one channel carries frames.
    Group,
    /// Both ends of a link over two windows as a group with fail-over.
    GroupDegrade,
    /// Both ends of a link over one window without a group.
    GroupNone,
    /// Both ends of a link with a number of channels, which are polled in rotation like those of a
    /// worker.
    Lanes,
    /// A ring, push and pop.
    Ring,
    /// A pool, allocation and free.
    Pool,
    /// Frames that an XDP program drops.
    XdpDrop,
    /// Frames that an XDP program passes.
    XdpPass,
    /// RX buffers that are page fragments.
    RxFragment,
    /// RX buffers that are full pages.
    RxFullPage,
    /// RX buffers without allocation and free.
    RxNone,
    /// The copies only: one frame into shared memory and out of it.
    Copy,
    /// mqnet's driver to mqnet's device through a split ring.
    SplitToDevice,
    /// mqnet's device to mqnet's driver through a split ring.
    SplitToDriver,
    /// mqnet's driver to mqnet's device through a packed ring.
    PackedToDevice,
    /// mqnet's device to mqnet's driver through a packed ring.
    PackedToDriver,
    /// mqnet's end of an `ntb_transport`, sending to a peer that is not counted.
    NtbSend,
    /// mqnet's end of an `ntb_transport`, receiving from a peer that is not counted.
    NtbReceive,
}

impl Section {
    pub(super) const VIRTIO: [Self; 4] =
        [Self::SplitToDevice, Self::SplitToDriver, Self::PackedToDevice, Self::PackedToDriver];

    pub(super) const NTB: [Self; 2] = [Self::NtbSend, Self::NtbReceive];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::LinkQdisc => "link-qdisc",
            Self::Group => "group",
            Self::GroupDegrade => "group-degrade",
            Self::GroupNone => "group-none",
            Self::Lanes => "lanes",
            Self::Ring => "ring",
            Self::Pool => "pool",
            Self::XdpDrop => "xdp-drop",
            Self::XdpPass => "xdp-pass",
            Self::RxFragment => "rx-fragment",
            Self::RxFullPage => "rx-full-page",
            Self::RxNone => "rx-none",
            Self::Copy => "copy",
            Self::SplitToDevice => "split-to-device",
            Self::SplitToDriver => "split-to-driver",
            Self::PackedToDevice => "packed-to-device",
            Self::PackedToDriver => "packed-to-driver",
            Self::NtbSend => "ntb-send",
            Self::NtbReceive => "ntb-receive",
        }
    }
}
