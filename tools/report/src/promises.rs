//! Promises of SPECIFICATION.md about speed, cost and loss, and their verdicts.
//!
//! `tools/report/promises.toml` names each promise, the section and case of its figure, and its
//! bound. The median decides: a near miss is a miss.

use serde::Deserialize;

use super::interval::Figure;
use super::measured::{Case, Line};
use super::report::Section;
pub(super) use super::verdict::{Outcome, Verdict};
use crate::{Result, project};

/// One promise of the table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Promise {
    /// Readable text of the promise.
    pub(super) text: String,
    /// Section with the figure. Without a section, `held_by` names the command that checks the
    /// promise.
    pub(super) section: Option<String>,
    pub(super) held_by: Option<String>,
    /// Name of the case.
    case: Option<String>,
    /// Name of a ratio of the case.
    ratio: Option<String>,
    /// Name of a contender of the case.
    line: Option<String>,
    /// Contender with the figure that is subtracted from the figure of `line`.
    minus: Option<String>,
    /// Prefix of a note, or of the text after the verdict of a note.
    note: Option<String>,
    /// Lower bound in the unit of the report (microseconds, not nanoseconds).
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// Reason of a possible miss, from a profile or an experiment; absent if unknown.
    why: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Table {
    promise: Vec<Promise>,
}

/// Result of a section for a promise.
enum Found {
    Figure(Figure, [Option<f64>; 2]),
    /// Verdict of the section: true if kept, and its text.
    Judged(bool, String),
    /// Not measured, with the reason.
    Missing(String),
    /// The section has no case, ratio, contender or note with the name in the table.
    Nothing(String),
}

/// Promises of the project.
pub(super) fn table() -> Result<Vec<Promise>> {
    let path = project::root().join("tools/report/promises.toml");
    let text = std::fs::read_to_string(&path)?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn parse(text: &str) -> Result<Vec<Promise>> {
    let promises = toml::from_str::<Table>(text)?.promise;
    for promise in &promises {
        promise.check().map_err(|why| format!("`{}`: {why}", promise.text))?;
    }
    Ok(promises)
}

impl Promise {
    fn check(&self) -> std::result::Result<(), &'static str> {
        let Self { case, ratio, line, note, at_least, at_most, .. } = self;
        let figures = [ratio, line].into_iter().flatten().count();
        let bounds = [at_least, at_most].into_iter().flatten().count();
        match (self.section.is_some(), self.held_by.is_some()) {
            (false, true) => return Ok(()),
            (true, false) => {}
            _ => return Err("exactly one of `section` and `held_by` is needed"),
        }
        if figures + usize::from(note.is_some()) != 1 {
            return Err("one of `ratio`, `line` and `note` names the figure");
        }
        if case.is_some() != (figures == 1) {
            return Err("`case` goes with `ratio` and `line`");
        }
        if self.minus.is_some() && line.is_none() {
            return Err("`minus` goes with `line`");
        }
        // A note may contain a verdict, so it needs no bound.
        if bounds > 1 || (figures == 1 && bounds == 0) {
            return Err("one bound is needed: `at_least` or `at_most`");
        }
        Ok(())
    }

    fn bound(&self) -> Option<f64> {
        self.at_least.or(self.at_most)
    }

    fn keeps(&self, value: f64) -> bool {
        self.at_least.is_none_or(|bound| value >= bound)
            && self.at_most.is_none_or(|bound| value <= bound)
    }

    fn promised(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(bound), _) => format!("≥ {bound}"),
            (_, Some(bound)) => format!("≤ {bound}"),
            _ => String::new(),
        }
    }

    /// Checks a promise against the measured section. A name that the section lacks is "not
    /// measured" in a quick run; in a full run the promise is stale.
    pub(super) fn judge(&self, section: Option<&Section>, quick: bool) -> Verdict {
        let missing = |why: String| Found::Missing(why);
        let found = match (&self.held_by, section) {
            (Some(command), _) => missing(format!("not here: held by `{command}`")),
            (None, None) => missing("the section was not requested".to_owned()),
            (None, Some(Section { skipped: Some(reason), .. })) => missing(reason.clone()),
            (None, Some(section)) => match self.find(&section.cases, &section.notes) {
                Found::Nothing(_) if quick => missing("not part of a quick run".to_owned()),
                found => found,
            },
        };
        let mut verdict = Verdict {
            text: self.text.clone(),
            section: self.section.clone(),
            promised: self.promised(),
            bound: self.bound(),
            measured: String::new(),
            figure: None,
            since: section.and_then(|section| Some(section.kept.as_ref()?.when())),
            places: [None; 2],
            outcome: Outcome::NotMeasured,
            unsure: false,
            stale: false,
            why: None,
        };
        let outcome = |kept| if kept { Outcome::Met } else { Outcome::Missed };
        match found {
            Found::Figure(figure, places) => {
                verdict.places = places;
                verdict.measured = digits(figure.median);
                verdict.outcome = outcome(self.keeps(figure.median));
                verdict.unsure = self.keeps(figure.low) != self.keeps(figure.high);
                verdict.figure = Some(figure);
            }
            Found::Judged(kept, words) => {
                verdict.measured = words;
                verdict.outcome = outcome(kept);
            }
            Found::Missing(why) => verdict.measured = why,
            Found::Nothing(why) => (verdict.measured, verdict.stale) = (why, true),
        }
        if verdict.outcome == Outcome::Missed {
            let unknown =
                || "not known: new, or not examined (tools/report/promises.toml)".to_owned();
            verdict.why = Some(self.why.clone().unwrap_or_else(unknown));
        }
        verdict
    }

    fn find(&self, cases: &[Case], notes: &[String]) -> Found {
        if let Some(note) = &self.note {
            let found = self.find_note(note, notes);
            // A contender that did not take part has no note: the promise is not measured.
            return match (found, cases.iter().find_map(gone)) {
                (Found::Nothing(_), Some(reason)) => Found::Missing(reason),
                (found, _) => found,
            };
        }
        let name = self.case.as_deref().unwrap_or_default();
        let Some(case) = cases.iter().find(|case| case.name == name) else {
            return Found::Nothing(format!("STALE: the section has no case `{name}`"));
        };
        // A ratio to a contender that did not take part is missing.
        let gone = gone(case);
        let scale = if self.ratio.is_some() { 1.0 } else { case.unit.shown().0 };
        let pick = |lines: &[Line], name: &str| -> std::result::Result<(Figure, _), Found> {
            let line = lines.iter().find(|line| line.who == name);
            if let Some((line, figure)) = line.and_then(|line| Some((line, line.all?))) {
                let median = |figure: Option<Figure>| figure.map(|figure| figure.median / scale);
                let places = [line.near, line.far].map(median);
                return Ok((figure.map(|value| value / scale), places));
            }
            match gone.clone().or_else(|| line.and_then(|line| line.skipped.clone())) {
                Some(reason) => Err(Found::Missing(reason)),
                None => Err(Found::Nothing(format!("STALE: `{}` has no `{name}`", case.name))),
            }
        };
        let figure = match (&self.ratio, &self.line, &self.minus) {
            (Some(ratio), ..) => pick(&case.ratios, ratio),
            (_, line, None) => pick(&case.lines, line.as_deref().unwrap_or_default()),
            (_, line, Some(minus)) => pick(&case.lines, line.as_deref().unwrap_or_default())
                .and_then(|(figure, _)| {
                    let off = pick(&case.lines, minus)?.0.median;
                    Ok((figure.map(|value| value - off), [None; 2]))
                }),
        };
        figure.map_or_else(|found| found, |(figure, places)| Found::Figure(figure, places))
    }

    fn find_note(&self, begin: &str, notes: &[String]) -> Found {
        let judged = |note: &'_ str| -> Option<(bool, String)> {
            let (verdict, rest) = note.split_once(": ")?;
            let said = rest.strip_prefix(begin)?.trim_start_matches([':', ' ']).to_owned();
            match verdict {
                "kept" => Some((true, said)),
                "MISSED" => Some((false, said)),
                _ => None,
            }
        };
        let judgements: Vec<_> = notes.iter().filter_map(|note| judged(note)).collect();
        if !judgements.is_empty() {
            let kept = judgements.iter().all(|(kept, _)| *kept);
            let words: Vec<String> = judgements.into_iter().map(|(_, said)| said).collect();
            return Found::Judged(kept, words.join("; "));
        }
        let number = notes.iter().filter_map(|note| note.strip_prefix(begin)).find_map(|rest| {
            let word = rest.split_whitespace().next()?;
            word.trim_end_matches([',', '%']).parse::<f64>().ok()
        });
        let note = notes.iter().find(|note| note.starts_with(begin));
        match (number.and_then(|number| Figure::of(&[number])), note) {
            (Some(figure), _) => Found::Figure(figure, [None; 2]),
            (None, Some(note)) => Found::Missing(note.clone()),
            (None, None) => Found::Nothing(format!("STALE: no note begins with `{begin}`")),
        }
    }
}

/// Name of the first contender that did not take part, with the reason.
fn gone(case: &Case) -> Option<String> {
    let mut lines = case.lines.iter();
    lines.find_map(|line| line.skipped.as_ref().map(|why| format!("{}: {why}", line.who)))
}

/// Value with three or four significant digits; from 1000 on, rounded to an integer.
pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        v if v >= 0.1 || v <= 0.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests;
