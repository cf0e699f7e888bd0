//! Drop reasons, declared once: variant, name in statistics, meaning, and advice.

/// Generates [`DropReason`] from its rows.
macro_rules! drop_reasons {
    ($( $variant:ident, $name:literal, $help:literal, $action:literal; )*) => {
        /// Reason why a frame was dropped. Every dropped frame has exactly one reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum DropReason {
            $( #[doc = $help] $variant, )*
        }

        impl DropReason {
            /// All reasons.
            pub const ALL: [Self; [$( $name ),*].len()] = [$( Self::$variant ),*];

            /// Name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// Meaning, in one sentence.
            pub const fn help(self) -> &'static str {
                match self { $( Self::$variant => $help, )* }
            }

            /// Advice for a counter that increases. Placeholders: `{from}` and `{to}` (the netdevs
            /// of the lane), `{here}` (the netdev that counts), `{mtu}`.
            pub const fn action(self) -> &'static str {
                match self { $( Self::$variant => $action, )* }
            }
        }
    };
}

drop_reasons! {
    TooLong, "too-long",
        "The frame is longer than the link's largest frame, which follows from its MTU.",
        "longer than frames of {mtu}: raise the mtu of the link (mqnet set {from} mtu), or lower \
         that of the sender (ip link set {from} mtu)";
    GsoOverMtu, "gso-size-over-mtu",
        "A large frame for a side without segmentation offload has segments longer than the link's \
         MTU.",
        "segments longer than {mtu} of {to}: set the same mtu at the sender behind {from}, or \
         raise the link's";
    BufferTooSmall, "rx-buffer-too-small",
        "The receiver's buffers are smaller than the frame.",
        "the driver behind {to} provides smaller buffers: use mergeable buffers (mrg_rxbuf=on), or \
         a smaller mtu on {from}";
    BadHeader, "bad-header",
        "The virtio header contradicts the frame's bytes (checksum or segmentation fields).",
        "the sender behind {from} sends wrong virtio headers: mqnet capture {from} --drops shows \
         the frames";
    Refused, "refused-by-kernel",
        "The kernel refused the frame (`EINVAL`): an unknown segmentation type or header.",
        "the kernel refuses the frames: mqnet capture {to} --drops shows them";
    DeviceDown, "device-down",
        "The device is administratively down (`EIO`).",
        "ip link set {to} up";
    LinkClosed, "link-closed",
        "The frame waited for a full sink when the link was closed.",
        "{to} was full when the link was closed";
    QueueRetired, "queue-retired",
        "The frame arrived late in a queue that was being retired.",
        "the number of channels changed";
    SinkFull, "sink-full",
        "The sink was full, and the link is set to drop then (`full=drop`).",
        "{to} was full: without full=drop its sender waits instead";
    QdiscOverlimit, "qdisc-overlimit",
        "The queueing discipline is over its limit.",
        "raise the limit: mqnet tc qdisc show dev {to}";
    Aqm, "aqm",
        "Active queue management chose the frame (CoDel).",
        "a queue stays too long: mqnet tc qdisc show dev {to}";
    Policed, "policed",
        "The frame exceeds the rate of a police action.",
        "mqnet tc filter show dev {to} egress, dev {from} ingress";
    Filtered, "filtered",
        "A filter drops the frame.",
        "mqnet tc filter show dev {to} egress, dev {from} ingress";
    XdpDrop, "xdp-drop",
        "An XDP program returned XDP_DROP.",
        "decided by the XDP program of {from}: mqnet xdp show {from}";
    XdpAborted, "xdp-aborted",
        "An XDP program failed or returned XDP_ABORTED.",
        "decided by the XDP program of {from}: mqnet xdp show {from}";
    XdpUnsent, "xdp-unsent",
        "A frame of XDP_TX could not be sent.",
        "XDP_TX found no room in {here}";
    NotWanted, "not-wanted",
        "The driver behind the device filters such frames (address, VLAN, receive mode).",
        "the driver behind {to} filters the address or VLAN: set promisc on there";
    XdpElsewhere, "xdp-elsewhere",
        "An XDP program redirects to a netdev that is not in its link.",
        "the XDP program of {from} redirects to a netdev of another link";
}
