//! Figures in documents, written from a report.
//!
//! Each figure is between two HTML comments. The first comment names the section, the case, the
//! ratio or contender and, unless the figure covers all samples, `near` or `far`.
//!
//! ```text
//! <!--= link; link 64 B; mqnet / DPDK memif copy; near -->5.5<!--/-->
//! ```
//!
//! `promises; SECTION` is the table of all promises of one section. `medians; SECTION; WORDS` is
//! the table of the contenders' medians in the cases with names that begin with WORDS.

use super::interval::Figure;
use super::measured::{Case, Line};
use super::promises::{Outcome, Verdict, digits};
use super::report::{Report, Section};
use crate::Result;

const BEGIN: &str = "<!--= ";
const MIDDLE: &str = " -->";
const END: &str = "<!--/-->";
/// Allowed content of a comment, for error messages.
const NAMES: &str = "section; case; contender[; near|far], or promises; section, or medians; \
                     section; begin of cases";

/// Returns the document with the figures of a report, and the number of these figures. Figures of
/// sections that did not run, or of a class without samples, are kept.
pub(super) fn fill(text: &str, report: &Report) -> Result<(String, usize)> {
    let (mut out, mut rest, mut filled) = (String::with_capacity(text.len()), text, 0);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(MIDDLE).ok_or_else(|| unclosed(after, MIDDLE))?;
        let (old, after) = after.split_once(END).ok_or_else(|| unclosed(name, END))?;
        let new = figure(name, old, report)?;
        filled += usize::from(new.is_some());
        let new = new.unwrap_or_else(|| old.to_owned());
        out.extend([before, BEGIN, name, MIDDLE, &new, END]);
        rest = after;
    }
    out.push_str(rest);
    Ok((out, filled))
}

fn unclosed(begun: &str, missing: &str) -> String {
    let begun: String = begun.chars().take(60).collect();
    format!("`{BEGIN}{begun}` has no `{missing}`")
}

/// Text for a comment: a table, or a formatted median; `None` if the figures were not measured. An
/// unknown name is an error.
fn figure(name: &str, old: &str, report: &Report) -> Result<Option<String>> {
    let words: Vec<&str> = name.split("; ").collect();
    let (section, case, who, class) = match words.as_slice() {
        ["promises", section] => return Ok(promises(section, report, old)),
        ["medians", section, begin] => return medians(section, begin, report),
        [section, case, who] => (section, case, who, ""),
        [section, case, who, class @ ("near" | "far")] => (section, case, who, *class),
        _ => return Err(format!("`{name}`: {NAMES}").into()),
    };
    let Some(section) = report.section(section).filter(|section| section.skipped.is_none()) else {
        return Ok(None);
    };
    let known = section.cases.iter().find(|known| known.name == *case);
    let known = known.ok_or_else(|| format!("`{name}`: the section has no such case"))?;
    let (line, scale) =
        of(known, who).ok_or_else(|| format!("`{name}`: the case has no such contender"))?;
    let figure = match class {
        "near" => line.near,
        "far" => line.far,
        _ => line.all,
    };
    Ok(figure.map(|figure| short(figure.median / scale)))
}

/// Table of a section's promises with the measured figures. Returns `None`, so that `old` is kept,
/// if `old` is not empty and a promise was not measured.
fn promises(name: &str, report: &Report, old: &str) -> Option<String> {
    let own = || report.promises.iter().filter(|v| v.section.as_deref() == Some(name));
    let section = report.section(name).filter(|section| section.skipped.is_none());
    let is_whole = section.is_some() && own().all(|v| v.outcome != Outcome::NotMeasured);
    if !is_whole && !old.trim().is_empty() {
        return None;
    }
    let mut table =
        "\n\n| promise | promised | median, and its interval | near, far |\n".to_owned();
    table += "|---|---|---|---|\n";
    own().for_each(|verdict| table += &row(verdict));
    let source = section.map_or("Not measured yet.".to_owned(), |s| source(s, report));
    Some(table + &format!("\n{source}\n\n"))
}

fn row(verdict: &Verdict) -> String {
    let Verdict { text, promised, measured, figure, places, outcome, unsure, .. } = verdict;
    let (mut said, promised) = match figure {
        Some(figure) => (median(measured, figure, *unsure), promised.clone()),
        // The bound is in the text of the section's verdict.
        None => apart(measured, promised),
    };
    if *outcome == Outcome::Missed {
        said += " `[missed]`";
    }
    let shown = places.map(|median| median.map_or("-".to_owned(), digits)).join(", ");
    let places = if places.iter().all(Option::is_none) { String::new() } else { shown };
    cells(&[text.clone(), promised, said, places])
}

/// Median with its interval, and with the number of samples if they are too few for the confidence.
fn median(measured: &str, figure: &Figure, unsure: bool) -> String {
    let (low, high) = (digits(figure.low), digits(figure.high));
    let interval = match figure.samples {
        1 => String::new(),
        few if figure.is_unsure() => format!(" ({low} to {high}, of {few})"),
        _ => format!(" ({low} to {high})"),
    };
    format!("**{measured}**{interval}{}", if unsure { " ±" } else { "" })
}

/// Splits `a (promised: b); c (promised: d)` into `a; c` and `b; d`.
fn apart(measured: &str, promised: &str) -> (String, String) {
    let split = |words: &str| -> (String, Option<String>) {
        let bound = words.strip_suffix(')').and_then(|words| words.rsplit_once(" (promised: "));
        bound.map_or((words.to_owned(), None), |(said, bound)| (said.into(), Some(bound.into())))
    };
    let (mut said, bounds): (Vec<String>, Vec<Option<String>>) =
        measured.split("; ").map(split).unzip();
    // One figure with two bounds is printed once.
    said.dedup();
    let mut bounds: Vec<String> = bounds.into_iter().flatten().collect();
    bounds.dedup();
    let bounds = if bounds.is_empty() { promised.to_owned() } else { bounds.join("; ") };
    (said.join("; "), bounds)
}

/// Row of a table.
fn cells(cells: &[String]) -> String {
    // A vertical bar would end the cell.
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "/")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Command, date and commit of the figures.
fn source(section: &Section, report: &Report) -> String {
    let (date, commit) = match &section.kept {
        Some(kept) => (&kept.date, &kept.commit),
        None => (&report.date, &report.commit),
    };
    format!("`{}`, {date}, commit {commit}.", section.command)
}

/// Table with the medians of the cases that begin with `begin`, for the contenders of the first
/// case; `None` if the section was not measured.
fn medians(name: &str, begin: &str, report: &Report) -> Result<Option<String>> {
    let Some(section) = report.section(name).filter(|section| section.skipped.is_none()) else {
        return Ok(None);
    };
    let named: Vec<&Case> =
        section.cases.iter().filter(|case| case.name.starts_with(begin)).collect();
    let first =
        named.first().ok_or_else(|| format!("no case of `{name}` begins with `{begin}`"))?;
    let who: Vec<&str> = first.lines.iter().map(|line| line.who.as_str()).collect();
    let mut table = format!("\n\n| | {} |\n|---|{}\n", who.join(" | "), "---|".repeat(who.len()));
    for case in named {
        let (scale, unit) = case.unit.shown();
        let cell = |who: &&str| {
            let median = case.lines.iter().find(|line| line.who == *who).and_then(|line| line.all);
            median.map_or("-".to_owned(), |figure| digits(figure.median / scale))
        };
        let name = format!("{}, {unit}", case.name);
        table += &cells(&[vec![name], who.iter().map(cell).collect()].concat());
    }
    Ok(Some(table + &format!("\n{}\n\n", source(section, report))))
}

/// Value with one decimal place from 10 on, with two below.
fn short(value: f64) -> String {
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

fn of<'a>(case: &'a Case, who: &str) -> Option<(&'a Line, f64)> {
    let named = |line: &&Line| line.who == who;
    let ratio = case.ratios.iter().find(named).map(|line| (line, 1.0));
    ratio.or_else(|| Some((case.lines.iter().find(named)?, case.unit.shown().0)))
}

#[cfg(test)]
mod tests {
    use super::super::promises;
    use super::super::sections::SECTIONS;
    use super::super::{DOCUMENTS, elsewhere, fixture};
    use super::*;
    use crate::project;

    // Goal: every figure in the project's documents has a name that the program prints.
    #[test]
    fn the_documents_name_what_is_printed() {
        let measured = SECTIONS.iter().map(|section| section.name);
        let sections: Vec<&str> =
            measured.chain(elsewhere::list().map(|[name, ..]| name)).collect();
        let report = fixture::report(&sections);
        for (document, least) in DOCUMENTS.into_iter().zip([20, 20]) {
            let text = std::fs::read_to_string(project::root().join(document)).unwrap();
            let (filled, count) = fill(&text, &report).unwrap();
            let markers = text.matches(BEGIN).count();
            assert!(count >= least && markers >= count, "{document}: {count} of {markers}");
            let bare = |text: &str| -> String {
                let parts = text.split(BEGIN).map(|part| part.split(END).last().unwrap_or(part));
                parts.collect()
            };
            assert_eq!(bare(&filled), bare(&text), "nothing else changes in {document}");
        }
    }

    // Goal: measurements.md has every promise, in the table of its section.
    #[test]
    fn every_promise_has_its_table() {
        let path = project::root().join("book/src/measurements/measurements.md");
        let text = std::fs::read_to_string(path).unwrap();
        for promise in promises::table().unwrap() {
            let Some(section) = &promise.section else { continue };
            assert!(text.contains(&format!("{BEGIN}promises; {section}{MIDDLE}")), "{section}");
            assert!(text.contains(&format!("| {} |", promise.text)), "{}", promise.text);
        }
    }

    // Goal: a table of promises contains figures, intervals and misses of one section, with date
    // and command. A table of medians contains the contenders' results. Both replace the old text.
    #[test]
    fn tables_are_filled() {
        let mut report = fixture::report(&["link", "ring"]);
        report.promises.retain(|verdict| verdict.section.as_deref() == Some("ring"));
        let unmeasured = fill("<!--= promises; pool --><!--/-->", &report).unwrap().0;
        assert!(unmeasured.contains("Not measured yet."), "{unmeasured}");
        let verdict = &mut report.promises[0];
        (verdict.text, verdict.measured) = ("a | b".to_owned(), "0.5".to_owned());
        (verdict.outcome, verdict.unsure) = (Outcome::Missed, true);
        verdict.places = [Some(0.25), None];
        let text = "<!--= promises; ring -->old<!--/--> <!--= promises; tcp -->kept<!--/-->";
        let (filled, count) = fill(text, &report).unwrap();
        assert!(filled.contains("\n| a / b | ≥ 1 | **0.5** ("), "{filled}");
        assert!(filled.contains(") ± `[missed]` | 0.250, - |\n"), "{filled}");
        assert!(filled.contains("`mqnet-bench ring`, 2026-11-22T12:00:00Z, commit 0123456789ab."));
        assert!(count == 1 && !filled.contains("old") && filled.contains("kept"));
        report.promises[0].outcome = Outcome::NotMeasured;
        assert_eq!(fill(text, &report).unwrap().1, 0, "a table in part");
        report.sections[0].cases =
            vec![fixture::case("x y", "frames", None, &[("mqnet", &[6e6]), ("peer", &[2e6])])];
        let medians = |begin: &str| {
            fill(&format!("<!--= medians; link; {begin} --><!--/-->"), &report)
                .map_err(|error| error.to_string())
        };
        let filled = medians("x").unwrap().0;
        assert!(
            filled.contains("| | mqnet | peer |\n|---|---|---|\n| x y, Mpps | 6.000 | 2.000 |")
        );
        assert!(medians("z").unwrap_err().contains("begins with `z`"));
    }

    // Goal: the bounds in verdicts of a section are in a separate column.
    #[test]
    fn bounds_are_set_apart() {
        let both = apart("lost 0 [] (promised: 0); 1.07 (promised: >= 0.98)", "");
        assert_eq!(both, ("lost 0 []; 1.07".to_owned(), "0; >= 0.98".to_owned()));
        let twice = apart("3.9 ms (promised: < 12); 3.9 ms (promised: <= 5)", "");
        assert_eq!(twice, ("3.9 ms".to_owned(), "< 12; <= 5".to_owned()));
        assert_eq!(apart("a: 4.0 ms; b (c)", "≤ 1"), ("a: 4.0 ms; b (c)".into(), "≤ 1".into()));
    }

    // Goal: ratios and contenders are found and scaled, figures without measurement are kept, and
    // an unknown name is reported.
    #[test]
    fn figures_are_filled() {
        let mut report = fixture::report(&["link"]);
        let ours: &[f64] = &[6e6];
        report.sections[0].cases =
            vec![fixture::case("link 64 B", "frames", Some(64), &[("mqnet", ours), ("x", &[2e6])])];
        let fill = |text: &str| fill(text, &report).map_err(|error| error.to_string());
        let text = "**<!--= link; link 64 B; mqnet / x -->1<!--/-->**, \
                    <!--= link; link 64 B; mqnet -->2<!--/--> Mpps, \
                    <!--= link; link 64 B; mqnet; far -->3<!--/-->, <!--= tcp; a; b -->4<!--/-->.";
        let (filled, count) = fill(text).unwrap();
        assert_eq!(count, 2);
        let shown: String = filled.split("<!--").map(|p| p.split("-->").last().unwrap()).collect();
        assert_eq!(shown, "**3.00**, 6.00 Mpps, 3, 4.");
        for (bad, words) in [
            ("<!--= link; nothing; mqnet -->1<!--/-->", "no such case"),
            ("<!--= link; link 64 B; memif -->1<!--/-->", "no such contender"),
            ("<!--= link; link 64 B -->1<!--/-->", "section; case; contender"),
            ("<!--= link; link 64 B; mqnet -->1", "has no `<!--/-->`"),
        ] {
            assert!(fill(bad).unwrap_err().contains(words), "{bad}");
        }
    }
}
