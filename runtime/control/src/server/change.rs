//! Handlers of changes: the answer is sent when the change is complete or the time limit has
//! passed.

use std::time::Duration;

use mqnet_control_api::{ApiError, Code, NetdevRequest, Outcome, Reply, Request};

use super::answer::{Answer, Json, wrong_reply};
use super::request::Name;
use crate::calls::HostHandle;

/// Time limit for a change. The client then gets the error "still under way".
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for waiting for other changes of the link.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval for retrying while the link executes another change.
const CHANGE_PAUSE: Duration = Duration::from_millis(20);

/// Requests a change of a netdev, after earlier changes of its link, and waits for the outcome.
/// Retries while the link executes another change, such as one that its peer began.
pub(super) async fn change_netdev(
    host: &HostHandle,
    name: Name,
    request: NetdevRequest,
) -> Answer<Outcome> {
    let Name { name, queues } = name;
    let Reply::Found(found) = host.request(Request::Find(name.clone())).await? else {
        return Err(wrong_reply().into());
    };
    let link = found.link;
    let begun = async {
        let turn = queues.turn(&link).await;
        loop {
            // The name is resolved for each attempt, because the netdev may have been deleted.
            let request = Request::Netdev(name.clone(), request.clone());
            match host.request(request).await {
                Err(e) if e.code == Code::Changing => tokio::time::sleep(CHANGE_PAUSE).await,
                asked => return asked.map(|ticket| (turn, ticket)),
            }
        }
    };
    match tokio::time::timeout(QUEUE_TIMEOUT, begun).await {
        // `_turn` delays later changes of the link until this change is complete.
        Ok(begun) => {
            let (_turn, reply) = begun?;
            outcome(reply).await
        }
        Err(_) => {
            let limit = QUEUE_TIMEOUT.as_secs();
            let why = format!("link {link}: other changes are under way for {limit} s: try again");
            Err(ApiError::new(Code::Busy, why).into())
        }
    }
}

/// Requests a change and waits for its outcome.
pub(super) async fn change(host: &HostHandle, request: Request) -> Answer<Outcome> {
    outcome(host.request(request).await?).await
}

async fn outcome(reply: Reply) -> Answer<Outcome> {
    let Reply::Change(ticket) = reply else { return Err(wrong_reply().into()) };
    match tokio::time::timeout(CHANGE_TIMEOUT, ticket).await {
        Ok(outcome) => Ok(Json(outcome?)),
        Err(_) => {
            let limit = CHANGE_TIMEOUT.as_secs();
            let why = format!("the change is still under way after {limit} s; see GET /v1/events");
            Err(ApiError::new(Code::TimedOut, why).into())
        }
    }
}
