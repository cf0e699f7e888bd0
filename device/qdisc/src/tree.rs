//! Qdiscs, classes and filters that the user attached to a netdev: the state of the control thread.

mod build;
mod channel_map;
mod class;
mod filter;
mod ledger;
mod node;
mod qdisc;
mod show;

use std::sync::Arc;

use mqnet_counters::Counter;
use mqnet_wire::Layer;

use crate::command::Errno;
use crate::kind::Env;
use crate::parse;
use crate::{Fifo, ObjectType, Params, TcCommand, TcError};

pub use channel_map::ChannelMap;
use filter::Chain;
use node::Node;

/// Assignment of schedulers to lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// No schedulers: noqueue without egress filters.
    None,
    /// Each lane has a separate scheduler: one channel, or mq (or noqueue) without egress filters
    /// that move packets to other channels.
    PerChannel,
    /// All lanes of the direction share the schedulers, one for each channel: mqprio, or mq (or
    /// noqueue) with egress filters that move packets.
    SharedLeaves,
    /// All lanes share one scheduler: any other root on more than one channel.
    SharedRoot,
}

/// Qdiscs, classes and filters attached to a netdev.
///
/// Channels that are added under mq get a leaf of the configured default kind. If the user gave
/// every leaf in use the same qdisc with the same options, new channels get that qdisc. (Linux
/// always gives them pfifo_fast.)
#[derive(Debug)]
pub struct Tree {
    state: State,
    /// Link layer of the frames.
    layer: Layer,
    /// Counters of packets that a filter sent to a missing channel; one counter for each channel
    /// map.
    misdirected: Vec<Arc<Counter>>,
}

/// Major number of the handle of clsact.
const CLSACT: u16 = 0xffff;

/// State that a command may change. A command works on a copy, which is discarded if the command
/// fails.
#[derive(Clone, Debug)]
struct State {
    root: Node,
    /// Filters of clsact; `None` if clsact is not attached.
    egress: Option<Chain>,
    /// Parameters of the qdisc that replaces a deleted root.
    default_root: Params,
    /// Parameters of the qdisc that replaces a deleted leaf.
    default_leaf: Params,
    /// Parameters of the leaves of channels that are added later.
    later_leaf: Params,
    /// MTU with its link-layer header, from the last build.
    frame: u32,
    /// Largest number of channels known so far.
    most: u16,
    /// Number of qdiscs attached so far.
    born: u64,
    /// Last handle that was assigned automatically.
    auto_handle: u16,
    /// Last number that was assigned to an action.
    last_action: u32,
}

/// Number of channels in use, and the largest number possible.
#[derive(Clone, Copy, Debug)]
struct Room {
    used: u16,
    most: u16,
}

fn refused(errno: Errno, message: impl Into<String>) -> TcError {
    TcError { errno, message: message.into(), usage: false }
}

fn not_supported() -> TcError {
    refused(Errno::NotSupported, "Operation not supported")
}

impl Tree {
    /// Creates the tree of a netdev on which nothing is attached. `default` are the words of the
    /// default qdisc, such as `fq_codel limit 1000`. If empty, the root is noqueue and leaves are
    /// pfifo_fast; with `mq`, the root is mq with leaves of pfifo_fast. With any other words, the
    /// root is mq with leaves of that qdisc, or on a single channel the qdisc itself.
    pub fn new(default: &str, layer: Layer) -> Result<Self, TcError> {
        let words: Vec<String> = default.split_whitespace().map(str::to_owned).collect();
        let frame = match layer {
            Layer::Ethernet => 1514,
            Layer::Ip => 1500,
        };
        let (mut default_root, mut default_leaf) =
            (Params::Noqueue, Params::PfifoFast(Fifo { limit: 1000 }));
        if let Some((kind, options)) = words.split_first() {
            match Params::parse(kind, options, None, Env { frame, channels: u16::MAX })? {
                Params::Noqueue => {}
                Params::Mq => default_root = Params::Mq,
                Params::Mqprio(_) | Params::Clsact => {
                    let text = format!("{kind} cannot be a default: it is not for one channel");
                    return Err(parse::usage(text));
                }
                params => (default_root, default_leaf) = (Params::Mq, params),
            }
        }
        let state = State {
            root: Node::of(default_root.clone()),
            egress: None,
            later_leaf: default_leaf.clone(),
            default_root,
            default_leaf,
            frame,
            most: 1,
            born: 0,
            auto_handle: 0x8000,
            last_action: 0,
        };
        Ok(Self { state, layer, misdirected: Vec::new() })
    }

    /// Executes a command, completely or not at all. Returns false if nothing changed. `channels`
    /// is the number of channels in use, `max` the largest number possible.
    pub fn apply(&mut self, c: &TcCommand, channels: u16, max: u16) -> Result<bool, TcError> {
        let room = Room { used: channels.max(1), most: max.max(channels).max(1) };
        let mut state = self.state.clone();
        state.most = room.most;
        let changed = match c.object {
            ObjectType::Qdisc => state.qdisc(c, room)?,
            ObjectType::Class => state.class(c)?,
            ObjectType::Filter => state.filter(c)?,
        };
        self.state = state;
        Ok(changed)
    }

    /// Assignment of schedulers to lanes for `channels` channels.
    pub fn shape(&self, channels: u16) -> Shape {
        let moved = self.state.egress.as_ref().is_some_and(Chain::moves);
        match &self.state.root.params {
            _ if self.state.is_idle() => Shape::None,
            _ if channels <= 1 => Shape::PerChannel,
            Params::Mqprio(_) => Shape::SharedLeaves,
            Params::Mq | Params::Noqueue if moved => Shape::SharedLeaves,
            Params::Mq | Params::Noqueue => Shape::PerChannel,
            _ => Shape::SharedRoot,
        }
    }

    /// True if the root is noqueue; egress filters may exist nevertheless.
    pub fn is_noqueue(&self) -> bool {
        self.state.root.params == Params::Noqueue
    }

    /// True if a packet may leave through another channel than it was received on. Causes are
    /// mqprio, and `skbedit queue_mapping` of an egress filter, or of any filter in a tree without
    /// mq.
    pub fn may_change_channel(&self) -> bool {
        let State { root, egress, .. } = &self.state;
        egress.as_ref().is_some_and(Chain::moves)
            || matches!(root.params, Params::Mqprio(_))
            || !root.is_multi_queue() && root.any(&|node| node.chain.moves())
    }
}

impl State {
    /// True if packets need no scheduler: the root is noqueue and no egress filter exists.
    fn is_idle(&self) -> bool {
        self.root.params == Params::Noqueue && self.egress.as_ref().is_none_or(Chain::is_empty)
    }

    fn env(&self) -> Env {
        Env { frame: self.frame, channels: self.most }
    }
}

#[cfg(test)]
mod tests;
