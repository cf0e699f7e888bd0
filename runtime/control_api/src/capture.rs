//! Captured frames of a netdev.

/// Which frames of a netdev are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Only this channel.
    pub channel: Option<u16>,
    /// Only frames that were dropped.
    pub drops: bool,
    /// Bytes kept of each frame.
    pub snaplen: u32,
}

/// Which way a captured frame went, seen from the netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// It arrived there.
    Inbound,
    /// It left there.
    Outbound,
}

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Its channel.
    pub channel: u16,
    /// Which way.
    pub direction: FrameDirection,
    /// Its whole length.
    pub len: u32,
    /// Bytes kept of the frame.
    pub bytes: Vec<u8>,
    /// Why it was dropped.
    pub drop_reason: Option<&'static str>,
}

/// Queue of captured frames.
pub trait FrameSink: Send {
    /// Takes the captured frames, oldest first, and returns the number of frames that were missed
    /// because the reader was slow. Dropping the sink ends the capture.
    fn take(&mut self, frames: &mut Vec<CapturedFrame>) -> u64;
}
