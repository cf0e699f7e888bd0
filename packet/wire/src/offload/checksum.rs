//! The internet checksum, in pieces.

/// A sum of 16-bit words, as the machine reads them from memory: its bytes come out right whatever
/// the byte order (RFC 1071).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Never near its end: each addition is below 2^33.
    total: u64,
    odd: bool,
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Sum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Self { total: 0, odd: false }
    }

    /// Adds bytes that follow those before.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, last) = bytes.as_chunks::<2>();
        let mut sum = words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum::<u64>();
        if let [byte] = last {
            sum += u64::from(u16::from_ne_bytes([*byte, 0]));
        }
        self.add(sum, bytes.len());
    }

    /// Adds `len` bytes that somebody else has summed up, word by word from their own start.
    pub fn add(&mut self, sum: u64, len: usize) {
        let sum = fold(sum);
        // Behind an odd number of bytes, the halves of each word change places.
        self.total += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= len % 2 == 1;
    }

    /// Adds a number of the pseudo header, at an even place.
    pub fn number(&mut self, number: u16) {
        self.total += u64::from(u16::from_ne_bytes(number.to_be_bytes()));
    }

    /// The sum so far, not complemented: what an unfinished frame has in its field.
    pub fn unfinished(self) -> [u8; 2] {
        fold(self.total).to_ne_bytes()
    }

    /// The bytes of a checksum field. Never 0, which UDP takes for "no checksum"; its other form
    /// is the same number to everybody else.
    pub fn field(self) -> [u8; 2] {
        match !fold(self.total) {
            0 => [0xff; 2],
            sum => sum.to_ne_bytes(),
        }
    }

    /// The bytes of the checksum of an IPv4 header, which has one form only.
    pub fn header_field(self) -> [u8; 2] {
        (!fold(self.total)).to_ne_bytes()
    }
}
