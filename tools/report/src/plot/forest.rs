//! Ratios one below the other on one logarithmic axis, with their promised bounds.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{Area, BAD, Drawn, FAINT, GOOD, GRID, INK, SERIES, WIDTH, short, stroke, svg, text};
use crate::Result;
use crate::interval::Figure;
use crate::promises::digits;

const ROW: i32 = 42;
const HEAD: i32 = 6;
const FOOT: i32 = 26;
const SIDE: i32 = 12;
/// Half the height of a mark.
const MARK: i32 = 6;

/// One ratio.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) all: Figure,
    pub(crate) near: Option<f64>,
    pub(crate) far: Option<f64>,
    /// Promised bound, and true if it was met.
    pub(crate) bound: Option<(f64, bool)>,
}

/// Logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

/// Coarse numbers at the axis; finer ones are used if too few of them fit.
const COARSE: [f64; 13] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
const FINE: [f64; 13] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0];

impl Axis {
    /// Axis that covers all drawn values and 1.
    fn of(rows: &[Row]) -> Self {
        let bounds = rows.iter().filter_map(|row| row.bound).map(|(bound, _)| bound);
        let values = rows.iter().flat_map(|row| [row.all.min, row.all.max]).chain(bounds);
        let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        let low = values.iter().copied().fold(0.9, f64::min) / 1.05;
        let high = values.iter().copied().fold(1.1, f64::max) * 1.05;
        Self { low, high }
    }

    fn x(&self, value: f64) -> i32 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        SIDE + (share * f64::from(WIDTH as i32 - 2 * SIDE)).round() as i32
    }

    fn ticks(&self) -> Vec<f64> {
        let within = |ticks: &[f64]| -> Vec<f64> {
            let range = self.low..=self.high;
            ticks.iter().copied().filter(|tick| range.contains(tick)).collect()
        };
        let coarse = within(&COARSE);
        if coarse.len() >= 3 { coarse } else { within(&FINE) }
    }
}

/// Draws the rows.
pub(crate) fn draw(rows: &[Row], name: &str) -> Result<String> {
    let axis = Axis::of(rows);
    let bottom = HEAD + rows.len() as i32 * ROW;
    svg(bottom + FOOT, name, |area| {
        let mut last = -100;
        for tick in axis.ticks() {
            let x = axis.x(tick);
            let is_one = (tick - 1.0).abs() < 1e-9;
            stroke(area, [(x, HEAD), (x, bottom)], if is_one { FAINT } else { GRID }, 1)?;
            // A number without space is omitted, except 1.
            if x - last > 30 || is_one {
                text(area, (x, bottom + 12), HPos::Center, FAINT, &format!("{tick}"))?;
                last = x;
            }
        }
        for (at, row) in rows.iter().enumerate() {
            draw_row(area, &axis, HEAD + at as i32 * ROW, row)?;
        }
        Ok(())
    })
}

fn draw_row(area: &Area<'_>, axis: &Axis, top: i32, row: &Row) -> Drawn {
    let y = top + 28;
    let colour = match row.bound {
        Some((_, true)) => GOOD,
        Some((_, false)) => BAD,
        None => SERIES[0],
    };
    let value =
        format!("{} [{}, {}]", digits(row.all.median), digits(row.all.low), digits(row.all.high));
    text(area, (WIDTH as i32 - SIDE, top + 10), HPos::Right, INK, &value)?;
    // Characters have a width of 5 to 6 in most fonts.
    let width = (WIDTH as usize - 2 * SIDE as usize - 10).saturating_sub(6 * value.len()) * 10 / 56;
    text(area, (SIDE, top + 10), HPos::Left, INK, &short(&row.label, width))?;
    let (min, max) = (axis.x(row.all.min), axis.x(row.all.max));
    stroke(area, [(min, y), (max, y)], FAINT, 1)?;
    for end in [min, max] {
        stroke(area, [(end, y - 4), (end, y + 4)], FAINT, 1)?;
    }
    let (low, high) = (axis.x(row.all.low), axis.x(row.all.high));
    area.draw(&Rectangle::new([(low, y - 3), (high.max(low + 1), y + 3)], colour.filled()))?;
    area.draw(&Circle::new((axis.x(row.all.median), y), MARK - 1, INK.filled()))?;
    if let Some((bound, _)) = row.bound {
        let x = axis.x(bound);
        stroke(area, [(x, y - 2 * MARK + 2), (x, y + 2 * MARK - 2)], colour, 3)?;
    }
    if let Some(near) = row.near {
        let x = axis.x(near);
        let points = [(x, y - MARK), (x - MARK, y + MARK), (x + MARK, y + MARK), (x, y - MARK)];
        area.draw(&PathElement::new(points, INK.stroke_width(1)))?;
    }
    if let Some(far) = row.far {
        let corners = [(axis.x(far) - MARK, y - MARK), (axis.x(far) + MARK, y + MARK)];
        area.draw(&Rectangle::new(corners, INK.stroke_width(1)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the axis covers every mark and has at least three numbers, for wide and narrow ranges.
    #[test]
    fn the_axis_fits() {
        for (low, high) in [(0.01, 90.0), (0.97, 1.02), (0.5, 3.0), (1.5, 6.0)] {
            let all = Figure::of(&[low, high]).unwrap();
            let bound = Some((1.2, true));
            let row = Row { label: "a".to_owned(), all, near: None, far: Some(high), bound };
            let axis = Axis::of(&[row]);
            assert!(axis.ticks().len() >= 3, "{low} {high}: {:?}", axis.ticks());
            for value in [low, high, 1.0, 1.2] {
                assert!((SIDE..=WIDTH as i32 - SIDE).contains(&axis.x(value)), "{value}");
            }
        }
    }
}
