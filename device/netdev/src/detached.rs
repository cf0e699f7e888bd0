//! Frames detached from a queue together with their memory.

use mqnet_pktbuf::{Frag, Returner};
use mqnet_shmem::{Span, SpanMut};
use mqnet_wire::VnetHdr;

/// A fragment of a detached frame: a range of a page-pool buffer.
#[derive(Debug)]
#[must_use = "memory that is not returned is lost to its pool"]
pub struct DetachedFragment {
    frag: Frag,
    from: u32,
    len: u32,
}

impl DetachedFragment {
    /// Creates a fragment of `len` bytes from offset `from` of a buffer; the range must be within
    /// the buffer.
    pub fn new(frag: Frag, from: u32, len: u32) -> Self {
        debug_assert!(u64::from(from) + u64::from(len) <= u64::from(frag.len()));
        Self { frag, from, len }
    }

    /// Offset of the fragment in the memory region of the pool. For pages that the pool's creator
    /// provided, the offset is relative to the provided file.
    ///
    /// # Panics
    /// Panics if the returner belongs to another pool.
    pub fn place(&self, returner: &Returner) -> u64 {
        returner.frag_place(&self.frag) + u64::from(self.from)
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if the fragment has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Free bytes before the fragment, for another header.
    pub fn headroom(&self) -> u32 {
        self.from
    }

    /// Bytes of the fragment.
    ///
    /// # Panics
    /// Panics if the returner belongs to another pool.
    pub fn span<'a>(&'a self, returner: &'a Returner) -> Span<'a> {
        returner.frag_span(&self.frag).skip(self.from as usize).first(self.len as usize)
    }

    /// Prepends a header in place. Returns false if the headroom is too small.
    ///
    /// # Panics
    /// Panics if the returner belongs to another pool.
    pub fn push_front(&mut self, header: &[u8], returner: &Returner) -> bool {
        let Some(from) = (self.from as usize).checked_sub(header.len()) else { return false };
        let room: SpanMut<'_> = returner.frag_span_mut(&mut self.frag);
        room.split_at(from).1.write_header(header);
        (self.from, self.len) = (from as u32, self.len + header.len() as u32);
        true
    }
}

/// A frame detached from a queue together with its memory.
#[derive(Debug)]
#[must_use = "memory that is not returned is lost to its pool"]
pub struct DetachedFrame {
    /// Virtio header: pending checksum and segmentation of the frame.
    pub hdr: VnetHdr,
    /// First fragment of the frame.
    pub head: DetachedFragment,
    /// Further fragments, in order.
    pub more: Vec<DetachedFragment>,
}

impl DetachedFrame {
    /// Fragments of the frame, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &DetachedFragment> {
        std::iter::once(&self.head).chain(&self.more)
    }

    /// Length of the frame in bytes.
    pub fn len(&self) -> u32 {
        self.pieces().map(DetachedFragment::len).sum()
    }

    /// True if the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of the frame to its pool.
    ///
    /// # Panics
    /// Panics if the returner belongs to another pool.
    pub fn free(self, returner: &mut Returner) {
        returner.free_frag(self.head.frag);
        self.more.into_iter().for_each(|piece| returner.free_frag(piece.frag));
    }
}

#[cfg(test)]
mod tests {
    use mqnet_pktbuf::{PagePool, PoolConfig};

    use super::*;

    // Goal: a header is prepended in place if there is enough headroom, and the memory returns to
    // its pool.
    #[test]
    fn headers_are_prepended_in_place() {
        let config = PoolConfig { pages: 2, ..PoolConfig::default() };
        let mut pool = PagePool::new(&config).unwrap();
        let mut returner = pool.returner();
        let mut frag = pool.alloc_frag(1536).unwrap();
        let room = pool.frag_span_mut(&mut frag);
        room.split_at(64).1.write_header(b"payload");
        let mut head = DetachedFragment::new(frag, 64, 7);
        assert_eq!((head.headroom(), head.place(&returner)), (64, 64));
        assert!(!head.push_front(&[0; 65], &returner) && head.push_front(b"tag ", &returner));
        assert_eq!((head.headroom(), head.len(), head.place(&returner)), (60, 11, 60));
        assert_eq!(&head.span(&returner).header::<11>().unwrap(), b"tag payload");
        let kept = DetachedFrame { hdr: VnetHdr::default(), head, more: Vec::new() };
        assert_eq!(kept.len(), 11);
        kept.free(&mut returner);
        returner.flush();
        pool.drain();
        assert_eq!((pool.outstanding(), pool.foreign()), (0, 1));
    }
}
