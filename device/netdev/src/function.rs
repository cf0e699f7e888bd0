//! A function: the control-plane half of the contract.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::facets::{
    Bridge, KernelInterface, Members, Placement, PrivateFlags, RxBuffers, Steering,
};
use crate::{Caps, Channel, ChannelStats, Peer, Plan};

/// Whether a function can carry traffic now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStatus {
    /// Not now; the text says why and what would help.
    Down(String),
    /// Yes. `session` changes whenever the peer was lost in between: channels of an older session
    /// must be closed and opened anew.
    Up {
        /// Number of this life of the link.
        session: u64,
    },
}

/// Why channels could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {what}")]
pub struct OpenError {
    /// Which function.
    pub function: String,
    /// What failed and the knob to turn.
    pub what: String,
}

impl Plan {
    /// Refuses a plan with more channels than a function has.
    pub fn check_channels(&self, function: &str, most: u16) -> Result<(), OpenError> {
        if self.channels <= most {
            return Ok(());
        }
        let what = format!("{} channels wanted, at most {most} are possible", self.channels);
        Err(OpenError { function: function.to_owned(), what })
    }
}

/// How flows are spread over RX queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indirection {
    /// Queue of each hash bucket.
    pub table: Vec<u16>,
    /// A user set it: it does not follow the number of channels.
    pub user_set: bool,
    /// What makes a bucket of a frame, as ethtool(8) calls it.
    pub hash: &'static str,
}

/// The bucket of a frame, by its first bytes; `None` for one that belongs to none.
pub type BucketOf = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

/// Which buckets of [`Indirection`] frames belong to.
#[derive(Clone)]
pub struct Buckets {
    /// That in which answers to a frame arrive.
    pub of_answers: BucketOf,
    /// That in which a frame arrives, where this is only what a driver says: the queue on which it
    /// does arrive tells whether it is so. `None` where we choose the queue ourselves.
    pub of_arrivals: Option<BucketOf>,
}

/// A device of the machine behind a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its endpoint address.
    pub name: String,
    /// Its NUMA node, where that is known.
    pub node: Option<u32>,
    /// The kernel's interface that stands for it, if there is one.
    pub interface: Option<String>,
    /// The network namespace that the interface is in, if that is not our own.
    pub netns: Option<PathBuf>,
    /// Its interrupts, where we take them ourselves.
    pub vectors: Option<Vectors>,
}

/// Interrupts of a PCI function that is driven from user space: the kernel names them after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vectors {
    /// Its address on the bus.
    pub pci: String,
    /// The vector of each queue in order. Queues may share one.
    pub of_queue: Vec<u16>,
}

/// What keeps a TX queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullCause {
    /// The device takes no frames.
    #[default]
    Device,
    /// The other end of a bridge takes no frames.
    Peer,
    /// The kernel has no memory for a frame.
    Memory,
}

/// The kernel's interface that a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Its name now.
    pub name: &'a str,
    /// Its index, where the function shows it as its own.
    pub index: Option<u32>,
    /// Inode of its network namespace, if that is not the process's own.
    pub netns: Option<u64>,
    /// False while the kernel sends nothing: it is set down, or has no carrier.
    pub is_running: bool,
}

/// One opened way to reach a peer. Only the control thread calls it.
///
/// # Life
/// `open` and `close` begin and end a life of the link. In between, the channels may be replaced:
/// [`prepare`](Self::prepare) makes the next ones beside those in use; the engine moves the
/// traffic over; then either [`commit`](Self::commit) or [`abort`](Self::abort) ends the change.
/// At most one change is open at a time.
///
/// A call that fails leaves what was. After a failed `open` nothing is open, and the caller closes
/// the function; after a failed `prepare` or `steer` the channels in use carry frames as before.
/// A plan with more channels than there are is refused. The caller drops channels before the call
/// that ends them: the old ones before `commit`, the new ones before `abort`, all before `close`
/// and before the function itself. `tests/conformance` checks this on every backend.
pub trait Function: Send {
    /// Its endpoint address, for messages.
    fn name(&self) -> &str;

    /// What it can do before anything is known of a peer.
    fn caps(&self) -> Caps;

    /// Tells what the other function of the link can do and wants, at first before the first
    /// [`poll_link`](Self::poll_link), and again whenever it changes.
    fn set_partner(&mut self, _partner: &Caps) {}

    /// Makes progress with the link and says how it stands. Called after every event and, while the
    /// link is down, at least every 100 ms.
    fn poll_link(&mut self, _now: Duration) -> LinkStatus {
        LinkStatus::Up { session: 0 }
    }

    /// Descriptors whose readiness asks for a [`poll_link`](Self::poll_link).
    fn events(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// Facts about the device that keep it from working as configured, each with its remedy.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Opens the channels of the plan: `plan.channels` of them, in order.
    fn open(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError>;

    /// The link is over and the caller has dropped every channel. `why` goes to the peer, if there
    /// is one. Ends an open change too.
    fn close(&mut self, _why: &str) {}

    /// Makes the channels of `plan` beside those in use. Nothing that is in use changes, but
    /// limits that the old and the new channels must both keep (a smaller MTU) apply at once.
    fn prepare(&mut self, plan: &Plan) -> Result<Vec<Channel>, OpenError> {
        self.open(plan)
    }

    /// The channels of the last [`prepare`](Self::prepare) are the ones now; the caller has dropped
    /// the older ones. A failed cleanup is reported, and does no harm. Without an open change
    /// nothing happens.
    fn commit(&mut self) -> Result<(), OpenError> {
        Ok(())
    }

    /// The caller has dropped the channels of the last [`prepare`](Self::prepare); everything is
    /// as before it, also where [`steer`](Self::steer) has moved flows. Without an open change
    /// nothing happens.
    fn abort(&mut self) {}

    /// The end behind this function, if it has a say in changes.
    fn peer(&mut self) -> Option<&mut dyn Peer> {
        None
    }

    /// From now on its channels count here. Others may have these too, which count for the same
    /// channel at other times.
    fn share_stats(&mut self, _stats: &[Arc<ChannelStats>]) {}

    /// Statistics of every channel that there can be; they outlive the channels.
    fn stats(&self) -> &[Arc<ChannelStats>];

    /// What keeps its TX queues full when they are.
    fn full_cause(&self) -> FullCause {
        FullCause::Device
    }

    /// The same in words, with what helps.
    fn full_means(&self) -> &'static str {
        "the device takes no frames"
    }

    /// Choice of RX queues; `None` where frames are spread elsewhere, or there is one queue.
    fn steering(&self) -> Option<&dyn Steering> {
        None
    }

    /// The same, to change it.
    fn steering_mut(&mut self) -> Option<&mut dyn Steering> {
        None
    }

    /// The kernel's interface; `None` where there is none.
    fn kernel_interface(&self) -> Option<&dyn KernelInterface> {
        None
    }

    /// The same, to change it.
    fn kernel_interface_mut(&mut self) -> Option<&mut dyn KernelInterface> {
        None
    }

    /// Devices of the machine; `None` where nothing is known of any.
    fn placement(&self) -> Option<&dyn Placement> {
        None
    }

    /// Far end of a bridge; `None` where there is no choice of protocols.
    fn bridge(&self) -> Option<&dyn Bridge> {
        None
    }

    /// Private flags; `None` where there are none.
    fn private_flags(&self) -> Option<&dyn PrivateFlags> {
        None
    }

    /// The same, to change them.
    fn private_flags_mut(&mut self) -> Option<&mut dyn PrivateFlags> {
        None
    }

    /// Buffers of RX queues; `None` where the function gives none to a device.
    fn rx_buffers(&self) -> Option<&dyn RxBuffers> {
        None
    }

    /// The same, to change them.
    fn rx_buffers_mut(&mut self) -> Option<&mut dyn RxBuffers> {
        None
    }

    /// Members; `None` for what is no group.
    fn group(&self) -> Option<&dyn Members> {
        None
    }

    /// The same, to change them.
    fn group_mut(&mut self) -> Option<&mut dyn Members> {
        None
    }
}
