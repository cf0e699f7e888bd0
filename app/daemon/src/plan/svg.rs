//! A plan as an SVG picture: a box for each node, a square for each CPU, a colour for each
//! function.

use std::error::Error;
use std::path::Path;

use mqnet_topology::Cpu;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Made;
use super::picture::{Duty, functions_on, nodes, numbers};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(50, 50, 50);
const FAINT: RGBColor = RGBColor(150, 150, 150);
const FAR: RGBColor = RGBColor(200, 30, 30);
/// One colour a function.
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 90, 180),
    RGBColor(225, 110, 10),
    RGBColor(20, 140, 60),
    RGBColor(140, 60, 170),
    RGBColor(0, 140, 150),
    RGBColor(180, 50, 90),
    RGBColor(120, 100, 20),
    RGBColor(90, 90, 90),
];

/// A CPU's square.
const CELL: (i32, i32) = (92, 46);
const GAP: i32 = 8;
/// Squares in a row.
const COLUMNS: usize = 8;
/// Above the squares of a box.
const HEAD: i32 = 34;
const MARGIN: i32 = 16;
/// Under the boxes: what the colours mean.
const FOOT: i32 = 64;

fn rows(count: usize) -> i32 {
    count.div_ceil(COLUMNS).max(1) as i32
}

fn box_height(cpus: usize) -> i32 {
    HEAD + rows(cpus) * (CELL.1 + GAP) + GAP
}

fn of_node(made: &Made, node: u32) -> Vec<&Cpu> {
    made.senders.cpus.iter().filter(|cpu| cpu.node == node).collect()
}

/// The picture's size: wide enough for a row, tall enough for all nodes.
fn size(made: &Made) -> (u32, u32) {
    let width = 2 * MARGIN + COLUMNS as i32 * (CELL.0 + GAP) + GAP;
    let boxes = nodes(made).into_iter().map(|node| box_height(of_node(made, node).len()) + MARGIN);
    ((width) as u32, (boxes.sum::<i32>() + MARGIN + FOOT) as u32)
}

fn text(area: &Area<'_>, what: &str, size: i32, at: (i32, i32), colour: RGBColor) -> Result<()> {
    let style = (FONT, size).into_font().color(&colour);
    Ok(area.draw(&Text::new(what.to_owned(), at, style))?)
}

fn colour(made: &Made, channel: Option<&u16>) -> RGBColor {
    let of = |channel: &u16| made.placement.places.iter().find(|p| p.channel == *channel);
    channel.and_then(of).map_or(FAINT, |place| COLOURS[place.function % COLOURS.len()])
}

fn square(area: &Area<'_>, made: &Made, cpu: &Cpu, at: (i32, i32)) -> Result<()> {
    let duty = Duty::of(made, cpu);
    let end = (at.0 + CELL.0, at.1 + CELL.1);
    let colour = colour(made, duty.serves.first().or(duty.sends.first()));
    // Whoever serves stands out from those who only send.
    let fill = if duty.serves.is_empty() { colour.mix(0.12) } else { colour.mix(0.45) };
    area.draw(&Rectangle::new([at, end], fill.filled()))?;
    let (line, width) = if duty.far { (FAR, 3) } else { (colour, 1) };
    area.draw(&Rectangle::new([at, end], line.stroke_width(width)))?;
    text(area, &format!("cpu {}", cpu.id), 13, (at.0 + 6, at.1 + 6), INK)?;
    let mut words = Vec::new();
    if !duty.serves.is_empty() {
        words.push(format!("ch {}", numbers(&duty.serves)));
    }
    if !duty.sends.is_empty() {
        words.push(format!("> {}", numbers(&duty.sends)));
    }
    text(area, &words.join(" "), 13, (at.0 + 6, at.1 + 25), INK)
}

fn node_box(area: &Area<'_>, made: &Made, node: u32, top: i32) -> Result<()> {
    let cpus = of_node(made, node);
    let (width, _) = area.dim_in_pixel();
    let corner = (width as i32 - MARGIN, top + box_height(cpus.len()));
    area.draw(&Rectangle::new([(MARGIN, top), corner], INK.stroke_width(1)))?;
    let functions = functions_on(made, Some(node));
    let functions =
        if functions.is_empty() { String::new() } else { format!(": function {functions}") };
    text(area, &format!("node {node}{functions}"), 17, (MARGIN + GAP, top + 9), INK)?;
    if cpus.is_empty() {
        return text(area, "no CPUs", 13, (MARGIN + GAP, top + HEAD + GAP), FAINT);
    }
    for (number, cpu) in cpus.into_iter().enumerate() {
        let (column, row) = ((number % COLUMNS) as i32, (number / COLUMNS) as i32);
        let left = MARGIN + GAP + column * (CELL.0 + GAP);
        square(area, made, cpu, (left, top + HEAD + row * (CELL.1 + GAP)))?;
    }
    Ok(())
}

fn legend(area: &Area<'_>, made: &Made, top: i32) -> Result<()> {
    let (width, _) = area.dim_in_pixel();
    let step = (width as i32 - 2 * MARGIN) / made.members.len().clamp(1, COLOURS.len()) as i32;
    for (number, member) in made.members.iter().enumerate().take(COLOURS.len()) {
        let left = MARGIN + number as i32 * step;
        let colour = COLOURS[number];
        area.draw(&Rectangle::new([(left, top), (left + 12, top + 12)], colour.filled()))?;
        let name: String = member.name.chars().take((step as usize / 8).max(4)).collect();
        text(area, &name, 13, (left + 18, top), INK)?;
    }
    let words = "ch N: serves channel N; > N: sends through it; red: of a function on another node";
    text(area, words, 13, (MARGIN, top + 24), FAINT)
}

/// Draws a plan.
pub(super) fn draw(path: &Path, made: &Made) -> Result<()> {
    let area = SVGBackend::new(path, size(made)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut top = MARGIN;
    for node in nodes(made) {
        node_box(&area, made, node, top)?;
        top += box_height(of_node(made, node).len()) + MARGIN;
    }
    legend(&area, made, top)?;
    area.present()?;
    Ok(())
}
