//! Descriptor chains that a device reads: each field is read once and checked.

use mqnet_shmem::MemoryMap;

use crate::Broken;
use crate::layout::{DESC_LEN, flag};

/// Maximum number of descriptors of an indirect table.
pub const INDIRECT_MAX: u32 = 1024;

/// One buffer element of a descriptor. The address is checked when it is translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferElement {
    /// Address, in the driver's address space.
    pub addr: u64,
    /// Length in bytes, never 0.
    pub len: u32,
}

/// A descriptor chain: device-readable buffer elements, then device-writable ones.
///
/// Elements after the first are in a list that the caller provides, so that reading a chain does
/// not allocate memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Buffer id.
    pub id: u16,
    /// Number of ring descriptors that the chain occupies.
    pub slots: u16,
    /// Number of device-readable elements, which come first.
    pub readable: u16,
    /// Number of elements after the first.
    more: u16,
    /// Position of the second element in the caller's list.
    from: u32,
    /// Total length in bytes.
    pub len: u32,
    /// First element.
    pub head: BufferElement,
}

impl Chain {
    /// Creates a chain of the descriptor `head`, which must be simple.
    #[inline]
    pub fn single(head: &ChainHead) -> Self {
        let (id, piece, readable) = (head.id, head.piece(), u16::from(!head.is_writable()));
        Self { id, slots: 1, readable, more: 0, from: 0, len: piece.len, head: piece }
    }

    /// Number of elements.
    #[inline]
    pub fn pieces(&self) -> u16 {
        1 + self.more
    }

    /// Elements after the first; `list` is the list into which the chain was read.
    #[inline]
    pub fn more<'a>(&self, list: &'a [BufferElement]) -> &'a [BufferElement] {
        &list[self.from as usize..][..usize::from(self.more)]
    }

    /// True if all elements are device-readable.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.readable == self.pieces()
    }

    /// True if all elements are device-writable.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.readable == 0
    }
}

/// A descriptor of a ring or an indirect table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    /// Index of the next descriptor in a split ring; buffer id in a packed ring.
    pub(crate) other: u16,
}

impl Desc {
    /// Decodes a descriptor of a split ring or its indirect tables: addr; then len, flags, next.
    #[inline]
    pub(crate) fn split(addr: u64, rest: u64) -> Self {
        let (len, flags, other) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
        Self { addr, len, flags, other }
    }

    /// Decodes a descriptor of a packed ring or its indirect tables: addr; then len, id, flags.
    #[inline]
    pub(crate) fn packed(addr: u64, rest: u64) -> Self {
        let (len, other, flags) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
        Self { addr, len, flags, other }
    }

    /// True if the descriptor is a complete chain with a length above 0.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.flags & (flag::NEXT | flag::INDIRECT) == 0 && self.len != 0
    }

    #[inline]
    pub(crate) fn piece(&self) -> BufferElement {
        BufferElement { addr: self.addr, len: self.len }
    }
}

/// First descriptor of a chain.
#[derive(Clone, Copy, Debug)]
pub struct ChainHead {
    /// Buffer id if the chain is [simple](Self::is_simple). The id of another chain is determined
    /// when the whole chain is read.
    pub id: u16,
    pub(crate) desc: Desc,
}

impl ChainHead {
    /// True if the descriptor is a complete chain with a length above 0.
    #[inline]
    pub fn is_simple(&self) -> bool {
        self.desc.is_simple()
    }

    /// True if the chain is [simple](Self::is_simple) and device-readable.
    #[inline(always)]
    pub fn is_simple_readable(&self) -> bool {
        let flags = self.desc.flags & (flag::NEXT | flag::INDIRECT | flag::WRITE);
        flags == 0 && self.desc.len != 0
    }

    /// True if the descriptor is a complete device-writable chain; its length may be 0.
    #[inline(always)]
    pub fn is_lone_writable(&self) -> bool {
        self.desc.flags & (flag::NEXT | flag::INDIRECT | flag::WRITE) == flag::WRITE
    }

    /// Buffer element of a simple chain.
    #[inline]
    pub fn piece(&self) -> BufferElement {
        self.desc.piece()
    }

    /// True if the descriptor is device-writable.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.desc.flags & flag::WRITE != 0
    }
}

/// Order of the entries of an indirect table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Linked by `next` fields (split ring).
    Next,
    /// Consecutive (packed ring).
    Order,
}

/// Assembles a chain, one descriptor at a time.
pub(crate) struct Builder<'a> {
    pub(crate) queue: u16,
    chain: Chain,
    pieces: u32,
    writing: bool,
    list: &'a mut Vec<BufferElement>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(queue: u16, id: u16, list: &'a mut Vec<BufferElement>) -> Self {
        let from = list.len() as u32;
        let head = BufferElement::default();
        let chain = Chain { id, slots: 0, readable: 0, more: 0, from, len: 0, head };
        Self { queue, chain, pieces: 0, writing: false, list }
    }

    pub(crate) fn broken(&self, what: String) -> Broken {
        Broken { queue: self.queue, what }
    }

    /// Appends the buffer element of a descriptor. Fails if the length is 0, if the chain exceeds 4
    /// GiB, or if a readable element follows a writable one.
    pub(crate) fn add(&mut self, desc: &Desc) -> Result<(), Broken> {
        let at = self.pieces;
        if desc.len == 0 {
            return Err(self.broken(format!("descriptor {at} of a chain has length 0")));
        }
        let Some(len) = self.chain.len.checked_add(desc.len) else {
            let so_far = self.chain.len;
            let what = format!("a chain of {so_far} + {} bytes, more than 4 GiB", desc.len);
            return Err(self.broken(what));
        };
        let writes = desc.flags & flag::WRITE != 0;
        if self.writing && !writes {
            let what =
                format!("descriptor {at} of a chain: device-readable after a device-writable one");
            return Err(self.broken(what));
        }
        self.writing = writes;
        self.chain.len = len;
        self.chain.readable += u16::from(!writes);
        if at == 0 {
            self.chain.head = desc.piece();
        } else {
            self.chain.more += 1;
            self.list.push(desc.piece());
        }
        self.pieces += 1;
        Ok(())
    }

    /// Appends the elements of the indirect table to which the descriptor `table` points. Fails if
    /// the table or an entry violates the specification.
    pub(crate) fn add_table(
        &mut self,
        table: &Desc,
        links: Links,
        memory: &MemoryMap,
    ) -> Result<(), Broken> {
        let (addr, bytes) = (table.addr, table.len);
        if table.flags & flag::NEXT != 0 {
            return Err(self.broken("a descriptor has both INDIRECT and NEXT".to_owned()));
        }
        let entries = bytes / DESC_LEN;
        if bytes % DESC_LEN != 0 || entries == 0 || entries > INDIRECT_MAX {
            let what = format!(
                "an indirect table of {bytes} bytes: allowed are 1 to {INDIRECT_MAX} \
                 descriptors of {DESC_LEN} bytes"
            );
            return Err(self.broken(what));
        }
        let Some(span) = memory.span(addr, bytes) else {
            return Err(self.broken(format!("an indirect table at {addr:#x}: not in guest memory")));
        };
        let mut at = 0;
        for _ in 0..entries {
            let mut raw = [0; DESC_LEN as usize];
            span.skip((at * DESC_LEN) as usize).read_header(&mut raw);
            let desc = decode(raw, links);
            if desc.flags & flag::INDIRECT != 0 {
                return Err(self.broken("an indirect table within an indirect table".to_owned()));
            }
            self.add(&desc)?;
            match links {
                Links::Order => at += 1,
                Links::Next if desc.flags & flag::NEXT == 0 => return Ok(()),
                Links::Next => at = u32::from(desc.other),
            }
            if links == Links::Next && at >= entries {
                let what = format!("entry {at} of an indirect table of {entries}");
                return Err(self.broken(what));
            }
        }
        if links == Links::Order {
            return Ok(());
        }
        Err(self.broken(format!("a chain of more descriptors than its table's {entries}")))
    }

    /// Returns the chain, which uses `slots` descriptors of the ring.
    pub(crate) fn done(self, slots: u16) -> Chain {
        Chain { slots, ..self.chain }
    }

    /// Sets the buffer id; in a packed ring the last descriptor has the id.
    pub(crate) fn set_id(&mut self, id: u16) {
        self.chain.id = id;
    }
}

fn decode(raw: [u8; DESC_LEN as usize], links: Links) -> Desc {
    let word = |at: usize| -> u64 {
        (0..8).rev().fold(0, |word, byte| word << 8 | u64::from(raw[at + byte]))
    };
    match links {
        Links::Next => Desc::split(word(0), word(8)),
        Links::Order => Desc::packed(word(0), word(8)),
    }
}
