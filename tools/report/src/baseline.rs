//! Comparison of a report with a stored baseline.
//!
//! Ratios and instruction counts are compared; rates are not, because they change with the machine.
//! A figure has changed if each median is outside the interval of the other run. If both runs have
//! enough samples of CPUs with a shared cache (near), or without one (far), figures are compared
//! within that class.

use super::elsewhere;
use super::interval::Figure;
use super::measured::{Case, Line};
use super::promises::{Outcome, Verdict, digits};
use super::report::{Report, Section};

/// Minimum relative change of a figure.
const MARGIN: f64 = 0.01;

/// Change of a figure for better or worse.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) section: String,
    pub(super) case: String,
    pub(super) what: String,
    /// Class of the samples: `near`, `far` or `all`.
    pub(super) class: &'static str,
    pub(super) before: Figure,
    pub(super) now: Figure,
    pub(super) worse: bool,
}

impl Change {
    pub(super) fn text(&self) -> String {
        let Self { section, case, what, class, before, now, .. } = self;
        let figure =
            |f: &Figure| format!("{} [{}, {}]", digits(f.median), digits(f.low), digits(f.high));
        format!("{section}: {case}: {what} ({class}): {} -> {}", figure(before), figure(now))
    }
}

/// Comparison with the figures of an older report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) changes: Vec<Change>,
    /// Descriptions of sections, cases and contenders without figures, and of promises that the
    /// older report met and this one misses.
    pub(super) losses: Vec<String>,
}

impl Comparison {
    pub(super) fn is_worse(&self) -> bool {
        !self.losses.is_empty() || self.changes.iter().any(|change| change.worse)
    }
}

/// Compares `new` with `old`, section by section. A section that `new` did not select is not a
/// loss. Losses are searched only if both runs were quick or both were full.
pub(super) fn compare(old: &Report, new: &Report) -> Comparison {
    let losses = if old.quick == new.quick { losses(old, new) } else { Vec::new() };
    Comparison { changes: changes(old, new), losses }
}

/// Sections that `cargo xtask bench` has measured. Figures of other commands may be older than
/// either report, and from a busier machine.
fn measured_here(report: &Report) -> impl Iterator<Item = &Section> {
    report.sections.iter().filter(|section| elsewhere::command(&section.name).is_none())
}

fn losses(old: &Report, new: &Report) -> Vec<String> {
    let mut losses = Vec::new();
    for section in measured_here(new) {
        let name = &section.name;
        let Some(before) = old.section(name).filter(|before| before.skipped.is_none()) else {
            continue;
        };
        if let Some(reason) = &section.skipped {
            losses.push(format!("{name}: is skipped now: {reason}"));
            continue;
        }
        for case in &before.cases {
            let Some(now) = section.cases.iter().find(|now| now.name == case.name) else {
                losses.push(format!("{name}: {}: removed", case.name));
                continue;
            };
            for line in case.lines.iter().filter(|line| line.all.is_some()) {
                let has = now.lines.iter().find(|now| now.who == line.who);
                if has.is_none_or(|now| now.all.is_none()) {
                    let why = has.and_then(|now| now.skipped.as_deref()).unwrap_or("removed");
                    losses.push(format!("{name}: {}: {}: {why}", case.name, line.who));
                }
            }
        }
    }
    let missed = |p: &&Verdict| p.outcome == Outcome::Missed && !p.unsure && p.since.is_none();
    for promise in new.promises.iter().filter(missed) {
        let was_kept = |old: &&Verdict| old.text == promise.text && old.outcome == Outcome::Met;
        if let Some(old) = old.promises.iter().find(was_kept) {
            let Verdict { text, promised, measured, .. } = promise;
            let before = &old.measured;
            losses.push(format!("{text}: previously met with {before}: {measured} ({promised})"));
        }
    }
    losses
}

fn changes(old: &Report, new: &Report) -> Vec<Change> {
    let mut changes = Vec::new();
    for section in measured_here(new) {
        let Some(before) = old.section(&section.name) else { continue };
        for case in &section.cases {
            let same = |other: &&Case| other.name == case.name && other.unit == case.unit;
            let Some(before) = before.cases.iter().find(same) else { continue };
            compare_cases(&section.name, before, case, &mut changes);
        }
    }
    changes
}

fn compare_cases(section: &str, before: &Case, now: &Case, changes: &mut Vec<Change>) {
    // Cache misses are skipped: they have one sample and depend on the placement in memory.
    if now.unit.kind == "misses" {
        return;
    }
    let better_up = now.unit.more_is_better();
    let exact = now.unit.kind == "instructions";
    let counted = if exact { now.lines.first() } else { None };
    let ratios = now.ratios.iter().map(|line| (line, &before.ratios));
    for (line, others) in ratios.chain(counted.map(|line| (line, &before.lines))) {
        let Some(other) = others.iter().find(|other| other.who == line.who) else { continue };
        for (class, before, after) in comparable(other, line) {
            if let Some(up) = moved(&before, &after) {
                changes.push(Change {
                    section: section.to_owned(),
                    case: now.name.clone(),
                    what: line.who.clone(),
                    class,
                    before,
                    now: after,
                    worse: up != better_up,
                });
            }
        }
    }
}

/// Pairs of figures of each class with enough samples in both reports, otherwise the pair of all
/// samples.
fn comparable(before: &Line, now: &Line) -> Vec<(&'static str, Figure, Figure)> {
    let sure = |figure: Option<Figure>| figure.filter(|figure| !figure.is_unsure());
    let classes = [("near", before.near, now.near), ("far", before.far, now.far)];
    let classes = classes.map(|(class, a, b)| Some((class, sure(a)?, sure(b)?)));
    if classes.iter().any(Option::is_some) {
        return classes.into_iter().flatten().collect();
    }
    let all = before.all.zip(now.all);
    all.map(|(before, now)| ("all", before, now)).into_iter().collect()
}

/// Direction of a change: `Some(true)` if the median increased. `None` if either median is within
/// the interval of the other figure, or if the change is not above [`MARGIN`].
fn moved(before: &Figure, now: &Figure) -> Option<bool> {
    let up = now.median > before.median;
    let (apart, share) = if up {
        (now.low > before.median && before.high < now.median, now.median / before.median)
    } else {
        (now.high < before.median && before.low > now.median, before.median / now.median)
    };
    (apart && share > 1.0 + MARGIN).then_some(up)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn ten(from: f64) -> Figure {
        Figure::of(&(0..10).map(|n| from + f64::from(n) / 100.0).collect::<Vec<_>>()).unwrap()
    }

    // Goal: overlapping intervals, a median within the interval of the other figure, and a
    // difference of one percent are not a change.
    #[test]
    fn only_what_leaves_both_intervals_moved() {
        assert_eq!(moved(&ten(1.0), &ten(1.0)), None);
        assert_eq!(moved(&ten(1.0), &ten(1.02)), None);
        assert_eq!(moved(&ten(1.0), &ten(1.2)), Some(true));
        assert_eq!(moved(&ten(1.2), &ten(1.0)), Some(false));
        let wide = Figure { low: 0.9, high: 1.3, ..ten(1.0) };
        assert_eq!(moved(&wide, &ten(1.2)), None);
        let exact = |value| Figure::of(&[value]).unwrap();
        assert_eq!(moved(&exact(200.0), &exact(201.0)), None);
        assert_eq!(moved(&exact(200.0), &exact(203.0)), Some(true));
    }

    // Goal: a lower rate and a higher cost are worse. A figure in one report only is not compared.
    #[test]
    fn worse_depends_on_what_is_counted() {
        let report = |rate: f64, cost: f64| {
            let ours: Vec<f64> = (0..10).map(|n| rate + f64::from(n) / 100.0).collect();
            let peers = [("mqnet", &ours[..]), ("peer", &[1.0; 10][..])];
            let cases = vec![
                fixture::case("a", "frames", Some(64), &peers),
                fixture::case("b", "instructions", None, &[("mqnet", &[cost])]),
                fixture::case(&format!("only {rate}"), "frames", None, &peers),
            ];
            let mut report = fixture::report(&["link"]);
            report.sections[0].cases = cases;
            report
        };
        assert_eq!(changes(&report(1.0, 200.0), &report(1.0, 200.0)), []);
        let worse = changes(&report(1.5, 200.0), &report(1.0, 220.0));
        let said: Vec<_> = worse.iter().map(|c| (c.case.as_str(), c.worse)).collect();
        assert_eq!(said, [("a", true), ("b", true)]);
        assert!(worse[0].text().starts_with("link: a: mqnet / peer (all): 1.545 ["));
        let better = changes(&report(1.0, 220.0), &report(1.5, 200.0));
        assert!(better.iter().all(|change| !change.worse) && better.len() == 2);
    }

    // Goal: a missing case, contender or section, and a promise that is now missed, are losses,
    // regardless of improvements. A section that was not selected is not a loss, nor is a
    // difference between a quick and a full run.
    #[test]
    fn what_is_gone_is_lost() {
        let whole = || fixture::report(&["link", "pool"]);
        assert_eq!(compare(&whole(), &whole()).losses, Vec::<String>::new());
        assert!(!compare(&whole(), &fixture::report(&["link"])).is_worse());
        let mut less = whole();
        less.sections[0].cases.remove(0);
        less.sections[0].cases[0].lines[1].all = None;
        less.sections[0].cases[0].lines[1].skipped = Some("no DPDK".to_owned());
        less.sections[1].skipped = Some("crashed".to_owned());
        let lost = compare(&whole(), &less).losses;
        assert!(lost[0].ends_with("removed") && lost[1].ends_with(": no DPDK"), "{lost:?}");
        assert!(lost[2].contains("is skipped now: crashed") && lost.len() == 3, "{lost:?}");
        less.quick = true;
        assert_eq!(compare(&whole(), &less).losses, Vec::<String>::new());
        let (mut kept, mut missed) = (whole(), whole());
        kept.promises[0].outcome = Outcome::Met;
        (missed.promises[0].outcome, missed.promises[0].unsure) = (Outcome::Missed, false);
        assert!(compare(&kept, &missed).losses[0].contains("previously met with"));
    }

    // Goal: a different share of near samples is not a regression if near and far have enough
    // samples.
    #[test]
    fn classes_are_compared_with_themselves() {
        let line = |near, far, all| Line {
            who: "mqnet / peer".to_owned(),
            skipped: None,
            all: Some(all),
            near,
            far,
        };
        let before = line(Some(ten(5.0)), Some(ten(2.0)), ten(5.0));
        let now = line(Some(ten(5.0)), Some(ten(2.0)), ten(2.0));
        let compared = comparable(&before, &now);
        assert_eq!(compared.len(), 2);
        assert!(compared.iter().all(|(_, before, now)| moved(before, now).is_none()));
        let few = line(Figure::of(&[1.0; 3]), None, ten(2.0));
        assert_eq!(comparable(&before, &few)[0].0, "all");
    }
}
