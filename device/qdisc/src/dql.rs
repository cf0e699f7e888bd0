//! stub
/// stub
#[derive(Debug)]
pub struct ByteLimit {
    min: u32,
    max: u32,
}

impl ByteLimit {
    /// stub
    pub fn new(min: u32, max: u32) -> Self {
        Self { min, max }
    }
    /// stub
    pub fn limit(&self) -> u32 {
        (256 << 10).max(self.min).min(self.max)
    }
    /// stub
    pub fn allow(&self, used: u32) -> u32 {
        self.limit().saturating_sub(used)
    }
    /// stub
    pub fn sent(&mut self, _bytes: u32) {}
    /// stub
    pub fn observe(&mut self, _used: u32, _had_backlog: bool, _now: u64) {}
}
