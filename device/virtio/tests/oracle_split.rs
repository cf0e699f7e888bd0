//! Driver side of a split queue, tested with the device side of the `virtio-queue` crate.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use mqnet_shmem::{AtomicTable, Region};
use mqnet_virtio::driver::{DriverQueue, MemoryRange, UsedBuffer};
use mqnet_virtio::layout;
use mqnet_virtio::split::driver::SplitDriverQueue;
use proptest::prelude::*;
use virtio_queue::{Queue, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

const SIZE: u16 = 32;
const LEN: usize = 64 << 10;

fn area(number: usize) -> usize {
    number * 4096
}

/// Maps one memory file for the driver and the device.
fn both(event_idx: bool) -> (SplitDriverQueue, Queue, GuestMemoryMmap) {
    let region = Arc::new(Region::shared("oracle", LEN, false).unwrap());
    let file: File = region.file().unwrap().try_clone_to_owned().unwrap().into();
    let mut number = 0;
    let areas = layout::split::areas(SIZE).map(|len| {
        number += 1;
        AtomicTable::new(region.clone(), area(number - 1), len).unwrap()
    });
    let ranges = [(GuestAddress(0), LEN, Some(FileOffset::new(file, 0)))];
    let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
    let mut queue = Queue::new(SIZE).unwrap();
    queue.set_size(SIZE);
    queue.try_set_desc_table_address(GuestAddress(area(0) as u64)).unwrap();
    queue.try_set_avail_ring_address(GuestAddress(area(1) as u64)).unwrap();
    queue.try_set_used_ring_address(GuestAddress(area(2) as u64)).unwrap();
    queue.set_event_idx(event_idx);
    queue.set_ready(true);
    assert!(queue.is_valid(&memory));
    (SplitDriverQueue::new(0, SIZE, areas, event_idx), queue, memory)
}

proptest! {
    // Goal: an independent device finds the chains that the driver added, and the driver finds the
    // used buffers. Both sides agree on notifications and interrupts.
    #[test]
    fn an_independent_device_agrees(
        event_idx in any::<bool>(),
        rounds in prop::collection::vec((1..4usize, 1..6usize, 1..10usize), 1..120),
    ) {
        let (mut driver, mut queue, memory) = both(event_idx);
        let (mut out, mut serial) = (VecDeque::new(), 0u64);
        for (count, adds, gives) in rounds {
            let armed = queue.enable_notification(&memory).unwrap();
            prop_assert!(armed != out.is_empty(), "{armed} {}", out.len());
            let mut added = 0;
            for _ in 0..adds {
                let at = 0x4000 + (serial % 64) * 256;
                let pieces: Vec<MemoryRange> =
                    (0..count as u64).map(|n| MemoryRange { at: at + n * 64, len: 60 }).collect();
                let Some(id) = driver.add(&pieces, count / 2) else { break };
                serial += 1;
                added += 1;
                out.push_back((id, pieces));
            }
            driver.publish();
            let kick = driver.needs_kick();
            prop_assert!(added == 0 && !kick || out.len() > added || kick == (added > 0));
            for _ in 0..gives {
                let Some(chain) = queue.pop_descriptor_chain(&memory) else {
                    prop_assert!(out.is_empty());
                    break;
                };
                let (id, pieces) = out.pop_front().unwrap();
                prop_assert_eq!(chain.head_index(), id);
                let found: Vec<_> =
                    chain.map(|d| (d.addr().0, d.len(), d.is_write_only())).collect();
                let expected: Vec<_> = (0..).zip(&pieces)
                    .map(|(n, p)| (p.at, p.len, n >= count_readable(pieces.len())))
                    .collect();
                prop_assert_eq!(found, expected);
                let room = 60 * (pieces.len() - count_readable(pieces.len())) as u32;
                prop_assert!(!driver.arm(1));
                queue.add_used(&memory, id, room).unwrap();
                prop_assert!(queue.needs_notification(&memory).unwrap());
                prop_assert_eq!(driver.take_used().unwrap(), Some(UsedBuffer { id, len: room }));
                prop_assert_eq!(driver.take_used().unwrap(), None);
            }
        }
    }
}

fn count_readable(count: usize) -> usize {
    count / 2
}
