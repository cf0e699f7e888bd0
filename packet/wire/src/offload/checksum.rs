//! Internet checksum, computed in parts.

/// Sum of 16-bit words in native byte order. The resulting bytes are correct for both byte orders
/// (RFC 1071).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Sum so far. An overflow is impossible in practice: each addition is below 2^16.
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
    /// Returns an empty sum.
    pub const fn new() -> Self {
        Self { total: 0, odd: false }
    }

    /// Adds the bytes that follow the previous ones.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (words, last) = bytes.as_chunks::<2>();
        let mut sum = words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum::<u64>();
        if let [byte] = last {
            sum += u64::from(u16::from_ne_bytes([*byte, 0]));
        }
        self.add(sum, bytes.len());
    }

    /// Adds `len` bytes by their sum, which was computed word by word from the first byte on.
    pub fn add(&mut self, sum: u64, len: usize) {
        let sum = fold(sum);
        // After an odd number of bytes, the two bytes of each word are swapped.
        self.total += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= len % 2 == 1;
    }

    /// Adds a number of the pseudo header, at an even position.
    pub fn number(&mut self, number: u16) {
        self.total += u64::from(u16::from_ne_bytes(number.to_be_bytes()));
    }

    /// Sum, not complemented: the field value of a frame that needs a checksum.
    pub fn unfinished(self) -> [u8; 2] {
        fold(self.total).to_ne_bytes()
    }

    /// Checksum field of TCP or UDP. The value is never 0, which means "no checksum" in UDP; 0xffff
    /// is equivalent.
    pub fn field(self) -> [u8; 2] {
        match !fold(self.total) {
            0 => [0xff; 2],
            sum => sum.to_ne_bytes(),
        }
    }

    /// Checksum field of an IPv4 header, where 0 is a valid value.
    pub fn header_field(self) -> [u8; 2] {
        (!fold(self.total)).to_ne_bytes()
    }
}
