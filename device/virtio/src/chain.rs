//! Chains of descriptors, as a device reads them: every field once, and checked.

use mqnet_shmem::MemoryMap;

use crate::Broken;
use crate::layout::{DESC_LEN, flag};

/// Most descriptors of an indirect table.
pub const INDIRECT_MAX: u32 = 1024;

/// One buffer, as its descriptor names it. Whether it is memory shows when it is looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins, in the driver's addresses.
    pub addr: u64,
    /// Its length in bytes, never 0.
    pub len: u32,
}

/// What a driver made available as one: some readable pieces, then some writable ones.
///
/// The pieces after the first lie in a list of the caller, so that nothing is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// By which the driver knows it.
    pub id: u16,
    /// Descriptors of the ring that it takes up.
    pub slots: u16,
    /// How many of the pieces, from the first on, are for reading.
    pub readable: u16,
    more: u16,
    from: u32,
    /// Length of all pieces in bytes.
    pub len: u32,
    /// The first piece.
    pub head: Piece,
}

impl Chain {
    /// A chain of one descriptor.
    #[inline]
    pub fn single(head: &Head) -> Self {
        let (id, piece, readable) = (head.id, head.piece(), u16::from(!head.is_writable()));
        Self { id, slots: 1, readable, more: 0, from: 0, len: piece.len, head: piece }
    }

    /// How many pieces it has.
    #[inline]
    pub fn pieces(&self) -> u16 {
        1 + self.more
    }

    /// The pieces after the first, in the list that it was read with.
    #[inline]
    pub fn more<'a>(&self, list: &'a [Piece]) -> &'a [Piece] {
        &list[self.from as usize..][..usize::from(self.more)]
    }

    /// True when the device only reads it.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.readable == self.pieces()
    }

    /// True when the device only writes it.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.readable == 0
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    /// Split: the next one. Packed: the buffer's id.
    pub(crate) other: u16,
}

impl Desc {
    /// Of a split ring or its indirect tables: addr, then len, flags, next.
    #[inline]
    pub(crate) fn split(addr: u64, rest: u64) -> Self {
        let (len, flags, other) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
        Self { addr, len, flags, other }
    }

    /// Of a packed ring or its indirect tables: addr, then len, id, flags.
    #[inline]
    pub(crate) fn packed(addr: u64, rest: u64) -> Self {
        let (len, other, flags) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
        Self { addr, len, flags, other }
    }

    /// True when it is a chain of its own, with a sound length.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.flags & (flag::NEXT | flag::INDIRECT) == 0 && self.len != 0
    }

    #[inline]
    pub(crate) fn piece(&self) -> Piece {
        Piece { addr: self.addr, len: self.len }
    }
}

/// The first descriptor of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// By which the driver knows the chain, if it is [simple](Self::is_simple).
    pub id: u16,
    pub(crate) desc: Desc,
}

impl Head {
    /// True when it is the whole chain, one sound buffer.
    #[inline]
    pub fn is_simple(&self) -> bool {
        self.desc.is_simple()
    }

    /// True when it is [simple](Self::is_simple) and the device reads it.
    #[inline(always)]
    pub fn is_simple_readable(&self) -> bool {
        let flags = self.desc.flags & (flag::NEXT | flag::INDIRECT | flag::WRITE);
        flags == 0 && self.desc.len != 0
    }

    /// True when it is the whole chain, and the device writes it. It may have no length.
    #[inline(always)]
    pub fn is_lone_writable(&self) -> bool {
        self.desc.flags & (flag::NEXT | flag::INDIRECT | flag::WRITE) == flag::WRITE
    }

    /// The buffer of a simple chain.
    #[inline]
    pub fn piece(&self) -> Piece {
        self.desc.piece()
    }

    /// True when the device writes it.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.desc.flags & flag::WRITE != 0
    }
}

/// How the entries of an indirect table are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// By their `next` fields (split).
    Next,
    /// One after the other (packed).
    Order,
}

/// Puts a chain together, descriptor by descriptor.
pub(crate) struct Builder<'a> {
    pub(crate) queue: u16,
    chain: Chain,
    pieces: u32,
    writing: bool,
    list: &'a mut Vec<Piece>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(queue: u16, id: u16, list: &'a mut Vec<Piece>) -> Self {
        let from = list.len() as u32;
        let head = Piece::default();
        let chain = Chain { id, slots: 0, readable: 0, more: 0, from, len: 0, head };
        Self { queue, chain, pieces: 0, writing: false, list }
    }

    pub(crate) fn broken(&self, what: String) -> Broken {
        Broken { queue: self.queue, what }
    }

    /// Appends the buffer of a descriptor.
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
            let what = format!("descriptor {at} of a chain is for reading, after one for writing");
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

    /// Appends the buffers of the table that a descriptor of the ring names.
    pub(crate) fn add_table(
        &mut self,
        table: &Desc,
        links: Links,
        memory: &MemoryMap,
    ) -> Result<(), Broken> {
        let (addr, bytes) = (table.addr, table.len);
        if table.flags & flag::NEXT != 0 {
            return Err(self.broken("a descriptor is INDIRECT and goes on (NEXT)".to_owned()));
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
            return Err(self.broken(format!("an indirect table at {addr:#x}, which is no memory")));
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

    /// The chain, which takes up `slots` descriptors of the ring.
    pub(crate) fn done(self, slots: u16) -> Chain {
        Chain { slots, ..self.chain }
    }

    /// Sets the id where it is known only at the end.
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
