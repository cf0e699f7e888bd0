//! Extrapolation of the scaling law of the section `scaling` to more CPUs than measured: plots for
//! the page and the document, and a table for the document.

use std::fmt::Write as _;

use serde::Deserialize;

use super::interval::Figure;
use super::measured::Case;
use super::plot;
use super::plot::curve::{Curve, Series};
use super::report::{Report, Section};
use crate::Result;

/// Section of the scaling law.
pub(super) const SECTION: &str = "scaling";
/// CPUs of the extrapolation.
const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Bits per second of the assumed link.
const LINK: f64 = 400e9;
/// Preamble, frame check sequence and gap of Ethernet, in bytes.
const ON_WIRE: f64 = 24.0;
/// Memory accesses per byte of a frame without caches: each of two copies reads and writes the
/// byte, and a line is read before it is written.
const TOUCHES: f64 = 6.0;
/// Largest number of CPUs considered.
const MOST: u32 = 1024;

/// Law for frames of one size, in the format of `mqnet-bench scaling -j`.
#[derive(Debug, Deserialize)]
pub(super) struct Law {
    bytes: u64,
    law: Terms,
    /// Serial share of each round: minimum, median, maximum.
    sigma: [f64; 3],
}

#[derive(Debug, Deserialize)]
struct Terms {
    lambda: f64,
    sigma: f64,
    kappa: f64,
}

impl Law {
    /// Laws of a section; empty if it has none.
    pub(super) fn of(section: &Section) -> Vec<Self> {
        Vec::deserialize(&section.raw["model"]).unwrap_or_default()
    }

    /// Frames per second of `cpus` CPUs with this serial share.
    fn with(&self, sigma: f64, cpus: u32) -> f64 {
        let (n, others) = (f64::from(cpus), f64::from(cpus) - 1.0);
        self.law.lambda * n / (1.0 + sigma * others + self.law.kappa * n * others)
    }

    fn at(&self, cpus: u32) -> f64 {
        self.with(self.law.sigma, cpus)
    }

    fn linear(&self, cpus: u32) -> f64 {
        self.law.lambda * f64::from(cpus)
    }

    /// Value of this scaling law, with its range from the largest serial share of a round to the
    /// smallest.
    fn spread(&self, cpus: u32) -> Option<Figure> {
        let [least, _, most] = self.sigma;
        let figure = Figure::of(&[self.with(most, cpus), self.at(cpus), self.with(least, cpus)]);
        figure.map(|figure| Figure { median: self.at(cpus), ..figure })
    }

    /// Frames per second of a full link.
    fn link(&self) -> f64 {
        LINK / 8.0 / (self.bytes as f64 + ON_WIRE)
    }

    /// Fewest CPUs that fill the link with this serial share.
    fn needed(&self, sigma: f64) -> Option<u32> {
        (1..=MOST).find(|&cpus| self.with(sigma, cpus) >= self.link())
    }

    /// Measured numbers of CPUs of the table.
    fn measured(&self, cases: &[Case]) -> Vec<(usize, Figure)> {
        let name = format!("workers with a channel each, {} B", self.bytes);
        let Some(case) = cases.iter().find(|case| case.name == name) else { return Vec::new() };
        let of = |cpus: &u32| {
            let line = case.lines.iter().find(|line| line.who == format!("{cpus} workers"))?;
            line.all.map(|figure| figure.map(|value| value / 1e6))
        };
        CPUS.iter().enumerate().filter_map(|(at, cpus)| Some((at, of(cpus)?))).collect()
    }

    /// Names of the lines of a plot, in their order.
    pub(super) const LINES: [&str; 3] = ["by the law", "straight on", "measured"];

    /// Curve of the scaling law against the number of CPUs.
    pub(super) fn curve(&self, section: &Section) -> Curve {
        let millions = |value: f64| value / 1e6;
        let points = |of: &dyn Fn(u32) -> Option<Figure>| -> Vec<(usize, Figure)> {
            let all = CPUS.iter().enumerate();
            all.filter_map(|(at, &cpus)| Some((at, of(cpus)?.map(millions)))).collect()
        };
        let lines = [
            points(&|cpus| self.spread(cpus)),
            points(&|cpus| Figure::of(&[self.linear(cpus)])),
            self.measured(&section.cases),
        ];
        let series = Self::LINES.into_iter().zip(lines);
        let series = series.map(|(name, points)| Series { name: name.to_owned(), points });
        Curve {
            title: format!("on paper, {} B", self.bytes),
            axis: "CPUs, each with both ends of its channels".to_owned(),
            ticks: CPUS.iter().map(u32::to_string).collect(),
            unit: "Mpps".to_owned(),
            series: series.collect(),
        }
    }
}

/// Plots of the document: name and content of each file.
pub(super) fn pictures(report: &Report) -> Result<Vec<(String, String)>> {
    let Some(section) = report.section(SECTION) else { return Ok(Vec::new()) };
    let picture = |law: &Law| {
        let name = format!("scaling-{}.svg", law.bytes);
        Ok((name, plot::standalone(&law.curve(section).draw()?)))
    };
    Law::of(section).iter().map(picture).collect()
}

/// Laws of a report as text of a document; `None` if they were not measured.
pub(super) fn text(report: &Report) -> Result<Option<String>> {
    let Some(section) = report.section(SECTION) else { return Ok(None) };
    let laws = Law::of(section);
    if laws.is_empty() {
        return Ok(None);
    }
    let mut out = format!(
        "\nOf {} at commit {}, {} CPUs ({}). A star: measured here, all else on paper.\n\n",
        report.date, report.commit, report.machine.cpus, report.machine.cpu
    );
    for law in &laws {
        let [least, middle, most] = law.sigma;
        writeln!(
            out,
            "{} B: one worker {:.1} Mpps; serial share {:.3} (of the rounds: least {least:.3}, \
             median {middle:.3}, most {most:.3}).",
            law.bytes,
            law.law.lambda / 1e6,
            law.law.sigma
        )?;
    }
    writeln!(out)?;
    rates(&mut out, &laws, section)?;
    writeln!(out, "\nA link of 400 Gb/s, full in one direction:\n")?;
    let shares = "by the law | with the least, with the most serial share";
    writeln!(out, "| frame | Mpps | CPUs, straight on | {shares} | memory, at most |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for law in &laws {
        let rate = law.link();
        let (millions, linear) = (rate / 1e6, (rate / law.law.lambda).ceil());
        let [least, _, most] = law.sigma;
        let needed = [law.law.sigma, least, most]
            .map(|sigma| law.needed(sigma).map_or("no number".to_owned(), |cpus| cpus.to_string()));
        let [needed, least, most] = needed;
        let traffic = rate * law.bytes as f64 * TOUCHES / 1e9;
        let needed = format!("{linear:.0} | {needed} | {least}, {most}");
        writeln!(out, "| {} B | {millions:.1} | {needed} | {traffic:.0} GB/s |", law.bytes)?;
    }
    Ok(Some(out))
}

/// Rates against the number of CPUs.
fn rates(out: &mut String, laws: &[Law], section: &Section) -> Result<()> {
    let heads = laws.iter().map(|law| {
        let bytes = law.bytes;
        format!(" {bytes} B, Mpps straight on | {bytes} B, by the law | of straight on |")
    });
    writeln!(out, "| CPUs |{}", heads.collect::<String>())?;
    writeln!(out, "|---|{}", "---|---|---|".repeat(laws.len()))?;
    let measured = laws[0].measured(&section.cases);
    for (at, &cpus) in CPUS.iter().enumerate() {
        let star = if measured.iter().any(|(seen, _)| *seen == at) { "\\*" } else { "" };
        write!(out, "| {cpus}{star} |")?;
        for law in laws {
            let (linear, by_law) = (law.linear(cpus), law.at(cpus));
            let share = 100.0 * by_law / linear;
            write!(out, " {:.1} | {:.1} | {share:.0} % |", linear / 1e6, by_law / 1e6)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn law(sigma: f64) -> Law {
        let terms = Terms { lambda: 10e6, sigma, kappa: 0.0 };
        Law { bytes: 1514, law: terms, sigma: [0.0, sigma, 2.0 * sigma] }
    }

    // Goal: the number of CPUs for a full link is the smallest sufficient one, a law with a lower
    // ceiling has none, and the range of the serial share is that of the curve.
    #[test]
    fn laws_are_followed() {
        assert_eq!((law(0.1).needed(0.0), law(0.1).needed(0.5)), (Some(4), None));
        let spread = law(0.1).spread(11).unwrap();
        let said = [spread.min, spread.median, spread.max].map(|rate| (rate / 1e6).round());
        assert_eq!(said, [37.0, 55.0, 110.0]);
    }

    // Goal: the printed law becomes a plot with all CPUs and the measured ones, and a table that
    // marks the latter.
    #[test]
    fn the_law_of_a_report_is_drawn() {
        let report = fixture::report(&[SECTION]);
        let section = report.section(SECTION).unwrap();
        let laws = Law::of(section);
        assert_eq!(laws.len(), 2);
        for law in &laws {
            let curve = law.curve(section);
            let points: Vec<usize> = curve.series.iter().map(|line| line.points.len()).collect();
            assert_eq!(points, [7, 7, 2], "{curve:?}");
            assert!(curve.draw().unwrap().contains("on paper"));
        }
        let pictures = pictures(&report).unwrap();
        assert!(
            pictures.iter().all(|(name, text)| name.ends_with("svg") && text.contains("xmlns"))
        );
        let text = text(&report).unwrap().unwrap();
        assert_eq!(text.matches("\\*").count(), 2, "{text}");
        assert!(text.contains("| 64 B |") && text.contains("| 1514 B | 32.5 |"), "{text}");
        assert_eq!(super::text(&fixture::report(&["link"])).unwrap(), None);
    }
}
