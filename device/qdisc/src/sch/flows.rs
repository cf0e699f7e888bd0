//! Flows of fq_codel and their round-robin order.
//!
//! Every channel has separate flows and lists, so that flows of a closed channel are never searched
//! and a bucket never holds packets of two channels. Among the open channels, the flow with the
//! earliest ticket is served first. The order is therefore that of a single list of all flows.

use std::collections::VecDeque;

use super::channels::bits;
use super::codel::Codel;
use super::store::Queue;
use crate::qdisc::bit;

/// One bucket of the flow hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct Flow {
    pub(crate) queue: Queue,
    pub(crate) bytes: u64,
    pub(crate) deficit: i64,
    pub(crate) codel: Codel,
    /// Time at which the last packet left.
    pub(crate) empty_since: u64,
    /// Position in the order of all lists; a flow gets a higher ticket each time it is appended.
    ticket: u64,
    listed: bool,
}

/// The flows of one channel.
#[derive(Default)]
pub(crate) struct Lane {
    /// Flows of the channel; empty until the channel has had a packet.
    pub(crate) flows: Vec<Flow>,
    /// Number of packets in the flows.
    pub(crate) len: u32,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
}

/// Id of a flow: its channel and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) channel: u16,
    pub(crate) flow: u32,
}

/// Flows of all channels. Flows with packets are in lists; new flows are served before old flows.
#[derive(Default)]
pub(crate) struct Flows {
    lanes: Vec<Lane>,
    next_ticket: u64,
    /// Mask of the channels with new flows.
    new: u64,
    /// Mask of the channels with old flows.
    old: u64,
    pub(crate) new_len: u32,
    pub(crate) old_len: u32,
}

impl Flows {
    pub(crate) fn lane(&self, channel: u16) -> Option<&Lane> {
        self.lanes.get(usize::from(channel))
    }

    /// Returns the flows of the channel; allocates `n` flows on first use.
    pub(crate) fn lane_mut(&mut self, channel: u16, n: u32) -> &mut Lane {
        let at = usize::from(channel);
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, Lane::default);
        }
        let lane = &mut self.lanes[at];
        if lane.flows.is_empty() {
            lane.flows.resize(n as usize, Flow::default());
        }
        lane
    }

    /// Returns a flow; [`lane_mut`](Self::lane_mut) must have allocated its channel.
    pub(crate) fn flow_mut(&mut self, at: At) -> &mut Flow {
        &mut self.lanes[usize::from(at.channel)].flows[at.flow as usize]
    }

    /// Appends a flow to the new list and gives it a quantum. Returns false if the flow is already
    /// in a list.
    pub(crate) fn start(&mut self, at: At, quantum: i64) -> bool {
        let flow = self.flow_mut(at);
        if flow.listed {
            return false;
        }
        flow.deficit = quantum;
        self.append(at, true);
        true
    }

    fn append(&mut self, at: At, is_new: bool) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let lane = &mut self.lanes[usize::from(at.channel)];
        let flow = &mut lane.flows[at.flow as usize];
        (flow.ticket, flow.listed) = (ticket, true);
        if is_new {
            lane.new.push_back(at.flow);
            self.new |= bit(at.channel);
            self.new_len += 1;
        } else {
            lane.old.push_back(at.flow);
            self.old |= bit(at.channel);
            self.old_len += 1;
        }
    }

    /// Returns the next flow among the channels in the mask `open`, and true if the flow is new;
    /// `None` if no flow of these channels is listed.
    pub(crate) fn first(&self, open: u64) -> Option<(At, bool)> {
        let is_new = self.new & open != 0;
        let mask = if is_new { self.new } else { self.old } & open;
        let head = |channel: u16| {
            let lane = &self.lanes[usize::from(channel)];
            let flow = *if is_new { &lane.new } else { &lane.old }.front()?;
            Some((lane.flows[flow as usize].ticket, At { channel, flow }))
        };
        let (_, at) = bits(mask).filter_map(head).min_by_key(|(ticket, _)| *ticket)?;
        Some((at, is_new))
    }

    /// Removes the flow that [`first`](Self::first) returned from its list.
    fn remove_first(&mut self, at: At, is_new: bool) {
        let lane = &mut self.lanes[usize::from(at.channel)];
        let (list, mask, len) = if is_new {
            (&mut lane.new, &mut self.new, &mut self.new_len)
        } else {
            (&mut lane.old, &mut self.old, &mut self.old_len)
        };
        list.pop_front();
        *len -= 1;
        if list.is_empty() {
            *mask &= !bit(at.channel);
        }
    }

    /// Moves the flow to the end of the old list, after its quantum is used.
    pub(crate) fn rotate(&mut self, at: At, is_new: bool) {
        self.remove_first(at, is_new);
        self.append(at, false);
    }

    /// Removes an empty flow from its list. A new flow moves to the old list instead if any channel
    /// has old flows. Otherwise a flow with one packet at a time would always be new and starve the
    /// old flows.
    pub(crate) fn retire(&mut self, at: At, is_new: bool) {
        if is_new && self.old != 0 {
            return self.rotate(at, is_new);
        }
        self.remove_first(at, is_new);
        self.flow_mut(at).listed = false;
    }

    /// Returns the listed flow with the most bytes; `None` if no flow is listed.
    pub(crate) fn fattest(&self) -> Option<At> {
        let of_lane = |(channel, lane): (usize, &Lane)| {
            let listed = lane.new.iter().chain(&lane.old);
            let bytes = |flow: &u32| lane.flows[*flow as usize].bytes;
            let flow = *listed.max_by_key(|flow| bytes(flow))?;
            Some((bytes(&flow), At { channel: channel as u16, flow }))
        };
        let lanes = self.lanes.iter().enumerate();
        lanes.filter_map(of_lane).max_by_key(|(bytes, _)| *bytes).map(|(_, at)| at)
    }

    /// Returns all flows that are in a list, in any order.
    pub(crate) fn listed(&self) -> Vec<At> {
        let of_lane = |(channel, lane): (usize, &Lane)| {
            let at = |flow: &u32| At { channel: channel as u16, flow: *flow };
            lane.new.iter().chain(&lane.old).map(at).collect::<Vec<_>>()
        };
        self.lanes.iter().enumerate().flat_map(of_lane).collect()
    }
}
