//! Plots as SVG in the page, with colours that the style sheet replaces in dark mode.

pub(super) mod bars;
pub(super) mod curve;
pub(super) mod forest;
pub(super) mod group;

use std::error::Error;
use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Result;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn Error>>;

const FONT: &str = "sans-serif";
const SMALL: i32 = 12;
/// Width of a plot, narrow enough for a phone. The page places plots side by side where possible.
const WIDTH: u32 = 480;

pub(super) const INK: RGBColor = RGBColor(38, 42, 48);
pub(super) const FAINT: RGBColor = RGBColor(128, 134, 142);
const GRID: RGBColor = RGBColor(224, 227, 231);
/// Colours of the contenders, mqnet first.
pub(super) const SERIES: [RGBColor; 7] = [
    RGBColor(26, 95, 190),
    RGBColor(214, 98, 10),
    RGBColor(18, 132, 78),
    RGBColor(136, 62, 168),
    RGBColor(0, 134, 150),
    RGBColor(184, 46, 92),
    RGBColor(122, 98, 18),
];
pub(super) const GOOD: RGBColor = RGBColor(22, 124, 62);
pub(super) const BAD: RGBColor = RGBColor(196, 38, 38);

/// Replacement of each colour in dark mode.
const IN_THE_DARK: [(RGBColor, &str); 12] = [
    (INK, "#e4e7eb"),
    (FAINT, "#949ba5"),
    (GRID, "#363b43"),
    (SERIES[0], "#6fa8ff"),
    (SERIES[1], "#ffa04d"),
    (SERIES[2], "#4fcf8b"),
    (SERIES[3], "#cd90ea"),
    (SERIES[4], "#46cfdd"),
    (SERIES[5], "#f57fa6"),
    (SERIES[6], "#d8bf68"),
    (GOOD, "#55d07f"),
    (BAD, "#ff7b72"),
];

/// Colour in the format of SVG.
pub(super) fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// CSS rules that replace the colours in dark mode: rules override attributes.
pub(super) fn dark_rules() -> String {
    let mut rules = String::new();
    for (colour, dark) in IN_THE_DARK {
        let light = hex(colour);
        let _ = write!(
            rules,
            "svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}\
             [data-colour=\"{light}\"]{{background:{dark}}}"
        );
    }
    rules
}

/// CSS rules for the colours in the keys of the plots.
pub(super) fn key_rules() -> String {
    SERIES.map(|colour| format!("[data-colour=\"{0}\"]{{background:{0}}}", hex(colour))).concat()
}

/// Draws a plot with a height of `height` pixels and the accessible name `name`; returns SVG.
fn svg(height: i32, name: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    let size = (WIDTH, height.unsigned_abs());
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    draw(&area)?;
    area.present()?;
    drop(area);
    let name = name.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    let fixed = format!("<svg width=\"{}\" height=\"{}\"", size.0, size.1);
    Ok(text.replacen(&fixed, &format!("<svg role=\"img\" aria-label=\"{name}\""), 1))
}

fn text(area: &Area<'_>, at: (i32, i32), anchor: HPos, colour: RGBColor, text: &str) -> Drawn {
    let style = (FONT, SMALL).into_font().color(&colour).pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

fn stroke(area: &Area<'_>, points: [(i32, i32); 2], colour: RGBColor, width: u32) -> Drawn {
    area.draw(&PathElement::new(points, colour.stroke_width(width)))?;
    Ok(())
}

/// Shortens a text of more than `chars` characters to `chars` characters with an ellipsis as the
/// last.
fn short(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    text.chars().take(chars - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: every colour of the plots has a replacement in dark mode.
    #[test]
    fn no_colour_is_forgotten() {
        let rules = dark_rules();
        let all = [INK, FAINT, GRID, GOOD, BAD].into_iter().chain(SERIES);
        assert!(all.into_iter().all(|colour| rules.contains(&format!("fill=\"{}\"", hex(colour)))));
    }

    // Goal: a plot has no fixed size, and its name contains no markup.
    #[test]
    fn pictures_scale() {
        let picture = svg(50, "a < \"b\"", |area| stroke(area, [(0, 0), (9, 9)], INK, 1)).unwrap();
        assert!(
            picture.starts_with("<svg role=\"img\" aria-label=\"a &lt; &quot;b&quot;\" viewBox")
        );
        assert!(picture.contains(&hex(INK)));
        assert_eq!(short("abcdef", 4), "abc…");
    }
}
