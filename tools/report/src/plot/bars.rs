//! Costs as bars: one group per case, one bar per contender.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::{INK, SERIES, WIDTH, short, stroke, svg, text};
use crate::Result;
use crate::interval::Figure;
use crate::promises::digits;

const HEAD: i32 = 20;
const BAR: i32 = 18;
const SIDE: i32 = 12;
/// Width of the number after the longest bar.
const NUMBER: i32 = 60;

/// Contenders of one case, in the order of their colours.
pub(crate) struct Group {
    pub(crate) label: String,
    /// Bars; `None` for a skipped contender.
    pub(crate) bars: Vec<Option<Figure>>,
}

/// Draws the groups one below the other.
pub(crate) fn draw(groups: &[Group], name: &str) -> Result<String> {
    let height = |group: &Group| HEAD + group.bars.len() as i32 * BAR + 8;
    let longest = groups.iter().flat_map(|group| &group.bars).flatten().map(|figure| figure.max);
    let longest = longest.fold(f64::MIN_POSITIVE, f64::max);
    let width = f64::from(WIDTH as i32 - 2 * SIDE - NUMBER);
    svg(groups.iter().map(height).sum::<i32>() + 4, name, |area| {
        let mut top = 2;
        for group in groups {
            text(area, (SIDE, top + HEAD / 2), HPos::Left, INK, &short(&group.label, 70))?;
            for (at, value) in group.bars.iter().enumerate() {
                let y = top + HEAD + at as i32 * BAR;
                let Some(value) = value else {
                    text(area, (SIDE, y + BAR / 2), HPos::Left, INK, "skipped")?;
                    continue;
                };
                let x = |value: f64| SIDE + ((value / longest * width).round() as i32).max(1);
                let (least, end, most) = (x(value.min), x(value.median), x(value.max));
                let colour = SERIES[at % SERIES.len()];
                area.draw(&Rectangle::new([(SIDE, y + 2), (end, y + BAR - 2)], colour.filled()))?;
                if most > least {
                    let y = y + BAR / 2;
                    stroke(area, [(least, y), (most, y)], INK, 1)?;
                    for end in [least, most] {
                        stroke(area, [(end, y - 4), (end, y + 4)], INK, 1)?;
                    }
                }
                let at = (most.max(end) + 6, y + BAR / 2);
                text(area, at, HPos::Left, INK, &digits(value.median))?;
            }
            top += height(group);
        }
        Ok(())
    })
}
