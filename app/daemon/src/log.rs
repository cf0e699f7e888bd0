//! Rate limit of log lines per kind, so that a peer cannot fill a disk.
//!
//! Lines of one kind come from one place in the code and have the same object. The object is the
//! text up to the first `": "`, usually a link. A kind has a burst of [`BURST`] lines and a rate.
//! The first line after a gap is preceded by the number of suppressed lines.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mqnet_sysio::clock;
use mqnet_sysio::rate::Bucket;
use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Burst of one kind, in lines.
const BURST: u32 = 20;
/// Default rate: lines of one kind per second.
pub(crate) const PER_SECOND_DEFAULT: u32 = 2;
/// Number of kinds with separate budgets; further kinds share one budget.
const KINDS_MAX: usize = 512;

/// Lines of one kind per second, set by [`set_rate`].
static PER_SECOND: AtomicU32 = AtomicU32::new(PER_SECOND_DEFAULT);

/// Sets the number of lines of one kind per second.
pub(crate) fn set_rate(per_second: u32) {
    PER_SECOND.store(per_second.max(1), Ordering::Relaxed);
}

/// Starts the log of the process on standard error, with more lines for a higher `verbose`.
pub fn start(verbose: u8) {
    let filter = match verbose {
        // Links that go down are logged as warnings: log links that come up by default too.
        0 => "warn,mqnet_daemon::daemon=info",
        1 => "info",
        _ => "debug",
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .event_format(Limited::new(tracing_subscriber::fmt::format().without_time()))
        .init();
}

/// Budget of one kind.
#[derive(Debug)]
struct Budget {
    bucket: Bucket,
    suppressed: u64,
}

impl Budget {
    /// Returns the number of lines suppressed since the last accepted one, or `None` if this line
    /// is suppressed.
    fn take(&mut self, now: Duration) -> Option<u64> {
        let per_second = PER_SECOND.load(Ordering::Relaxed);
        if self.bucket.take([BURST.max(per_second), per_second], now) {
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        None
    }
}

/// Formatter that suppresses lines beyond the budget of their kind.
#[derive(Debug)]
struct Limited<F> {
    inner: F,
    budgets: Mutex<HashMap<Option<(Identifier, String)>, Budget>>,
}

impl<F> Limited<F> {
    fn new(inner: F) -> Self {
        Self { inner, budgets: Mutex::default() }
    }

    fn take(&self, kind: (Identifier, String), now: Duration) -> Option<u64> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kind = Some(kind);
        if budgets.len() >= KINDS_MAX && !budgets.contains_key(&kind) {
            // Budgets unused for 60 seconds are full, like new ones, and are removed.
            budgets.retain(|_, budget| now.saturating_sub(budget.bucket.counted()).as_secs() < 60);
            if budgets.len() >= KINDS_MAX {
                kind = None;
            }
        }
        let full = || Budget { bucket: Bucket::full(BURST, now), suppressed: 0 };
        budgets.entry(kind).or_insert_with(full).take(now)
    }
}

/// Text up to the first `": "`, at most 100 characters.
fn object(text: &str) -> String {
    text.split(": ").next().unwrap_or_default().chars().take(100).collect()
}

#[derive(Default)]
struct Message(String);

impl tracing::field::Visit for Message {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let kind = (event.metadata().callsite(), object(&message.0));
        match self.take(kind, clock::monotonic()) {
            None => Ok(()),
            Some(suppressed) => {
                if suppressed > 0 {
                    writeln!(writer, "({suppressed} lines like the next one were suppressed)")?;
                }
                self.inner.format_event(context, writer, event)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a kind has its burst, then its rate, and the count of suppressed lines is written
    /// once.
    #[test]
    fn budgets_are_bursts_and_rates() {
        let mut budget = Budget { bucket: Bucket::full(BURST, Duration::ZERO), suppressed: 0 };
        let taken = |budget: &mut Budget, ms| budget.take(Duration::from_millis(ms));
        for _ in 0..BURST {
            assert_eq!(taken(&mut budget, 0), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(taken(&mut budget, 1), None);
        }
        assert_eq!(taken(&mut budget, 600), Some(1000));
        assert_eq!(taken(&mut budget, 600), None);
        assert_eq!(taken(&mut budget, 1200), Some(1));
        assert_eq!(taken(&mut budget, 100_000), Some(0));
    }

    /// Goal: the object of a line is the text before the first `": "`.
    #[test]
    fn lines_have_objects() {
        for (text, wanted) in [("left: down: why", "left"), ("no object", "no object"), ("", "")] {
            assert_eq!(object(text), wanted);
        }
    }
}
