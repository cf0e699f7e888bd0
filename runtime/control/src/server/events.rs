//! Handler of events: a long poll.

use std::time::Duration;

use axum::extract::State;
use mqnet_control_api::{ApiError, Event, Reply, Request};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Json, wrong_reply};
use super::request::{Parameters, QueryParameters};
use crate::calls::HostHandle;

/// Largest and default wait in seconds.
const WAIT_MAX: u8 = 25;
/// Interval for querying the host while a client waits.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);

/// Events, and the number from which to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Events {
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Number of the latest event, to be sent as the next `after`.
    pub last: u64,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// Number of the last event that the client has received; 0 for all stored events.
    #[serde(default)]
    #[param(required = false, default = 0)]
    after: u64,
    /// Seconds to wait for an event, 0..=25.
    #[serde(default)]
    #[param(minimum = 0, maximum = 25, default = 25)]
    wait: Option<u8>,
}

impl Parameters for After {
    const ALLOWED: &'static str = "after=NUMBER, wait=0..=25 (seconds)";
}

/// Returns the events with a larger number, as soon as one exists. A number above the latest event,
/// as issued by an earlier process, is answered immediately.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(After),
    responses((status = 200, description = "Events; none when the wait is over", body = Events)))]
pub(super) async fn events(
    State(host): State<HostHandle>,
    QueryParameters(asked): QueryParameters<After>,
) -> Answer<Events> {
    let wait = asked.wait.unwrap_or(WAIT_MAX);
    if wait > WAIT_MAX {
        let why = format!("wait: {wait} is not allowed; allowed: {}", After::ALLOWED);
        return Err(ApiError::field("wait", why).into());
    }
    let look = || async {
        match host.request(Request::Events(asked.after)).await? {
            Reply::Events(events, last) => Ok((events, last)),
            _ => Err(wrong_reply()),
        }
    };
    let first = async {
        loop {
            let (events, last) = look().await?;
            if !events.is_empty() || asked.after > last {
                return Ok::<_, ApiError>((events, last));
            }
            sleep(QUERY_INTERVAL).await;
        }
    };
    let (events, last) = match timeout(Duration::from_secs(wait.into()), first).await {
        Ok(found) => found?,
        Err(_) => look().await?,
    };
    Ok(Json(Events { events, last }))
}
