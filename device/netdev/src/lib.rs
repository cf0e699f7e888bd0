//! The contract between the engine and the backends.
//!
//! # Roles
//! - A [`Function`] is one opened endpoint and the control plane: the control thread polls its link
//!   state, and opens and closes its channels.
//! - A [`Channel`] is one RX queue and one TX queue. Exactly one worker owns each queue at a time.
//!   Queues transfer bursts without allocation and without locks.
//! - The engine joins the RX queue of one function with the TX queue of another: a *lane*.
//!
//! # The memory rule
//! An **owning queue** has memory that holds its frames. A **system-call queue** has none: a system
//! call copies the bytes. The types [`Rx`] and [`Tx`] distinguish them, so that a lane has exactly
//! four shapes:
//!
//! | RX | TX | transfer of a frame | payload copies |
//! |---|---|---|---|
//! | system call | owning | `reserve` space, `recv` into it, `commit` | 0 |
//! | owning | system call | `peek`, `submit` reads in place, `release` | 0 |
//! | owning | owning | `peek`, `submit` copies, `release` | 1 |
//! | system call | system call | both use a page of the page pool | 0 |
//!
//! # Offload emulation
//! If the sink does not support an offload that the source uses, the engine emulates the offload:
//! [`Emulation`].
//!
//! # Outcomes, faults and bugs
//! *Outcome*: full or empty, reported as a short count, `None` or [`Recv::Empty`]; never an error.
//! *[`Fault`]*: the peer violated the protocol, or the device is lost; the function is closed.
//! *Bug*: a failed assertion, never caused by bytes that a peer wrote.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod absent;
mod address;
mod burst;
mod caps;
mod detached;
pub mod dhcp;
mod facets;
mod function;
pub mod fuzzing;
mod io;
pub mod limits;
pub mod loopback;
mod member;
pub mod null;
mod peer;
pub mod probe;
mod queue;
mod rule;
mod rx_memory;
mod slot_rings;
pub mod stats;
pub mod wrap;

pub use address::InterfaceAddress;
pub use burst::{Burst, Frame};
pub use caps::{Caps, Emulation, Incompatible, Offloads, Plan};
pub use detached::{DetachedFragment, DetachedFrame};
pub use facets::{Bridge, KernelInterface, Members, Placement, PrivateFlags, RxBuffers, Steering};
pub use function::{
    BucketOf, Buckets, FullCause, Function, HardwareDevice, Indirection, Interface, LinkStatus,
    OpenChannelsError, Vectors,
};
pub use io::Io;
pub use member::MemberView;
pub use mqnet_rings::hand_over::{HandOver, RecallCell};
pub use peer::{
    ChangeMessage, FarPartner, GroupMembership, GroupMessage, NextPlan, Peer, RequestedRings,
    RingSizes, Step,
};
pub use queue::{
    Armed, Channel, Fault, Fill, FrameMeta, OwningRx, OwningTx, Queue, Recv, Rx, SyscallRx,
    SyscallTx, Trigger, Tx, WakeSource,
};
pub use rule::{Field, FlowKind, MaskedField, RULES_MAX, SteeringRule};
pub use rx_memory::RxMemory;
pub use slot_rings::{PairView, SlotRings};
pub use stats::{DropReason, LaneCounters, LaneSums, QueuePairStats, RxStats, TxStats, XdpStats};
