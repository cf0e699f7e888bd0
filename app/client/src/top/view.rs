//! Screen contents, and the actions of the keys.

use mqnet_command::si;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as Cells, Table};

use super::rows::{Column, Row, Sample, rows, sort};

/// Lines of the screen that are not rows: title, totals, headings, keys.
const FRAME_LINES: usize = 4;

const KEYS: &str = "q quit  s/arrows sort  r reverse  a direction  p pause  ? help";

const HELP: &str = "q, Esc, Ctrl-C    quit
s, right, left    sort by the next or previous column
r                 reverse the order
a                 both directions, a to b, b to a
p, space          pause
up, down, PgUp, PgDn, Home    scroll
?                 this help

frames/s, Gb/s    frames that the lane received
stops/s           times that a full sink stopped it
stop%             part of the time that it was stopped
flight            frames in, neither out nor dropped
cpu, load%        CPU of its worker, and the worker's load";

/// Directions of the displayed lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Both,
    AToB,
    BToA,
}

/// Action after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    Quit,
}

pub(super) struct App {
    last: Option<Sample>,
    rows: Vec<Row>,
    note: Option<String>,
    sort: Column,
    reverse: bool,
    direction: Direction,
    paused: bool,
    help: bool,
    scroll: usize,
}

impl App {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            rows: Vec::new(),
            note: None,
            sort: Column::Frames,
            reverse: false,
            direction: Direction::Both,
            paused: false,
            help: false,
            scroll: 0,
        }
    }

    /// Replaces the current reading. The rows then show the rates since the previous reading.
    pub(super) fn take(&mut self, now: Sample) {
        self.rows = rows(self.last.as_ref().unwrap_or(&now), &now);
        self.note = (!now.down.is_empty()).then(|| now.down.join("; "));
        self.last = Some(now);
    }

    /// Shows a note to the user until the next reading.
    pub(super) fn set_note(&mut self, note: String) {
        self.note = Some(note);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Number of lines of the whole display.
    pub(super) fn lines(&self) -> usize {
        self.shown().len() + FRAME_LINES
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> After {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return After::Quit,
            KeyCode::Char('q') => return After::Quit,
            KeyCode::Esc if !self.help => return After::Quit,
            KeyCode::Esc => self.help = false,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('s') | KeyCode::Right => self.sort = self.sort.step(1),
            KeyCode::Left => self.sort = self.sort.step(Column::ALL.len() - 1),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('a') => {
                self.direction = match self.direction {
                    Direction::Both => Direction::AToB,
                    Direction::AToB => Direction::BToA,
                    Direction::BToA => Direction::Both,
                };
            }
            KeyCode::Down => self.scroll += 1,
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
        // Scrolling ends at the last row.
        self.scroll = self.scroll.min(self.shown().len().saturating_sub(1));
        After::GoOn
    }

    fn shown(&self) -> Vec<Row> {
        let wanted = |row: &&Row| match self.direction {
            Direction::Both => true,
            Direction::AToB => row.forth,
            Direction::BToA => !row.forth,
        };
        let mut rows: Vec<Row> = self.rows.iter().filter(wanted).cloned().collect();
        sort(&mut rows, self.sort, self.reverse);
        rows
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
        ]);
        let [title, totals, table, keys] = areas.areas(frame.area());
        let rows = self.shown();
        frame.render_widget(self.title(&rows), title);
        frame.render_widget(Line::from(sum(&rows)), totals);
        let visible: Vec<Cells<'_>> = rows.iter().skip(self.scroll).map(cells).collect();
        frame.render_widget(self.table(visible), table);
        let last = match &self.note {
            Some(note) => Line::styled(note.clone(), Style::new().fg(Color::Red)),
            None => Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM)),
        };
        frame.render_widget(last, keys);
        if self.help {
            help(frame);
        }
    }

    fn title(&self, rows: &[Row]) -> Line<'static> {
        let direction = match self.direction {
            Direction::Both => "both directions",
            Direction::AToB => "a to b",
            Direction::BToA => "b to a",
        };
        let order = if self.reverse { ", reversed" } else { "" };
        let paused = if self.paused { "  PAUSED" } else { "" };
        let stopped = rows.iter().filter(|row| row.is_stopped).count();
        Line::styled(
            format!(
                "mqnet top  {} lanes, {stopped} stopped  {direction}  by {}{order}{paused}",
                rows.len(),
                self.sort.title()
            ),
            Style::new().add_modifier(Modifier::BOLD),
        )
    }

    fn table<'a>(&self, rows: Vec<Cells<'a>>) -> Table<'a> {
        let heading = |column: Column| {
            let text = Text::from(column.title()).alignment(alignment(column));
            let style = Style::new().add_modifier(Modifier::UNDERLINED);
            Cell::from(text).style(if column == self.sort { style } else { Style::new() })
        };
        let headings = Cells::new(Column::ALL.map(heading));
        let widths = [3, 20, 8, 6, 7, 7, 5, 6, 4, 5].map(|width| match width {
            20 => Constraint::Min(width),
            other => Constraint::Length(other),
        });
        Table::new(rows, widths)
            .column_spacing(1)
            .header(headings.style(Style::new().add_modifier(Modifier::REVERSED)))
    }
}

fn alignment(column: Column) -> Alignment {
    if column == Column::Lane { Alignment::Left } else { Alignment::Right }
}

fn number(value: f64) -> String {
    si(value).trim_end().to_owned()
}

fn cells(row: &Row) -> Cells<'static> {
    let text = |column: Column| match column {
        Column::Channel => row.channel.to_string(),
        Column::Lane => row.lane.clone(),
        Column::Frames => number(row.rates.frames),
        Column::Bits => format!("{:.2}", row.rates.gbits),
        Column::Stops => number(row.rates.stops),
        Column::Drops => number(row.rates.drops),
        Column::Stopped => format!("{:.0}", row.rates.stopped * 100.0),
        Column::InFlight => row.in_flight.to_string(),
        Column::Cpu => row.cpu.map_or("-".to_owned(), |cpu| cpu.to_string()),
        Column::Load => row.load.map_or("-".to_owned(), |load| format!("{:.0}", load * 100.0)),
    };
    let cell = |column| Cell::from(Text::from(text(column)).alignment(alignment(column)));
    let style = match row {
        row if row.rates.drops > 0.0 => Style::new().fg(Color::Yellow),
        row if row.is_stopped => Style::new().fg(Color::Red),
        _ => Style::new(),
    };
    Cells::new(Column::ALL.map(cell)).style(style)
}

/// Totals of all rows.
fn sum(rows: &[Row]) -> String {
    // The sum of no floats is -0.0, which would be printed with a sign.
    let of = |f: fn(&Row) -> f64| rows.iter().map(f).sum::<f64>() + 0.0;
    format!(
        "total {} frames/s, {:.2} Gb/s, {} stops/s, {} drops/s",
        number(of(|row| row.rates.frames)),
        of(|row| row.rates.gbits),
        number(of(|row| row.rates.stops)),
        number(of(|row| row.rates.drops)),
    )
}

fn help(frame: &mut Frame<'_>) {
    let whole = frame.area();
    let lines = HELP.lines().count() as u16 + 2;
    let area = Rect {
        x: whole.x + whole.width.saturating_sub(70) / 2,
        y: whole.y + 2.min(whole.height),
        width: whole.width.min(70),
        height: lines.min(whole.height.saturating_sub(2)),
    };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" keys ")), area);
}
