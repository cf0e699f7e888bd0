//! Status output of a running link: a line or a JSON object per interval, and a final table.

mod sums;
mod table;

use std::io::Write;
use std::time::Duration;

use mqnet_command::si;
use mqnet_engine::{Link, Notice};
use mqnet_netdev::{LaneSums, Offloads};
use mqnet_sysio::clock;
use serde_json::json;

pub use sums::DirectionSums;
use sums::{channels_json, link_sums};

/// Output mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusStyle {
    /// A line that overwrites itself.
    Line,
    /// One JSON object per line.
    Json,
    /// Events of the link only.
    Quiet,
}

/// The display of a running link.
pub(crate) struct Status {
    style: StatusStyle,
    interval: Duration,
    started: Duration,
    last: Duration,
    before: [LaneSums; 2],
    up: Option<String>,
    line_open: bool,
    /// Length of the current line, in columns.
    line_len: usize,
}

impl Status {
    pub(crate) fn new(style: StatusStyle, interval: Duration) -> Self {
        let now = clock::monotonic();
        let before = [LaneSums::default(); 2];
        Self {
            style,
            interval,
            started: now,
            last: now,
            before,
            up: None,
            line_open: false,
            line_len: 0,
        }
    }

    /// Reports an event of the link.
    pub(crate) fn notice(&mut self, link: &mut Link, notice: &Notice) {
        let names: Vec<String> = link.functions().iter().map(|f| f.name().to_owned()).collect();
        let text = match notice {
            Notice::Up(plan) => {
                let cpus: Vec<String> = link
                    .workers()
                    .map(|w| w.cpu.map_or("any".to_owned(), |c| c.to_string()))
                    .collect();
                self.up = Some(format!("{}ch", plan.channels));
                let finished = [plan.rx_emulation, plan.tx_emulation].map(|way| way.offloads);
                let finished = match finished {
                    [Offloads::NONE, Offloads::NONE] => String::new(),
                    [forth, back] => format!(", emulated {forth} / {back}"),
                };
                format!(
                    "{} <-> {}: up, {} channels, mtu {}, frames up to {}, offloads {} / {}\
                     {finished}, cpus {}",
                    names[0],
                    names[1],
                    plan.channels,
                    plan.mtu,
                    plan.frame_max,
                    plan.rx_offloads,
                    plan.tx_offloads,
                    cpus.join(",")
                )
            }
            Notice::Changed { plan, took, untidy } => {
                self.up = Some(format!("{}ch", plan.channels));
                let mut text = format!(
                    "{} <-> {}: changed in {:.1} ms: {} channels, mtu {}, frames up to {}",
                    names[0],
                    names[1],
                    took.as_secs_f64() * 1e3,
                    plan.channels,
                    plan.mtu,
                    plan.frame_max
                );
                untidy.iter().for_each(|what| text += &format!("; {what}"));
                text
            }
            Notice::ChangeFailed(why) => {
                format!("{} <-> {}: not changed: {why}", names[0], names[1])
            }
            Notice::Down(why) => {
                self.up = None;
                format!("{} <-> {}: down: {why}", names[0], names[1])
            }
        };
        if self.style == StatusStyle::Json {
            let event = match notice {
                Notice::Up(_) => "up",
                Notice::Down(_) => "down",
                Notice::Changed { .. } => "changed",
                Notice::ChangeFailed(_) => "change-failed",
            };
            print(format_args!("{}\n", json!({ "event": event, "text": text })));
            return;
        }
        self.close_line();
        // Ignore errors: a closed terminal must not stop a link.
        let _ = writeln!(std::io::stderr(), "mqnet: {text}");
    }

    /// Time until the next line is due; zero if it is due.
    pub(crate) fn due_in(&self) -> Duration {
        (self.last + self.interval).saturating_sub(clock::monotonic())
    }

    /// Prints a line if the interval has passed.
    pub(crate) fn tick(&mut self, link: &mut Link) {
        let now = clock::monotonic();
        let passed = now - self.last;
        if passed < self.interval {
            return;
        }
        self.last = now;
        let sums = link_sums(link);
        let rates = [0, 1].map(|i| sums[i].since(&self.before[i]));
        self.before = sums;
        match self.style {
            StatusStyle::Line => self.line(&rates, passed),
            StatusStyle::Json => {
                let state = if self.up.is_some() { "up" } else { "down" };
                let lanes = sums.each_ref().map(DirectionSums::of);
                let line = json!({ "uptime-s": (now - self.started).as_secs_f64(), "link": state,
                                   "a-to-b": lanes[0], "b-to-a": lanes[1],
                                   "channels": channels_json(link) });
                print(format_args!("{line}\n"));
            }
            StatusStyle::Quiet => {}
        }
    }

    fn line(&mut self, rates: &[LaneSums; 2], passed: Duration) {
        let seconds = passed.as_secs_f64();
        let rate = |s: &LaneSums| {
            format!(
                "{:>7}f/s {:>6.2} Gb/s",
                si(s.rx_packets as f64 / seconds),
                s.rx_bytes as f64 * 8.0 / seconds / 1e9
            )
        };
        let drops: u64 = rates.iter().map(|s| s.dropped() + s.tx_lost).sum();
        let stops: u64 = rates.iter().map(|s| s.tx_stop).sum();
        let frames: u64 = rates.iter().map(|s| s.tx_packets).sum();
        let kicks: u64 = rates.iter().map(|s| s.kicks).sum();
        let per_frame = if frames == 0 { 0.0 } else { kicks as f64 / frames as f64 };
        let total = (self.last - self.started).as_secs();
        let parts = [
            format!(
                "{:>3}:{:02} {:>6}",
                total / 60,
                total % 60,
                self.up.as_deref().unwrap_or("down")
            ),
            format!(" -> {}", rate(&rates[0])),
            format!(" <- {}", rate(&rates[1])),
            format!(" drops {drops:>4}"),
            format!("  stops {stops:>4}"),
            format!("  kicks/frame {per_frame:.4}"),
        ];
        let size = ratatui::crossterm::terminal::window_size();
        let columns = size.map_or(0, |size| size.columns);
        let columns = if columns == 0 { COLUMNS } else { columns };
        let text = fitting(&parts, columns);
        // Padding overwrites the rest of a longer previous line.
        let width = self.line_len.min(room(columns));
        print(format_args!("\r{text:<width$}"));
        self.line_len = text.len();
        self.line_open = true;
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.line_open) {
            print(format_args!("\n"));
            self.line_len = 0;
        }
    }

    /// Prints the final table.
    pub(crate) fn finish(&mut self, link: &mut Link) {
        self.close_line();
        match self.style {
            StatusStyle::Json => print(format_args!("{}\n", table::json(link))),
            _ => print(format_args!("{}", table::text(link))),
        }
    }
}

/// Columns of a terminal that does not report a size.
const COLUMNS: u16 = 80;

/// Columns of a line that does not wrap: some terminals wrap after the last column.
fn room(columns: u16) -> usize {
    usize::from(columns).saturating_sub(1)
}

/// Joins the leading parts that fit into the terminal.
fn fitting(parts: &[String], columns: u16) -> String {
    let mut line = String::new();
    for part in parts {
        if line.len() + part.len() > room(columns) {
            break;
        }
        line += part;
    }
    line
}

/// Writes to standard output. Errors are ignored: the link must continue after a reader has closed
/// the pipe (`| head -1`).
fn print(text: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the line ends before the last column at every width, and its last parts are omitted
    // first.
    #[test]
    fn lines_fit_the_terminal() {
        let parts = [13, 26, 26, 11, 12, 20].map(|width| "x".repeat(width));
        for (columns, len) in
            [(200, 108), (109, 108), (108, 88), (80, 76), (60, 39), (5, 0), (0, 0)]
        {
            assert_eq!(fitting(&parts, columns).len(), len, "{columns}");
        }
    }
}
