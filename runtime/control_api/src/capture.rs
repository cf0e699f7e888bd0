//! Captured frames of a netdev.

/// Selection of frames to capture on a netdev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Channel to capture; `None`: all channels.
    pub channel: Option<u16>,
    /// True to capture only dropped frames.
    pub drops: bool,
    /// Largest number of bytes kept of each frame.
    pub snaplen: u32,
}

/// Direction of a captured frame at the netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// Frame that the netdev received.
    Inbound,
    /// Frame that the netdev sent, or was to send.
    Outbound,
}

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Channel of the frame.
    pub channel: u16,
    /// Direction of the frame.
    pub direction: FrameDirection,
    /// Full length of the frame in bytes.
    pub len: u32,
    /// Bytes kept of the frame.
    pub bytes: Vec<u8>,
    /// Reason of the drop; `None`: the frame was not dropped.
    pub drop_reason: Option<&'static str>,
}

/// Queue of captured frames.
pub trait FrameSink: Send {
    /// Appends the captured frames to `frames`, oldest first. Returns the number of frames missed
    /// since the last call because the reader was slow. Dropping the sink ends the capture.
    fn take(&mut self, frames: &mut Vec<CapturedFrame>) -> u64;
}
