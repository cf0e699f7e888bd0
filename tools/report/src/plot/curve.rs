//! Medians against a varied parameter, with whiskers from minimum to maximum.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, Drawn, FAINT, FONT, GRID, INK, SERIES, SMALL, short, stroke, svg, text};
use crate::Result;
use crate::interval::Figure;
use crate::promises::digits;

const HEIGHT: i32 = 300;
const HEAD: i32 = 26;
const LEFT: i32 = 64;
const FOOT: i32 = 40;
/// Ratio of the largest to the smallest value above which the axis is logarithmic.
const WIDE: f64 = 20.0;
/// Horizontal distance between points of different contenders at one tick.
const APART: f64 = 0.04;

/// Plot to draw.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) title: String,
    /// Varied parameter.
    pub(crate) axis: String,
    /// Values of the parameter, from left to right.
    pub(crate) ticks: Vec<String>,
    pub(crate) unit: String,
    pub(crate) series: Vec<Series>,
}

/// Points of one contender: number of the tick, and figure.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(usize, Figure)>,
}

impl Curve {
    fn values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.flat_map(|(_, figure)| [figure.min, figure.max])
    }

    /// Draws the plot with a linear or logarithmic y-axis.
    pub(crate) fn draw(&self) -> Result<String> {
        let top = self.values().fold(f64::MIN_POSITIVE, f64::max);
        let bottom = self.values().fold(f64::INFINITY, f64::min);
        let name = format!("{}: {} against {}", self.title, self.unit, self.axis);
        svg(HEIGHT, &name, |area| {
            if bottom > 0.0 && top / bottom > WIDE {
                self.draw_on(area, (bottom / 1.3..top * 1.3).log_scale())
            } else {
                self.draw_on(area, 0.0..top * 1.1)
            }
        })
    }

    fn draw_on<Y>(&self, area: &Area<'_>, y: Y) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let ticks = self.ticks.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_right(12)
            .x_label_area_size(FOOT)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(-0.5..ticks - 0.5, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .y_label_formatter(&|value| plain(*value))
            .label_style((FONT, SMALL).into_font().color(&FAINT))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .draw()?;
        let apart = APART.min(0.6 / self.series.len().max(1) as f64);
        for (at, series) in self.series.iter().enumerate() {
            let beside = (at as f64 - (self.series.len() as f64 - 1.0) / 2.0) * apart;
            let colour = SERIES[at % SERIES.len()];
            let x = |tick: usize| tick as f64 + beside;
            let medians = series.points.iter().map(|(tick, f)| (x(*tick), f.median));
            chart.draw_series(LineSeries::new(medians.clone(), colour.stroke_width(2)))?;
            chart.draw_series(series.points.iter().map(|(tick, f)| {
                let whisker = [(x(*tick), f.min), (x(*tick), f.max)];
                PathElement::new(whisker, colour.stroke_width(1))
            }))?;
            chart.draw_series(medians.map(|point| Circle::new(point, 4, colour.filled())))?;
        }
        let (left, bottom) = (LEFT, HEIGHT - FOOT);
        let width = f64::from(super::WIDTH as i32 - 12 - left);
        for (at, tick) in self.ticks.iter().enumerate() {
            let x = left + ((at as f64 + 0.5) / ticks * width).round() as i32;
            stroke(area, [(x, bottom), (x, bottom + 4)], FAINT, 1)?;
            text(area, (x, bottom + 13), HPos::Center, FAINT, tick)?;
        }
        let middle = left + (width / 2.0) as i32;
        text(area, (middle, HEIGHT - 9), HPos::Center, FAINT, &self.axis)?;
        text(area, (6, 12), HPos::Left, FAINT, &self.unit)?;
        text(area, (super::WIDTH as i32 - 12, 12), HPos::Right, INK, &short(&self.title, 58))
    }
}

/// Text of a number at an axis, without trailing zeros.
fn plain(value: f64) -> String {
    let text = digits(value);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: numbers at axes have no trailing zeros, and narrow and wide ranges, also with zero, are
    // drawn.
    #[test]
    fn any_range_is_drawn() {
        assert_eq!(
            [plain(0.0), plain(1.5), plain(20.0), plain(1234.0)],
            ["0", "1.5", "20", "1234"]
        );
        for values in [[0.0, 5.0], [1.0, 2.0], [0.001, 900.0], [0.0, 0.0]] {
            let points = values.map(|value| Figure::of(&[value]).unwrap());
            let series =
                Series { name: "a".into(), points: points.into_iter().enumerate().collect() };
            let ticks = ["64", "1514"].map(str::to_owned).to_vec();
            let (title, axis, unit) = ("t".to_owned(), "x".to_owned(), "Mpps".to_owned());
            let curve = Curve { title, axis, ticks, unit, series: vec![series] };
            assert!(curve.draw().unwrap().contains("1514"));
        }
    }
}
