//! `mqnet monitor`: prints events as they occur.

use std::io::Write;
use std::time::{Duration, SystemTime};

use clap::Args;
use mqnet_command::{Failure, json_text, put};
use mqnet_control_api::Event;
use serde::Deserialize;

use crate::api::{self, Api};

#[derive(Args, Debug)]
pub struct MonitorArgs {
    /// Print one JSON object per line.
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Response of the long poll: new events, and the number after which the next request continues.
#[derive(Debug, Deserialize)]
struct Batch {
    events: Vec<Event>,
    last: u64,
}

/// Prints events until the mqnet process ends or the output is closed.
pub(crate) fn run(args: &MonitorArgs, api: &dyn Api, out: &mut dyn Write) -> Result<(), Failure> {
    run_with(args, api, out, &std::thread::sleep)
}

fn run_with(
    args: &MonitorArgs,
    api: &dyn Api,
    out: &mut dyn Write,
    pause: &dyn Fn(Duration),
) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        let batch: Batch = api::get(api, &format!("/v1/events?after={after}"))?;
        for event in &batch.events {
            put(out, &if args.json { json_text(event, false)? } else { line(event) })?;
        }
        if batch.events.is_empty() && batch.last <= after {
            // The pause prevents a busy loop if the server returns without waiting.
            pause(Duration::from_millis(100));
        }
        after = batch.last;
    }
}

fn line(event: &Event) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(event.time_ms.min(LAST_MS));
    let time = humantime::format_rfc3339_millis(time);
    // Line breaks within a text must not split the line.
    let text = event.text.replace(['\n', '\r'], " ");
    format!("{time} {} {}: {text}\n", event.event, event.link)
}

/// Last millisecond of the year 9999, the last year that the time format can represent.
const LAST_MS: u64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stats::fixture::FakeApi;

    fn event(time_ms: u64, text: &str) -> serde_json::Value {
        json!({ "time-ms": time_ms, "event": "link-up", "link": "vm0", "text": text })
    }

    fn api() -> FakeApi {
        let first = [event(1_000_000_000_123, "2 channels"), event(u64::MAX, "odd\ntext")];
        FakeApi::default()
            .on("/v1/events?after=0", json!({ "events": first, "last": 7 }))
            .on("/v1/events?after=7", json!({ "events": [event(0, "again")], "last": 8 }))
    }

    fn watched(json: bool) -> (String, Vec<String>) {
        let (api, mut out) = (api(), Vec::new());
        // The fake server has no third response: the request fails as if the process had ended.
        let end = run_with(&MonitorArgs { json }, &api, &mut out, &|_| {});
        assert!(matches!(end, Err(Failure::Broken(_))));
        (String::from_utf8(out).unwrap(), api.asked.into_inner())
    }

    // Goal: every event is one line with its time, and each poll requests newer events only.
    #[test]
    fn events_as_lines() {
        let (text, asked) = watched(false);
        assert_eq!(
            text,
            "2001-09-09T01:46:40.123Z link-up vm0: 2 channels\n\
             9999-12-31T23:59:59.999Z link-up vm0: odd text\n\
             1970-01-01T00:00:00.000Z link-up vm0: again\n"
        );
        assert_eq!(asked, [0, 7, 8].map(|n| format!("/v1/events?after={n}")));
    }

    // Goal: with `json`, every event is one JSON object on one line.
    #[test]
    fn events_as_json() {
        let (text, _) = watched(true);
        let events: Vec<Event> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events[2].text, "again");
    }

    // Goal: the client pauses after each response without new events, in case the server does not
    // wait.
    #[test]
    fn no_spinning() {
        let empty = json!({ "events": [], "last": 0 });
        let api = FakeApi::default().on("/v1/events?after=0", empty);
        let pauses = std::cell::Cell::new(0);
        let ends = |_| {
            pauses.set(pauses.get() + 1);
            if pauses.get() == 3 {
                std::panic::resume_unwind(Box::new("enough"));
            }
        };
        let args = MonitorArgs { json: false };
        let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = run_with(&args, &api, &mut Vec::new(), &ends);
        }));
        assert!(end.is_err() && api.asked.borrow().len() == 3);
    }
}
