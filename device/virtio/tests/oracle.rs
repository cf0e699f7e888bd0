//! Split chains of the device side, compared with the device side of rust-vmm.

use mqnet_testkit::virtq::{Driver, Memory, START, Shape};
use mqnet_virtio::layout::DESC_LEN;
use mqnet_virtio::{DeviceRing, Features, split};
use proptest::prelude::*;
use virtio_queue::{Queue, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

const SIZE: u16 = 8;
const BYTES: usize = 1 << 16;

/// One descriptor with arbitrary fields.
#[derive(Clone, Copy, Debug)]
struct Raw {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

fn raw(entries: u16) -> impl Strategy<Value = Raw> {
    let addr = prop_oneof![8 => START..START + 0x8000, 1 => any::<u64>()];
    let len = prop_oneof![8 => 1u32..2000, 1 => Just(0), 1 => any::<u32>()];
    let flags = prop_oneof![
        3 => Just(0u16), 6 => Just(1), 2 => Just(2), 4 => Just(3), 1 => 0u16..8
    ];
    let next = prop_oneof![9 => 0..entries, 1 => any::<u16>()];
    (addr, len, flags, next).prop_map(|(addr, len, flags, next)| Raw { addr, len, flags, next })
}

fn bytes(raw: &Raw) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(raw.addr.to_le_bytes());
    out.extend(raw.len.to_le_bytes());
    out.extend(raw.flags.to_le_bytes());
    out.extend(raw.next.to_le_bytes());
    out
}

/// Opens the memory and the ring with rust-vmm, the oracle.
fn oracle(memory: &Memory, driver: &Driver) -> (GuestMemoryMmap, Queue) {
    let file = memory.region().file().unwrap().try_clone_to_owned().unwrap();
    let range = (GuestAddress(START), BYTES, Some(FileOffset::new(file.into(), 0)));
    let guest = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
    let mut queue = Queue::new(SIZE).unwrap();
    queue.set_size(SIZE);
    let halves = |at: u64| (Some(at as u32), Some((at >> 32) as u32));
    let [desc, avail, used] = driver.addresses().map(halves);
    queue.set_desc_table_address(desc.0, desc.1);
    queue.set_avail_ring_address(avail.0, avail.1);
    queue.set_used_ring_address(used.0, used.1);
    queue.set_ready(true);
    (guest, queue)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    // Goal: for any bytes in the descriptor table and in an indirect table, an accepted chain
    // equals that of rust-vmm's device (the oracle). A chain that the oracle reads as valid is not
    // rejected.
    #[test]
    fn chains_are_those_of_rust_vmm(
        table in prop::collection::vec(raw(SIZE), SIZE as usize),
        inner in prop::collection::vec(raw(6), 6),
        indirect_at in 0usize..12,
        head in 0u16..SIZE,
    ) {
        let mut memory = Memory::new(BYTES);
        let shape = Shape { packed: false, size: SIZE, event_idx: false };
        let driver = Driver::new(&mut memory, shape);
        let inner_at = memory.alloc(6 * DESC_LEN, 16);
        let mut table = table;
        if let Some(entry) = table.get_mut(indirect_at) {
            *entry = Raw { addr: inner_at, len: 6 * DESC_LEN, flags: 4, next: 0 };
        }
        let [desc, avail, _] = driver.addresses();
        memory.write(desc, &table.iter().flat_map(bytes).collect::<Vec<_>>());
        memory.write(inner_at, &inner.iter().flat_map(bytes).collect::<Vec<_>>());
        memory.write(avail + 4, &head.to_le_bytes());
        memory.write(avail + 2, &1u16.to_le_bytes());

        // Create our ring before the oracle reads: creation writes to the used ring, which a table
        // may overlap.
        let tables = driver.tables(&memory);
        let mut ring =
            split::SplitDeviceQueue::new(0, SIZE, tables, Features::INDIRECT_DESC).unwrap();
        let (guest, mut queue) = oracle(&memory, &driver);
        let chain = queue.pop_descriptor_chain(&guest).unwrap();
        let theirs: Vec<_> =
            chain.map(|desc| (desc.addr().0, desc.len(), desc.is_write_only())).collect();

        let (mut place, mut list) = (ring.place(), Vec::new());
        match ring.chain_at(&mut place, &memory.map(), &mut list) {
            Ok(chain) => {
                let chain = chain.unwrap();
                let pieces = std::iter::once(&chain.head).chain(chain.more(&list));
                let ours: Vec<_> = pieces
                    .enumerate()
                    .map(|(i, piece)| (piece.addr, piece.len, i >= chain.readable.into()))
                    .collect();
                prop_assert_eq!(ours, theirs);
            }
            Err(why) => prop_assert!(is_odd(&table, &inner, head, &theirs), "{}", why),
        }
    }
}

/// True if the chain violates a rule that the oracle does not check, or if the oracle stopped in
/// the middle of the chain.
fn is_odd(table: &[Raw], inner: &[Raw], head: u16, seen: &[(u64, u32, bool)]) -> bool {
    let empty = seen.iter().any(|&(_, len, _)| len == 0);
    let order = seen.is_sorted_by_key(|&(_, _, write)| write);
    let all: u64 = seen.iter().map(|&(_, len, _)| u64::from(len)).sum();
    empty || !order || all > u64::from(u32::MAX) || !ends(table, inner, head, seen.len())
}

/// Walks the chain by the specification. Returns true if the chain ends after `pieces` descriptors.
fn ends(table: &[Raw], inner: &[Raw], head: u16, pieces: usize) -> bool {
    let (mut list, mut at, mut is_inner) = (table, head, false);
    let mut seen = 0;
    for _ in 0..table.len() + inner.len() + 2 {
        let Some(desc) = list.get(usize::from(at)) else { return false };
        if desc.flags & 4 != 0 {
            let sound =
                !is_inner && desc.flags & 1 == 0 && desc.len == inner.len() as u32 * DESC_LEN;
            if !sound {
                return false;
            }
            (list, at, is_inner) = (inner, 0, true);
            continue;
        }
        seen += 1;
        if desc.flags & 1 == 0 {
            return seen == pieces;
        }
        at = desc.next;
    }
    false
}
