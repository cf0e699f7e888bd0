//! Plot of the throughput per channel over time.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::protocol::millis;
use super::script::Played;
use super::world::{Counters, HostState, Lanes};

const SIZE: (u32, u32) = (1000, 720);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(60, 60, 60);
const KILL: RGBColor = RGBColor(200, 30, 30);
const HEAL: RGBColor = RGBColor(20, 140, 60);
/// Colour of each channel.
const COLOURS: [RGBColor; 2] = [RGBColor(31, 90, 180), RGBColor(225, 110, 10)];

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// One line of the plot: seconds and Gb/s.
struct Line {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Draws the plot with one part per direction.
pub(super) fn draw(path: &Path, played: &Played, world: &[HostState; 2]) -> Result<()> {
    let parts = [
        ("left to right", lines(played, world, |c| c.a_to_b.rx_bytes)),
        ("right to left", lines(played, world, |c| c.b_to_a.rx_bytes)),
    ];
    let points = parts.iter().flat_map(|p| &p.1).flat_map(|l| &l.points);
    // 30 % above the highest value for the names of the phases.
    let top = (points.map(|p| p.1).fold(0.0, f64::max) * 1.3).max(0.1);
    let end = millis(played.started, played.ended) / 1e3;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (name, lines)) in root.split_evenly((2, 1)).iter().zip(&parts) {
        draw_on(area, name, lines, played, (end, top))?;
    }
    root.present()?;
    Ok(())
}

/// Lines of the left link, which runs from start to end.
fn lines(played: &Played, world: &[HostState; 2], bytes: fn(&Lanes) -> u64) -> Vec<Line> {
    let samples = world[0].lives.first().map(|l| &l.samples[..]).unwrap_or_default();
    let line = |(channel, &colour): (usize, &RGBColor)| {
        let points = rates(played.started, samples, |c| c.channels.get(channel).map(bytes));
        Line { name: format!("channel {channel}"), colour, points }
    };
    COLOURS.iter().enumerate().map(line).collect()
}

/// Points between two samples each: the middle of the interval in seconds, and Gb/s.
fn rates(
    start: u64,
    samples: &[(u64, Counters)],
    bytes: impl Fn(&Counters) -> Option<u64>,
) -> Vec<(f64, f64)> {
    let rate = |pair: &[(u64, Counters)]| {
        let [(from, before), (to, after)] = pair else { return None };
        let bits = bytes(after)?.saturating_sub(bytes(before)?) * 8;
        let middle = from + (to - from) / 2;
        let nanos = to.saturating_sub(*from).max(1) as f64;
        Some((millis(start, middle) / 1e3, bits as f64 / nanos))
    };
    samples.windows(2).filter_map(rate).collect()
}

fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    direction: &str,
    lines: &[Line],
    played: &Played,
    (end, top): (f64, f64),
) -> Result<()> {
    let mut chart: Chart<'_> = ChartBuilder::on(area)
        .caption(
            format!("mqnet demo: throughput per channel, {direction}"),
            (FONT, 19).into_font().color(&INK),
        )
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("Gb/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.1}"))
        .label_style((FONT, 14).into_font().color(&INK))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(228, 228, 228))
        .axis_style(RGBColor(150, 150, 150))
        .draw()?;
    for line in lines {
        let colour = line.colour;
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(3)));
    }
    draw_phases(&mut chart, played, top)?;
    draw_moments(&mut chart, played, top)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleMiddle)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 14).into_font().color(&INK))
        .draw()?;
    Ok(())
}

/// Draws the name of each phase above its time range.
fn draw_phases(chart: &mut Chart<'_>, played: &Played, top: f64) -> Result<()> {
    let at = |moment| millis(played.started, moment) / 1e3;
    let style = (FONT, 15).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    let tcp = format!("TCP, {} streams", played.streams);
    let kill = "TCP through a SIGKILL".to_owned();
    for (name, (from, to)) in
        [(tcp, played.tcp), ("UDP".to_owned(), played.udp), (kill, played.kill)]
    {
        let (from, to) = (at(from), at(to));
        let middle = ((from + to) / 2.0, top * 0.985);
        chart.draw_series([Text::new(name, middle, style.clone())])?;
        let bar = [(from, top * 0.9), (to, top * 0.9)];
        chart.draw_series([PathElement::new(bar, INK.stroke_width(1))])?;
    }
    Ok(())
}

/// Marks the kill and the recovery.
fn draw_moments(chart: &mut Chart<'_>, played: &Played, top: f64) -> Result<()> {
    let at = |moment| millis(played.started, moment) / 1e3;
    let outage = millis(played.killed, played.up);
    let room = millis(played.started, played.ended) / 1e3 * 0.005;
    for (name, moment, colour, side) in [
        ("SIGKILL".to_owned(), played.killed, KILL, HPos::Right),
        (format!("up again after {outage:.0} ms"), played.up, HEAL, HPos::Left),
    ] {
        let (x, high) = (at(moment), top * 0.88);
        chart.draw_series([PathElement::new([(x, 0.0), (x, high)], colour.stroke_width(1))])?;
        let style = (FONT, 14).into_font().color(&colour).pos(Pos::new(side, VPos::Top));
        let beside = if matches!(side, HPos::Right) { -room } else { room };
        chart.draw_series([Text::new(name, (x + beside, high), style)])?;
    }
    Ok(())
}
