//! Capture of frames of a netdev.

use mqnet_control_api::{ApiError, CaptureFilter, CapturedFrame, Code, FrameDirection, FrameSink};
use mqnet_engine::{CaptureRequest, Captures};
use mqnet_netdev::DropReason;
use mqnet_netdev::wrap::capture::{CaptureDirection, Captured};
use mqnet_sysio::clock;

use crate::HostedLink;

struct Sink {
    captures: Captures,
    taken: Vec<Captured>,
}

impl FrameSink for Sink {
    fn take(&mut self, frames: &mut Vec<CapturedFrame>) -> u64 {
        let missed = self.captures.take(&mut self.taken);
        frames.extend(self.taken.drain(..).map(|frame| CapturedFrame {
            time_ns: frame.time_ns,
            channel: frame.channel,
            direction: match frame.direction {
                CaptureDirection::Inbound => FrameDirection::Inbound,
                CaptureDirection::Outbound => FrameDirection::Outbound,
            },
            len: frame.len,
            bytes: frame.bytes,
            drop_reason: frame.drop_reason.map(DropReason::name),
        }));
        missed
    }
}

fn wall_clock() -> u64 {
    clock::since_epoch().as_nanos() as u64
}

/// Starts a capture. Fails if the filter names a channel that is not in use.
pub(super) fn capture(
    entry: &mut HostedLink,
    side: usize,
    filter: CaptureFilter,
) -> Result<Box<dyn FrameSink>, ApiError> {
    let active = entry.link.running().map_or(0, |running| running.plan.channels);
    if let Some(channel) = filter.channel.filter(|&channel| channel >= active) {
        let why = format!("channel: {channel} is not in use, there are {active}");
        return Err(ApiError {
            field: Some("channel".into()),
            ..ApiError::new(Code::NoEntry, why)
        });
    }
    let captures = entry.link.capture(CaptureRequest {
        side,
        channel: filter.channel,
        drops_only: filter.drops,
        snaplen: filter.snaplen,
        clock: wall_clock,
    });
    Ok(Box::new(Sink { captures, taken: Vec::new() }))
}
