//! Control-plane part of the contract.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::facets::{
    Bridge, KernelInterface, Members, Placement, PrivateFlags, RxBuffers, Steering,
};
use crate::{Caps, Channel, Peer, Plan, QueuePairStats};

/// Link state of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStatus {
    /// The link carries no traffic. The text is the reason with the remedy.
    Down(String),
    /// The link is up. The number of the session changes if the peer was lost in between: channels
    /// of an older session must be closed and opened again.
    Up {
        /// Number of the session.
        session: u64,
    },
}

/// Reason why channels could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {what}")]
pub struct OpenChannelsError {
    /// Name of the function.
    pub function: String,
    /// Cause and remedy.
    pub what: String,
}

impl Plan {
    /// Fails if the plan has more than `most` channels.
    pub fn check_channels(&self, function: &str, most: u16) -> Result<(), OpenChannelsError> {
        if self.channels <= most {
            return Ok(());
        }
        let what = format!("{} channels, at most {most} are possible", self.channels);
        Err(OpenChannelsError { function: function.to_owned(), what })
    }
}

/// Indirection table of the RX queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indirection {
    /// Queue of each hash bucket.
    pub table: Vec<u16>,
    /// True if a user set the table; such a table is not adapted to the number of channels.
    pub user_set: bool,
    /// Name of the hash that selects the bucket, as in ethtool(8).
    pub hash: &'static str,
}

/// Mapping from the first bytes of a frame to its bucket; `None` for a frame without a bucket.
pub type BucketOf = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

/// Mappings from frames to buckets of [`Indirection`].
#[derive(Clone)]
pub struct Buckets {
    /// Bucket in which replies to a frame arrive.
    pub of_answers: BucketOf,
    /// Bucket in which a frame arrives, according to the driver. The engine verifies the bucket by
    /// the RX queue on which the frame arrives. `None` if this process selects the queue.
    pub of_arrivals: Option<BucketOf>,
}

/// A hardware device behind a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HardwareDevice {
    /// Endpoint address of the device.
    pub name: String,
    /// NUMA node of the device, if known.
    pub node: Option<u32>,
    /// Name of the device's kernel interface, if there is one.
    pub interface: Option<String>,
    /// Network namespace of the interface, if it differs from that of this process.
    pub netns: Option<PathBuf>,
    /// Interrupts of the device, if this process handles them.
    pub vectors: Option<Vectors>,
}

/// Interrupts of a PCI function with a user-space driver. The kernel names these interrupts after
/// the PCI function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vectors {
    /// PCI address of the function.
    pub pci: String,
    /// Vector of each queue, in order. Queues may share a vector.
    pub of_queue: Vec<u16>,
}

/// Reason why a TX queue stays full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullCause {
    /// The device accepts no frames.
    #[default]
    Device,
    /// The other end of a bridge accepts no frames.
    Peer,
    /// The kernel has no memory for a frame.
    Memory,
}

/// Kernel interface of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Current name.
    pub name: &'a str,
    /// Interface index, if the interface belongs to the function.
    pub index: Option<u32>,
    /// Inode of the network namespace, if it differs from that of this process.
    pub netns: Option<u64>,
    /// True if the interface is up and has a carrier, so that the kernel sends frames.
    pub is_running: bool,
}

/// One opened endpoint. Only the control thread calls its methods.
///
/// # Life cycle
/// `open` and `close` begin and end a session of the link. Within a session, channels may be
/// replaced: [`prepare`](Self::prepare) creates new channels while the present ones stay in use.
/// The engine then moves the traffic, and calls [`commit`](Self::commit) or [`abort`](Self::abort)
/// to end the change. At most one change is open at a time.
///
/// A call that fails leaves the state unchanged. After a failed `open` no channel is open, and the
/// caller closes the function. After a failed `prepare` or `steer` the channels in use carry frames
/// as before. A plan with more channels than the function has is rejected.
///
/// The caller drops channels before the call that ends them: the old channels before `commit`, the
/// new channels before `abort`, all channels before `close` and before the function is dropped.
/// `tests/conformance` checks these rules on every backend.
pub trait Function: Send {
    /// Endpoint address of the function, for messages.
    fn name(&self) -> &str;

    /// Capabilities of the function before a peer is known.
    fn caps(&self) -> Caps;

    /// Sets the capabilities of the other function of the link. The engine calls this method before
    /// the first [`poll_link`](Self::poll_link), and again whenever the capabilities change.
    fn set_partner(&mut self, _partner: &Caps) {}

    /// Advances the link state machine. Returns the state of the link. The engine calls this method
    /// after every event and, if the link is down, at least every 100 ms.
    fn poll_link(&mut self, _now: Duration) -> LinkStatus {
        LinkStatus::Up { session: 0 }
    }

    /// Descriptors that request a [`poll_link`](Self::poll_link) when they become ready.
    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Conditions that prevent the device from working as configured, each with the remedy.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Opens `plan.channels` channels, in order.
    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError>;

    /// Ends the session and an open change. The caller has dropped every channel. The reason `why`
    /// is sent to the peer, if there is one.
    fn close(&mut self, _why: &str) {}

    /// Creates the channels of `plan` while the present channels stay in use. Limits for both the
    /// present and the new channels, such as a smaller MTU, apply immediately.
    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenChannelsError> {
        self.open(plan)
    }

    /// Makes the channels of the last [`prepare`](Self::prepare) the current ones; the caller has
    /// dropped the older channels. An error reports a failed cleanup, and the commit is still
    /// effective. Without an open change, the call has no effect.
    fn commit(&mut self) -> Result<(), OpenChannelsError> {
        Ok(())
    }

    /// Restores the state before the last [`prepare`](Self::prepare), including flows that
    /// [`steer`](Self::steer) moved; the caller has dropped the new channels. Without an open
    /// change, the call has no effect.
    fn abort(&mut self) {}

    /// Far end of this function; `None` if the far end takes no part in channel changes.
    fn peer(&mut self) -> Option<&mut dyn Peer> {
        None
    }

    /// Replaces the statistics of the channels. Several functions may share the statistics of a
    /// channel if they count at different times.
    fn share_stats(&mut self, _stats: &[Arc<QueuePairStats>]) {}

    /// Statistics of every possible channel; they outlive the channels.
    fn stats(&self) -> &[Arc<QueuePairStats>];

    /// Reason why the TX queues are full, if they are.
    fn full_cause(&self) -> FullCause {
        FullCause::Device
    }

    /// Description of [`full_cause`](Self::full_cause), with the remedy.
    fn full_means(&self) -> &'static str {
        "the device does not accept frames"
    }

    /// Selection of RX queues; `None` if the function has a single queue or does not distribute
    /// frames.
    fn steering(&self) -> Option<&dyn Steering> {
        None
    }

    /// Mutable access to [`steering`](Self::steering).
    fn steering_mut(&mut self) -> Option<&mut dyn Steering> {
        None
    }

    /// Kernel interface; `None` if there is none.
    fn kernel_interface(&self) -> Option<&dyn KernelInterface> {
        None
    }

    /// Mutable access to [`kernel_interface`](Self::kernel_interface).
    fn kernel_interface_mut(&mut self) -> Option<&mut dyn KernelInterface> {
        None
    }

    /// Hardware devices; `None` if no device is known.
    fn placement(&self) -> Option<&dyn Placement> {
        None
    }

    /// Bridge; `None` if the function supports a single protocol.
    fn bridge(&self) -> Option<&dyn Bridge> {
        None
    }

    /// Private flags; `None` if there are none.
    fn private_flags(&self) -> Option<&dyn PrivateFlags> {
        None
    }

    /// Mutable access to [`private_flags`](Self::private_flags).
    fn private_flags_mut(&mut self) -> Option<&mut dyn PrivateFlags> {
        None
    }

    /// Buffers of RX queues; `None` if the function provides no buffers to a device.
    fn rx_buffers(&self) -> Option<&dyn RxBuffers> {
        None
    }

    /// Mutable access to [`rx_buffers`](Self::rx_buffers).
    fn rx_buffers_mut(&mut self) -> Option<&mut dyn RxBuffers> {
        None
    }

    /// Members of the group; `None` for a function that is not a group.
    fn group(&self) -> Option<&dyn Members> {
        None
    }

    /// Mutable access to [`group`](Self::group).
    fn group_mut(&mut self) -> Option<&mut dyn Members> {
        None
    }
}
