//! What the user attached to a netdev: the control thread's side.

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

/// How lanes run what is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Not at all: noqueue without egress filters.
    None,
    /// Each lane has a scheduler of its own (mq without filters that move packets to other
    /// channels).
    PerChannel,
    /// All lanes of the direction share schedulers: one for each channel (mq or mqprio with
    /// packets that may change their channel).
    SharedLeaves,
    /// All lanes share one scheduler (any other root on more than one channel; with one channel
    /// the shape is `PerChannel`).
    SharedRoot,
}

/// What is attached to a netdev.
///
/// Channels that are added under mq get a leaf of the configured default kind, or, when the user
/// gave every leaf in use the same discipline with the same options, that one. (Linux gives them
/// pfifo_fast, whatever was configured.)
#[derive(Debug)]
pub struct Tree {
    state: State,
    /// What frames begin with.
    layer: Layer,
    /// Where the maps handed out count packets for channels that there are not.
    misdirected: Vec<Arc<Counter>>,
}

/// Major number of the handle of clsact.
const CLSACT: u16 = 0xffff;

/// What a command may change. A command works on a copy, which a refused one leaves behind.
#[derive(Clone, Debug)]
struct State {
    root: Node,
    /// Filters of clsact, if it is there.
    egress: Option<Chain>,
    /// What a deleted root's successor is.
    default_root: Params,
    /// What a deleted leaf's successor is.
    default_leaf: Params,
    /// What leaves of channels are that are added later.
    later_leaf: Params,
    /// MTU with its link-layer header, as last told.
    frame: u32,
    /// Most channels, as far as known.
    most: u16,
    /// Disciplines attached so far.
    born: u64,
    /// The last handle that was given automatically.
    auto_handle: u16,
    /// The last number that was given to an action.
    last_action: u32,
}

/// How many channels there are.
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
    /// Nothing attached: noqueue. `default` are the words of the discipline that mq's leaves and
    /// a deleted root's successor get, such as `fq_codel limit 1000`; empty: pfifo_fast, and
    /// noqueue for the root. With words the root is mq with such leaves (which on a single channel
    /// is that discipline), `mq` alone gives it leaves of pfifo_fast.
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

    /// Carries out a command, wholly or not at all. `Ok(false)`: nothing is different. `channels`
    /// are those in use, `channels_max` the most there can be.
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

    /// How lanes run it with this many channels.
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

    /// True when the root is noqueue; there may be filters nevertheless.
    pub fn is_noqueue(&self) -> bool {
        self.state.root.params == Params::Noqueue
    }

    /// True when a packet may leave through another channel than it came by (mqprio, `skbedit
    /// queue_mapping`).
    pub fn may_change_channel(&self) -> bool {
        let State { root, egress, .. } = &self.state;
        egress.as_ref().is_some_and(Chain::moves)
            || matches!(root.params, Params::Mqprio(_))
            || !root.is_multi_queue() && root.any(&|node| node.chain.moves())
    }
}

impl State {
    /// True when packets need not be looked at.
    fn is_idle(&self) -> bool {
        self.root.params == Params::Noqueue && self.egress.as_ref().is_none_or(Chain::is_empty)
    }

    fn env(&self) -> Env {
        Env { frame: self.frame, channels: self.most }
    }
}

#[cfg(test)]
mod tests;
