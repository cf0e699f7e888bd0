//! `mqnet top`: live display of every lane.

mod load;
mod rows;
mod view;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use mqnet_command::{Failure, put};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::api::Api;
use crate::show::links;
use crate::stats::{read, seconds};
use rows::Sample;
use view::{After, App};

/// Longest delay before a key, a signal or a new window size is handled.
const TICK: Duration = Duration::from_millis(100);
/// Longest time until the first rates are shown.
const FIRST: Duration = Duration::from_millis(300);
/// Minimum width of a terminal.
const WIDTH: u16 = 80;

#[derive(Args, Debug)]
pub struct TopArgs {
    /// A netdev or a link [default: every link].
    #[arg(value_name = "DEV|LINK")]
    pub(crate) name: Option<String>,
    /// Seconds between two readings.
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub(crate) interval: Duration,
    /// Print the display once as text and end; the default without a terminal.
    #[arg(long)]
    pub(crate) once: bool,
}

/// Runs the command.
pub(crate) fn run(args: &TopArgs, api: &dyn Api, out: &mut dyn Write) -> Result<(), Failure> {
    // A wrong name must fail before the screen is switched.
    let first = sample(args, api)?;
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        std::thread::sleep(args.interval.min(Duration::from_secs(1)));
        return once(first, sample(args, api)?, out);
    }
    live(args, api, first)
}

fn sample(args: &TopArgs, api: &dyn Api) -> Result<Sample, Failure> {
    let links = links(api, args.name.as_deref())?;
    // `links` and `read` query the processes in the same order, so links with the same name are
    // in the same order in both results.
    let stats = read(api, args.name.as_deref())?;
    Ok(Sample::new(stats, &links, load::cpu_ns))
}

/// Prints the display once as text, with all of its lines.
fn once(before: Sample, now: Sample, out: &mut dyn Write) -> Result<(), Failure> {
    let mut app = App::new();
    app.take(before);
    app.take(now);
    let height = u16::try_from(app.lines()).unwrap_or(u16::MAX);
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, height))?;
    terminal.draw(|frame| app.draw(frame))?;
    let mut text = String::new();
    let buffer = terminal.backend().buffer();
    for line in buffer.content.chunks(usize::from(WIDTH)) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text += line.trim_end();
        text.push('\n');
    }
    put(out, &text)
}

/// Restores the terminal when the display ends. (After a panic, ratatui's hook restores it.)
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn live(args: &TopArgs, api: &dyn Api, first: Sample) -> Result<(), Failure> {
    // Any thread may receive a signal: the handler only sets a flag. The display polls the flag,
    // ends, and restores the terminal.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let _restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let mut app = App::new();
    app.take(first);
    let mut due = Instant::now() + args.interval.min(FIRST);
    loop {
        terminal.draw(|frame| app.draw(frame))?;
        let wait = due.saturating_duration_since(Instant::now()).min(TICK);
        if event::poll(wait)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && app.key(key) == After::Quit
        {
            return Ok(());
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        if Instant::now() >= due {
            due = Instant::now() + args.interval;
            if !app.is_paused() {
                match sample(args, api) {
                    Ok(sample) => app.take(sample),
                    Err(Failure::Broken(why) | Failure::BadInput(why)) => app.set_note(why),
                    Err(exit) => return Err(exit),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
