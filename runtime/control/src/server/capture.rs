//! Captured frames of a netdev as a pcapng stream that ends when its reader disconnects or the host
//! ends.

mod pcapng;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use mqnet_control_api::{ApiError, CaptureFilter, FrameSink, NetdevRequest, Reply, Request};
use serde::Deserialize;
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::IntoParams;

use self::pcapng::Writer;
use super::answer::{Refusal, wrong_reply};
use super::request::{Name, Parameters, QueryParameters};
use crate::calls::HostHandle;

/// Interval for reading the sink.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// Largest and default number of bytes kept of a frame: the limit of pcapng readers.
const SNAPLEN_MAX: u32 = 262_144;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Channel to capture; absent: all channels.
    #[serde(default)]
    #[param(minimum = 0, maximum = 63)]
    channel: Option<u16>,
    /// True to capture only dropped frames.
    #[serde(default)]
    #[param(required = false)]
    drops: bool,
    /// Largest number of bytes kept of each frame.
    #[serde(default)]
    #[param(minimum = 1, maximum = 262_144, default = 262_144)]
    snaplen: Option<u32>,
}

impl Parameters for Wanted {
    const ALLOWED: &'static str = "channel=0..=63, drops=true or false, snaplen=1..=262144";
}

/// Captures frames as a pcapng file until the client disconnects or the host ends. The comment of a
/// frame contains its channel and its drop reason.
#[utoipa::path(get, path = "/v1/netdevs/{dev}/capture", tag = "netdevs",
    params(("dev" = String, Path, description = "Name of a netdev"), Wanted),
    responses((status = 200, description = "pcapng", content_type = "application/x-pcapng",
        body = Vec<u8>)))]
pub(super) async fn capture(
    State(host): State<HostHandle>,
    dev: Name,
    QueryParameters(wanted): QueryParameters<Wanted>,
) -> Result<Response, Refusal> {
    let snaplen = wanted.snaplen.unwrap_or(SNAPLEN_MAX);
    if !(1..=SNAPLEN_MAX).contains(&snaplen) {
        let why = format!("snaplen: {snaplen} is not allowed; allowed: {}", Wanted::ALLOWED);
        return Err(ApiError::field("snaplen", why).into());
    }
    let filter = CaptureFilter { channel: wanted.channel, drops: wanted.drops, snaplen };
    let writer = Writer::new(&dev.name.name, snaplen);
    let request = Request::Netdev(dev.name, NetdevRequest::Capture(filter));
    let Reply::Capture(sink) = host.request(request).await? else {
        return Err(wrong_reply().into());
    };
    let body = Body::new(Growing { host, is_complete: false, sink, writer, look: read_interval() });
    Ok(([(header::CONTENT_TYPE, "application/x-pcapng")], body).into_response())
}

fn read_interval() -> Interval {
    let mut look = interval(READ_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look
}

/// Response body of a capture. Polled only while the client reads; the capture ends when the client
/// disconnects, because the body is then dropped.
struct Growing {
    host: HostHandle,
    /// True once the host has ended and the file contains the remaining frames.
    is_complete: bool,
    sink: Box<dyn FrameSink>,
    writer: Writer,
    look: Interval,
}

impl http_body::Body for Growing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let mut frames = Vec::new();
        loop {
            let bytes = this.writer.take();
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
            }
            if this.is_complete {
                return Poll::Ready(None);
            }
            ready!(this.look.poll_tick(context));
            this.is_complete = this.host.is_closed();
            let missed = this.sink.take(&mut frames);
            this.writer.add(&frames, missed);
            frames.clear();
        }
    }
}
