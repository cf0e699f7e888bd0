//! Plot of the time series.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Mode, Report, Run, Sample};
use crate::Result;

const SIZE: (u32, u32) = (1000, 900);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(60, 60, 60);
const DROP: RGBColor = RGBColor(225, 110, 10);
const STOP: RGBColor = RGBColor(31, 90, 180);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn Error>>;

/// One part of the plot: title, unit and value.
struct Part {
    title: &'static str,
    unit: &'static str,
    value: fn(&Sample) -> f64,
}

const PARTS: [Part; 3] = [
    Part { title: "goodput, all rounds", unit: "Mbit/s", value: |s| s.goodput },
    Part {
        title: "retransmissions in half a second",
        unit: "segments",
        value: |s| s.retransmits as f64,
    },
    Part { title: "round-trip time", unit: "ms", value: |s| s.rtt },
];

/// Draws goodput, retransmissions and round-trip times, one line per run.
pub(super) fn draw(report: &Report) -> Result<String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, part) in root.split_evenly((PARTS.len(), 1)).iter().zip(&PARTS) {
        draw_part(area, part, report)?;
    }
    root.present()?;
    drop(root);
    Ok(text)
}

fn draw_part(area: &Area<'_>, part: &Part, report: &Report) -> Drawn {
    let samples = || report.runs.iter().flat_map(|run| &run.samples);
    let top = samples().map(part.value).fold(0.0, f64::max).max(1.0) * 1.1;
    let end = samples().map(|sample| sample.at).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(part.title, (FONT, 18).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc(part.unit)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style((FONT, 13).into_font().color(&INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(228, 228, 228))
        .draw()?;
    for mode in Mode::ALL {
        let (colour, name) = match mode {
            Mode::Drop => (DROP, "full ring drops"),
            Mode::Stop => (STOP, "full ring stops (IFF_BACKPRESSURE)"),
        };
        for (index, run) in report.runs.iter().filter(|run| run.mode == mode).enumerate() {
            let line = LineSeries::new(points(run, part), colour.stroke_width(2));
            let drawn = chart.draw_series(line)?;
            if index == 0 {
                drawn.label(name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(3))
                });
            }
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 13).into_font().color(&INK))
        .draw()?;
    Ok(())
}

fn points(run: &Run, part: &Part) -> Vec<(f64, f64)> {
    run.samples.iter().map(|sample| (sample.at, (part.value)(sample))).collect()
}
