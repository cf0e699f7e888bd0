//! Figures in documents that a report writes, so that nobody types them.
//!
//! In the text each lies between two comments that no reader sees: the first names the section, the
//! case, the ratio or contender and, if it is not all samples, `near` or `far`.
//!
//! ```text
//! <!--= link; link 64 B; mqnet / DPDK memif copy; near -->5.5<!--/-->
//! ```
//!
//! `laws` alone is the table of [`law::text`].

use super::law;
use super::measured::{Case, Line};
use super::report::Report;
use crate::Result;

const BEGIN: &str = "<!--= ";
const MIDDLE: &str = " -->";
const END: &str = "<!--/-->";

/// The document with the figures of a report in it, and how many these were. Figures of sections
/// that did not run, or of a class that was not seen, stay as they are.
pub(super) fn fill(text: &str, report: &Report) -> Result<(String, usize)> {
    let (mut out, mut rest, mut filled) = (String::with_capacity(text.len()), text, 0);
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(MIDDLE).ok_or_else(|| unclosed(after, MIDDLE))?;
        let (old, after) = after.split_once(END).ok_or_else(|| unclosed(name, END))?;
        let new = figure(name, report)?;
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

/// The median that a comment names, as people read it.
fn figure(name: &str, report: &Report) -> Result<Option<String>> {
    let words: Vec<&str> = name.split("; ").collect();
    let (section, case, who, class) = match words.as_slice() {
        ["laws"] => return law::text(report),
        [section, case, who] => (section, case, who, ""),
        [section, case, who, class @ ("near" | "far")] => (section, case, who, *class),
        _ => return Err(format!("`{name}`: section; case; who[; near|far], or laws").into()),
    };
    let Some(section) = report.section(section).filter(|section| section.skipped.is_none()) else {
        return Ok(None);
    };
    let known = section.cases.iter().find(|known| known.name == *case);
    let known = known.ok_or_else(|| format!("`{name}`: the section has no such case"))?;
    let (line, scale) =
        of(known, who).ok_or_else(|| format!("`{name}`: the case has nobody of that name"))?;
    let figure = match class {
        "near" => line.near,
        "far" => line.far,
        _ => line.all,
    };
    Ok(figure.map(|figure| short(figure.median / scale)))
}

/// As many digits as a reader compares.
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
    use super::super::{DOCUMENTS, fixture};
    use super::*;
    use crate::project;

    // Goal: every figure that the project's documents take from reports has a name that is printed.
    #[test]
    fn the_documents_name_what_is_printed() {
        let sections = [
            "link", "tcp", "queueing", "rxbuf", "instr", "channels", "vhost", "group", "afxdp",
            "scaling",
        ];
        let report = fixture::report(&sections);
        for (document, least) in DOCUMENTS.into_iter().zip([20, 1]) {
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

    // Goal: ratios and contenders are found and scaled, what was not measured stays, and a name
    // that is wrong is an error that says it.
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
            ("<!--= link; link 64 B; memif -->1<!--/-->", "nobody of that name"),
            ("<!--= link; link 64 B -->1<!--/-->", "section; case; who"),
            ("<!--= link; link 64 B; mqnet -->1", "has no `<!--/-->`"),
        ] {
            assert!(fill(bad).unwrap_err().contains(words), "{bad}");
        }
    }
}
