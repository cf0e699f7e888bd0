//! Frames that leave a queue with their memory.

use mqnet_pktbuf::{Frag, Returner};
use mqnet_shmem::{Span, SpanMut};
use mqnet_wire::VnetHdr;

/// A part of a frame, in a buffer that belongs to whoever holds this.
#[derive(Debug)]
#[must_use = "memory that is not given back is lost to its pool"]
pub struct KeptPiece {
    frag: Frag,
    from: u32,
    len: u32,
}

impl KeptPiece {
    /// `len` bytes of a buffer from `from` on, which lie within it.
    pub fn new(frag: Frag, from: u32, len: u32) -> Self {
        debug_assert!(u64::from(from) + u64::from(len) <= u64::from(frag.len()));
        Self { frag, from, len }
    }

    /// Where in the region of the pool's memory it begins: its place in the caller's own file,
    /// when the pages are the caller's.
    ///
    /// # Panics
    /// When the returner is of another pool.
    pub fn place(&self, home: &Returner) -> u64 {
        home.frag_place(&self.frag) + u64::from(self.from)
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True when nothing of the frame lies in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in front of it that are free, for a header more.
    pub fn headroom(&self) -> u32 {
        self.from
    }

    /// The bytes.
    ///
    /// # Panics
    /// When the returner is of another pool.
    pub fn span<'a>(&'a self, home: &'a Returner) -> Span<'a> {
        home.frag_span(&self.frag).skip(self.from as usize).first(self.len as usize)
    }

    /// Puts a header in front of it, in place; false when there is no room for it.
    ///
    /// # Panics
    /// When the returner is of another pool.
    pub fn push_front(&mut self, header: &[u8], home: &Returner) -> bool {
        let Some(from) = (self.from as usize).checked_sub(header.len()) else { return false };
        let room: SpanMut<'_> = home.frag_span_mut(&mut self.frag);
        room.split_at(from).1.write_header(header);
        (self.from, self.len) = (from as u32, self.len + header.len() as u32);
        true
    }
}

/// A frame that was taken from a queue with its memory.
#[derive(Debug)]
#[must_use = "memory that is not given back is lost to its pool"]
pub struct Kept {
    /// What is unfinished about it.
    pub hdr: VnetHdr,
    /// Where it begins.
    pub head: KeptPiece,
    /// Where it goes on.
    pub more: Vec<KeptPiece>,
}

impl Kept {
    /// Its parts, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &KeptPiece> {
        std::iter::once(&self.head).chain(&self.more)
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.pieces().map(KeptPiece::len).sum()
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives its memory back.
    ///
    /// # Panics
    /// When the returner is of another pool.
    pub fn give_back(self, home: &mut Returner) {
        home.free_frag(self.head.frag);
        self.more.into_iter().for_each(|piece| home.free_frag(piece.frag));
    }
}

#[cfg(test)]
mod tests {
    use mqnet_pktbuf::{PagePool, PoolConfig};

    use super::*;

    // Goal: a header goes in front in place, as far as there is room, and the memory goes home.
    #[test]
    fn headers_go_in_front() {
        let config = PoolConfig { pages: 2, ..PoolConfig::default() };
        let mut pool = PagePool::new(&config).unwrap();
        let mut home = pool.returner();
        let mut frag = pool.alloc_frag(1536).unwrap();
        let room = pool.frag_span_mut(&mut frag);
        room.split_at(64).1.write_header(b"payload");
        let mut head = KeptPiece::new(frag, 64, 7);
        assert_eq!((head.headroom(), head.place(&home)), (64, 64));
        assert!(!head.push_front(&[0; 65], &home) && head.push_front(b"tag ", &home));
        assert_eq!((head.headroom(), head.len(), head.place(&home)), (60, 11, 60));
        assert_eq!(&head.span(&home).header::<11>().unwrap(), b"tag payload");
        let kept = Kept { hdr: VnetHdr::default(), head, more: Vec::new() };
        assert_eq!(kept.len(), 11);
        kept.give_back(&mut home);
        home.flush();
        pool.drain();
        assert_eq!((pool.outstanding(), pool.foreign()), (0, 1));
    }
}
