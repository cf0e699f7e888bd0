//! Plots of a section: its ratios, varied parameters, and costs.

use maud::{Markup, PreEscaped, html};

use super::super::measured::{Case, Line};
use super::super::plot::bars::{self, Group};
use super::super::plot::forest::{self, Row};
use super::super::plot::group;
use super::super::plot::{SERIES, hex};
use super::super::promises::{Outcome, Verdict};
use super::super::report::Section;
use crate::Result;

/// Maximum number of rows in one plot of ratios: more rows are hard to read against the axis.
const ROWS: usize = 14;
/// Units drawn as bars.
const COSTS: [(&str, &str); 7] = [
    ("instructions", "instructions for one frame or object"),
    ("cpu-per-gigabit", "seconds of CPU time for a gigabit"),
    ("percent", "percent of a CPU"),
    ("share", "percent of a frame's instructions, by layer (book/src/measurements/benchmarks.md)"),
    ("ms", "milliseconds"),
    ("s", "seconds"),
    ("MiB", "MiB of memory"),
];

/// All plots of a section, each with the command that measures its figures.
pub(super) fn all(section: &Section, promises: &[Verdict]) -> Result<Markup> {
    let command = &section.command;
    let rows = rows(section, promises);
    let mut figures = Vec::new();
    let parts = rows.len().div_ceil(ROWS).max(1);
    for part in rows.chunks(rows.len().div_ceil(parts).max(1)) {
        let picture = forest::draw(part, &format!("{}: ratios", section.name))?;
        figures.push(figure(
            "ratios: more than 1 means that the first has more",
            &picture,
            &[],
            command,
        ));
    }
    for curve in group::curves(&section.cases) {
        let names: Vec<&str> = curve.series.iter().map(|series| series.name.as_str()).collect();
        let title = format!("{} against {}", curve.unit, curve.axis);
        figures.push(figure(&title, &curve.draw()?, &names, command));
    }
    for (kind, title) in COSTS {
        let costs: Vec<&Case> =
            section.cases.iter().filter(|case| case.unit.kind == kind).collect();
        bars(section, &costs, title, &mut figures)?;
    }
    Ok(html! { @for figure in figures { (figure) } })
}

fn bars(section: &Section, costs: &[&Case], title: &str, figures: &mut Vec<Markup>) -> Result<()> {
    for same in by_contenders(costs) {
        let groups: Vec<Group> = same.iter().map(|case| bars_of(case)).collect();
        let names: Vec<&str> = same[0].lines.iter().map(|line| line.who.as_str()).collect();
        let picture = bars::draw(&groups, &format!("{}: {title}", section.name))?;
        figures.push(figure(title, &picture, &names, &section.command));
    }
    Ok(())
}

fn figure(title: &str, picture: &str, names: &[&str], command: &str) -> Markup {
    html! {
        figure {
            @if !names.is_empty() {
                div .key {
                    @for (at, name) in names.iter().enumerate() {
                        @let colour = hex(SERIES[at % SERIES.len()]);
                        span { i data-colour=(colour) {} (name) }
                    }
                }
            }
            (PreEscaped(picture))
            figcaption { (title) "; " code { (command) } }
        }
    }
}

/// One row per ratio, with the promised bound if there is one.
fn rows(section: &Section, promises: &[Verdict]) -> Vec<Row> {
    let row = |case: &Case, ratio: &Line| {
        let all = ratio.all?;
        // The promise about a ratio is the one with the same section and figure.
        let promise = promises.iter().find(|promise| {
            promise.section.as_ref() == Some(&section.name) && promise.figure == Some(all)
        });
        let bound = promise.and_then(|p| Some((p.bound?, p.outcome == Outcome::Met)));
        let median = |figure: Option<_>| figure.map(|f: super::super::interval::Figure| f.median);
        Some(Row {
            label: format!("{}: {}", case.name, ratio.who),
            all,
            near: median(ratio.near),
            far: median(ratio.far),
            bound,
        })
    };
    let ratios =
        |case: &'_ Case| case.ratios.iter().filter_map(|r| row(case, r)).collect::<Vec<_>>();
    section.cases.iter().flat_map(ratios).collect()
}

/// Groups cases with the same contenders, so that a colour has one meaning in each plot.
fn by_contenders<'a>(cases: &[&'a Case]) -> Vec<Vec<&'a Case>> {
    let who = |case: &Case| case.lines.iter().map(|line| line.who.clone()).collect::<Vec<_>>();
    let mut groups: Vec<Vec<&Case>> = Vec::new();
    for case in cases {
        match groups.iter_mut().find(|group| who(group[0]) == who(case)) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    groups
}

fn bars_of(case: &Case) -> Group {
    let bars = case.lines.iter().map(|line| line.all);
    Group { label: case.name.clone(), bars: bars.collect() }
}
