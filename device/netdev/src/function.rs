//! A function: the control-plane half of the contract.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{Caps, Channel, ChannelStats, FlowRule, MemberView, Peer, Plan, RxMemory, Seat};

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

    /// What it is told by for ever, whatever it is called and whenever it is found: an address on a
    /// bus, an Ethernet address from the factory. `None`: its endpoint address has to do.
    fn identity(&self) -> Option<String> {
        None
    }

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

    /// The kernel's interface behind the function, which others may rename and move at any time;
    /// `None` where there is none.
    fn interface(&self) -> Option<Interface<'_>> {
        None
    }

    /// Facts about the device that keep it from working as configured, each with its remedy.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// MTU that another program has set on the device, once.
    fn changed_mtu(&mut self) -> Option<u32> {
        None
    }

    /// Sets the device's MTU to that of the plan in force, whatever others have set.
    fn restore_mtu(&mut self) -> Result<(), String> {
        Ok(())
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

    /// True when [`steer`](Self::steer) moves only the flows that must move: with more channels
    /// to new ones, with fewer away from retiring ones. Otherwise any flow may move.
    fn steers(&self) -> bool {
        true
    }

    /// Most frames that can wait in one of its RX queues: whoever has taken so many has taken all
    /// that were older, though the queue was never found empty.
    fn waiting_most(&mut self) -> u32 {
        1 << 16
    }

    /// Lets what arrives from now on come to the first `channels` queues. When it returns, no
    /// frame can arrive any more that chose its queue before.
    fn steer(&mut self, _channels: u16) -> Result<(), OpenError> {
        Ok(())
    }

    /// How flows are spread over the RX queues, where that can be seen and set.
    fn indirection(&self) -> Option<Indirection> {
        None
    }

    /// Reads the table anew where others than we can set it; true if somebody has, whose it then
    /// is.
    fn refresh_indirection(&mut self) -> bool {
        false
    }

    /// Spreads flows by this table, or by the default one. As after [`steer`](Self::steer), no
    /// frame can arrive any more that chose its queue before. The caller keeps flows in order.
    fn set_indirection(&mut self, _table: &[u16], _user_set: bool) -> Result<(), OpenError> {
        Err(OpenError { function: self.name().to_owned(), what: "has no such table".to_owned() })
    }

    /// Buckets of [`indirection`](Self::indirection) can follow the other direction of their flows,
    /// at least in some sessions.
    fn can_follow(&self) -> bool {
        false
    }

    /// Which buckets of [`indirection`](Self::indirection) frames belong to in this session; or
    /// why that is not known. For one that [`can_follow`](Self::can_follow), before its lanes run:
    /// flows may move.
    fn buckets(&mut self) -> Result<Buckets, String> {
        Err("has no table".to_owned())
    }

    /// Member `at` of a group all of whose channels are where its map has them; `None` while they
    /// are not, and for what is no group. It is there for its table, which is its own: queue `q` of
    /// it is channel `q * members + at`.
    fn member(&mut self, _at: usize) -> Option<&mut dyn Function> {
        None
    }

    /// Rules that send flows to RX queues whatever the table says, by location; `None` where there
    /// can be none.
    fn rules(&self) -> Option<&[FlowRule]> {
        None
    }

    /// Puts these in the place of all. As after [`steer`](Self::steer), no frame can arrive any
    /// more that chose its queue before. The caller keeps flows in order.
    fn set_rules(&mut self, _rules: &[FlowRule]) -> Result<(), OpenError> {
        Err(OpenError { function: self.name().to_owned(), what: "takes no rules".to_owned() })
    }

    /// Queues that this table can name while there are `channels`.
    fn table_queues(&self, channels: u16) -> Vec<u16> {
        (0..channels).collect()
    }

    /// Switches of this kind of function alone, with how they stand.
    fn flags(&self) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    /// Sets one of [`flags`](Self::flags).
    fn set_flag(&mut self, flag: &str, _on: bool) -> Result<(), OpenError> {
        Err(OpenError { function: self.name().to_owned(), what: format!("has no flag '{flag}'") })
    }

    /// How the buffers of its RX queues lie, where it gives them to a device; one of each queue
    /// that has had any.
    fn rx_memory(&self) -> Vec<RxMemory> {
        Vec::new()
    }

    /// Tells that an XDP program looks at what arrives here, or does not any more.
    fn set_xdp(&mut self, _attached: bool) {}

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

    /// Makes it a member of a group, if it has a [`peer`](Self::peer): its peer must be the same
    /// member of a group of as many.
    fn take_seat(&mut self, _seat: Seat) {}

    /// From now on its channels count here. Others may have these too, which count for the same
    /// channel at other times.
    fn share_stats(&mut self, _stats: &[Arc<ChannelStats>]) {}

    /// True when what is sent through this function ends in a network stack that is glad of few
    /// large frames instead of many small ones.
    fn feeds_a_stack(&self) -> bool {
        false
    }

    /// Tells whether frames sent through this function go anywhere: a function that is a network
    /// interface shows it as its carrier.
    fn set_carrier(&mut self, _up: bool) {}

    /// Statistics of every channel that there can be; they outlive the channels.
    fn stats(&self) -> &[Arc<ChannelStats>];

    /// Frames that the system dropped before our RX queues saw them, if it counts them; for a TAP,
    /// what its ring had no room for.
    fn dropped_outside(&mut self) -> Option<u64> {
        None
    }

    /// What keeps its TX queues full when they are.
    fn full_cause(&self) -> FullCause {
        FullCause::Device
    }

    /// The same in words, with what helps.
    fn full_means(&self) -> &'static str {
        "the device takes no frames"
    }

    /// The devices of the machine behind it: channel i is served by device i mod their number. None
    /// where nothing is known of any. It does not change while the function is open.
    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    /// True when workers should be placed from the high end of the CPU list, because the other end
    /// of the link, on the same machine, begins at the low one.
    fn takes_high_cpus(&self) -> bool {
        false
    }

    /// The functions that it is made of, if it is made of several.
    fn members(&self) -> Vec<MemberView> {
        Vec::new()
    }

    /// Fewest channels with which each of its parts has one.
    fn least_channels(&self) -> u16 {
        1
    }

    /// Channels whose statistics are in use, where they are more than those of the plan.
    fn counted(&self) -> u16 {
        0
    }

    /// A lane has failed. True when that is because a part is lost without which this function goes
    /// on: [`refit`](Self::refit) tells the channels, after the next
    /// [`poll_link`](Self::poll_link).
    fn survives(&mut self, _now: Duration) -> bool {
        false
    }

    /// Channels in whose queues other queues wait to take over: they do when the queues are
    /// [parked](crate::Queue::park) next. Whoever asks parks them, puts them back, with all that
    /// waits in their lanes, and says [`refitted`](Self::refitted).
    fn refit(&mut self) -> Vec<u16> {
        Vec::new()
    }

    /// The queues have been replaced.
    fn refitted(&mut self) {}
}
