//! Sections that callgrind counts, one per run.

/// What one core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Section {
    /// Both ends of a link.
    Link,
    /// The same with an empty discipline in front of the link.
    LinkQdisc,
    /// Both ends of a link over two windows, one channel busy.
    Group,
    /// The same where others can stand in.
    GroupDegrade,
    /// The same over one window, without a group.
    GroupNone,
    /// The same with so many channels in turn, as one worker has them.
    Lanes,
    /// A ring, in and out.
    Ring,
    /// A pool, allocation and free.
    Pool,
    /// Frames that an XDP program drops.
    XdpDrop,
    /// Frames that it lets pass.
    XdpPass,
    /// RX buffers that are parts of pages.
    RxFragment,
    /// RX buffers that are whole pages.
    RxFullPage,
    /// RX buffers that nobody takes and frees.
    RxNone,
    /// The copies alone: one frame into shared memory and out of it.
    Copy,
    /// Our driver to our device through a split ring.
    SplitToDevice,
    /// Back.
    SplitToDriver,
    /// Our driver to our device through a packed ring.
    PackedToDevice,
    /// Back.
    PackedToDriver,
    /// Our end of an `ntb_transport`, towards the peer; the peer is not counted.
    NtbSend,
    /// From the peer.
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
