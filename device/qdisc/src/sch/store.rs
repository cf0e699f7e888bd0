//! Packets of many queues in one array.
//!
//! A qdisc may have thousands of queues but a limited number of packets. Queues are linked lists in
//! one array, which grows to the largest number of packets queued so far. A queue costs twelve
//! bytes, and an empty queue uses no slot.

use crate::QueuedPacket;

const NONE: u32 = u32::MAX;

/// Slots for the packets of all queues.
#[derive(Default)]
pub(crate) struct Store {
    slots: Vec<Slot>,
    /// Indexes of the slots without a packet.
    free: Vec<u32>,
    next_ticket: u64,
}

struct Slot {
    packet: Option<QueuedPacket>,
    /// Sequence number of the packet's entry into the store.
    ticket: u64,
    next: u32,
}

/// A linked list of packets.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }
}

impl Queue {
    /// Number of packets in the queue.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// True if the queue has no packet.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Store {
    /// Appends a packet to a queue.
    pub(crate) fn push(&mut self, queue: &mut Queue, packet: QueuedPacket) {
        let slot = Slot { packet: Some(packet), ticket: self.next_ticket, next: NONE };
        self.next_ticket += 1;
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        match queue.tail {
            NONE => queue.head = at,
            tail => self.slots[tail as usize].next = at,
        }
        queue.tail = at;
        queue.len += 1;
    }

    /// Removes the oldest packet of a queue; `None` if the queue is empty.
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<QueuedPacket> {
        let at = queue.head;
        let slot = self.slots.get_mut(at as usize)?;
        let packet = slot.packet.take();
        queue.head = slot.next;
        queue.len -= 1;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        self.free.push(at);
        packet
    }

    /// Ticket of the oldest packet, which gives the order of entry into the store; `None` if the
    /// queue is empty.
    pub(crate) fn ticket(&self, queue: &Queue) -> Option<u64> {
        self.slots.get(queue.head as usize).map(|slot| slot.ticket)
    }
}
