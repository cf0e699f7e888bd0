//! Packets of many queues in one array.
//!
//! A qdisc may have thousands of queues but a limited number of packets. Queues are chains through
//! one array that grows to the largest number of packets queued so far. A queue costs twelve bytes,
//! and an empty one holds no memory.

use crate::QueuedPacket;

const NONE: u32 = u32::MAX;

/// Packet slots.
#[derive(Default)]
pub(crate) struct Store {
    slots: Vec<Slot>,
    /// Slots without a packet.
    free: Vec<u32>,
    next_ticket: u64,
}

struct Slot {
    packet: Option<QueuedPacket>,
    /// Increases with every packet that enters the store.
    ticket: u64,
    next: u32,
}

/// A chain of packets.
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
    /// Packets in it.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// True when there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Store {
    /// Appends a packet.
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

    /// Takes the oldest packet of a queue.
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

    /// Ticket of the oldest packet: increases in the order of entry into the store.
    pub(crate) fn ticket(&self, queue: &Queue) -> Option<u64> {
        self.slots.get(queue.head as usize).map(|slot| slot.ticket)
    }
}
