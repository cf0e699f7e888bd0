//! Report page: one self-contained file for a browser without a network, in light or dark mode.

mod pictures;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::baseline::Comparison;
use super::limits::Limits;
use super::plot;
use super::promises::{Outcome, digits};
use super::report::{Report, Section};
use crate::Result;

/// Notes of `mqnet-bench` that invalidate all figures.
const ALARMS: [&str; 2] = ["NOT QUIET", "NOT A RELEASE BUILD"];

/// Whole page.
pub(super) fn page(report: &Report, compared: Option<&Comparison>) -> Result<String> {
    let dark = format!("@media(prefers-color-scheme:dark){{{}}}", plot::dark_rules());
    let style = [include_str!("html/style.css"), &plot::key_rules(), &dark].concat();
    let mut sections = Vec::new();
    for section in &report.sections {
        sections.push(of_section(section, report)?);
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "mqnet-bench " (report.date) }
                style { (PreEscaped(style)) }
            }
            body {
                h1 { "mqnet against its peers" }
                (head(report))
                (alarms(report))
                @if let Some(compared) = compared { (tables::changes(compared)) }
                (tables::promises(&report.promises))
                @for section in sections { (section) }
            }
        }
    };
    Ok(page.into_string())
}

fn head(report: &Report) -> Markup {
    let machine = &report.machine;
    let count = |outcome| report.promises.iter().filter(|p| p.outcome == outcome).count();
    let kind = if machine.virtual_machine { ", a virtual machine" } else { "" };
    let nodes =
        if machine.nodes > 1 { format!(", {} nodes", machine.nodes) } else { String::new() };
    html! {
        p {
            (machine.cpu) ", " (machine.cpus) " CPUs" (nodes) (kind) "; "
            (format!("{:.0} GiB", machine.memory_gib)) "; Linux " (machine.kernel) ", "
            (machine.system) ". Commit " code { (report.commit) } ", " (report.date)
            @if report.quick { ", a quick run" } "."
        }
        div .tiles {
            div .tile.met { b { (count(Outcome::Met)) } span { "promises met" } }
            div .tile.missed { b { (count(Outcome::Missed)) } span { "missed" } }
            div .tile { b { (count(Outcome::NotMeasured)) } span { "not measured here" } }
            (limit_tiles(&report.limits))
        }
        details {
            summary { "The peers, and how to read the pictures" }
            dl {
                @for peer in &report.peers {
                    dt { (peer.name) }
                    dd {
                        @match &peer.version {
                            Some(version) => (version),
                            None => { "skipped: " (peer.skipped.as_deref().unwrap_or("?")) },
                        }
                    }
                }
                dt { "veth, bridge, AF_PACKET" } dd { "of the kernel, " (machine.kernel) }
            }
            (how_to_read())
        }
        nav {
            a href="#promises" { "promises" }
            @for section in &report.sections {
                a href={ "#" (section.name) } { (section.name) }
            }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        p {
            "mqnet and a peer run alternately for some milliseconds on the same two CPUs; each \
             pair of runs gives a ratio. "
            b { "Dot" } ": the median of the ratios. " b { "Thick bar" }
            ": the interval that contains the true median with at least 95 %, from order \
             statistics. " b { "Thin line" } ": least to most. " b { "Upright mark" }
            ": what is promised; green when the median keeps it, red when not. Numbers behind a \
             row are the median and its interval; in [ ] with fewer than 6 samples it is least \
             to most."
        }
        p {
            b { "Triangle" } ": the median while the two CPUs shared a cache (near). "
            b { "Square" }
            ": while they did not (far). On a virtual machine the host moves CPUs about: a figure \
             means most when near is compared with near. Median lines and whiskers of the other \
             pictures mean the same."
        }
    }
}

fn limit_tiles(limits: &Limits) -> Markup {
    let giga = |value: f64| format!("{} GB/s", digits(value / 1e9));
    let nano = |value: f64| format!("{} ns", digits(value));
    let micro = |value: f64| format!("{} µs", digits(value / 1e3));
    let line = match (limits.line_near, limits.line_far) {
        (Some(near), Some(far)) => Some(format!("{near:.0} / {far:.0} ns")),
        _ => limits.line.map(nano),
    };
    let both = limits.line_near.is_some() && limits.line_far.is_some();
    let tiles = [
        (limits.copy_cached.map(giga), "memory copy in a cache"),
        (limits.copy_memory.map(giga), "memory copy beyond all caches"),
        (line, if both { "a cache line goes over, near / far" } else { "a cache line goes over" }),
        (limits.call.map(nano), "a system call"),
        (limits.wake_up.map(micro), "a wake-up"),
    ];
    html! {
        @for (value, name) in tiles {
            @if let Some(value) = value { div .tile { b { (value) } span { (name) } } }
        }
    }
}

/// Notes that invalidate all figures, printed once at the top.
fn alarms(report: &Report) -> Markup {
    let of = |alarm: &str| -> Vec<&str> {
        let sections = report.sections.iter();
        let with = sections.filter(|s| s.notes.iter().any(|note| note.starts_with(alarm)));
        with.map(|section| section.name.as_str()).collect()
    };
    html! {
        @for alarm in ALARMS {
            @let names = of(alarm);
            @if !names.is_empty() {
                p .alarm { b { (alarm) } " while these were measured: " (names.join(", ")) "." }
            }
        }
        @if report.machine.load > 0.5 {
            p .alarm {
                b { "BUSY" } ": the load was " (report.machine.load) " when the run began. "
                "Repeat it on an idle machine."
            }
        }
    }
}

fn of_section(section: &Section, report: &Report) -> Result<Markup> {
    let pictures = pictures::all(section, &report.promises)?;
    Ok(html! {
        h2 id=(section.name) { (section.name) }
        p { (section.answers) " " span .faint { "(" (when(section)) ")" } }
        @if let Some(reason) = &section.skipped {
            p { "Skipped: " (reason) }
        }
        div .plots { (pictures) }
        @if !section.beside.is_empty() { (tables::comparison(&section.beside)) }
        @if !section.notes.is_empty() {
            details {
                summary { (section.notes.len()) " notes" }
                ul { @for note in &section.notes { li { (note) } } }
            }
        }
        @if !section.cases.is_empty() { (tables::cases(section)) }
    })
}

/// Duration of the section; date and commit for figures of another command; "not measured" for a
/// skipped section.
fn when(section: &Section) -> String {
    match (&section.kept, &section.skipped) {
        (Some(kept), _) => format!("by another command, since {}, {}", kept.date, kept.commit),
        (None, Some(_)) => "not measured".to_owned(),
        (None, None) => format!("{:.0} s", section.seconds),
    }
}

#[cfg(test)]
mod tests {
    use scraper::{Html, Selector};

    use super::super::baseline::Change;
    use super::super::fixture;
    use super::super::interval::Figure;
    use super::*;

    const ALL: [&str; 5] = ["limits", "link", "queueing", "instr", "vhost"];

    fn parsed(report: &Report, compared: Option<&Comparison>) -> Html {
        Html::parse_document(&page(report, compared).unwrap())
    }

    fn count(page: &Html, selector: &str) -> usize {
        page.select(&Selector::parse(selector).unwrap()).count()
    }

    fn hostile() -> Report {
        let mut report = fixture::report(&ALL);
        let evil = "<script>alert('&')</script>\"'";
        report.sections[1].cases[0].name = evil.to_owned();
        report.sections[1].cases[0].lines[0].who = evil.to_owned();
        report.sections[1].notes.push(evil.to_owned());
        report.sections[2].skipped = Some(evil.to_owned());
        report.machine.cpu = evil.to_owned();
        report
    }

    // Goal: the page is HTML without parser errors, for any names.
    #[test]
    fn the_page_is_well_formed() {
        let figure = Figure::of(&[1.0]).unwrap();
        let change = Change {
            section: "link".into(),
            case: "<a>".into(),
            what: "b".into(),
            class: "all",
            before: figure,
            now: figure,
            worse: true,
        };
        for report in [fixture::report(&ALL), hostile(), fixture::report(&[])] {
            let changes = vec![change.clone()];
            let moved = Comparison { changes, losses: vec!["<b>".to_owned()] };
            for changes in [None, Some(&Comparison::default()), Some(&moved)] {
                let page = parsed(&report, changes);
                assert_eq!(page.errors, Vec::<String>::new());
                assert_eq!(count(&page, "script"), 0);
                assert_eq!(
                    count(&page, "h2"),
                    1 + report.sections.len() + usize::from(changes.is_some())
                );
            }
        }
    }

    // Goal: the page loads no resources: no element has a source, links stay within the page, and
    // the style imports nothing.
    #[test]
    fn the_page_needs_nothing_else() {
        let page = parsed(&hostile(), None);
        for element in page.select(&Selector::parse("*").unwrap()) {
            let value = element.value();
            assert!(
                !["script", "link", "img", "iframe", "object", "image", "use"]
                    .contains(&value.name())
            );
            for (name, value) in value.attrs() {
                assert!(name != "src" && name != "style", "{name}");
                assert!(name != "href" || value.starts_with('#'), "{value}");
                assert!(!value.contains("url(") && !name.starts_with("on"), "{name} {value}");
            }
        }
        let style: String = page
            .select(&Selector::parse("style").unwrap())
            .flat_map(|style| style.text())
            .collect();
        assert!(!style.contains("url(") && !style.contains("@import") && !style.contains("http"));
    }

    // Goal: the CPU time per gigabit and the distribution of the instructions are drawn as bars.
    #[test]
    fn costs_are_drawn() {
        let report = fixture::report(&["relays", "instr"]);
        let page = page(&report, None).unwrap();
        for title in ["seconds of CPU time for a gigabit", "percent of a frame's instructions"] {
            assert!(page.contains(title), "{title}");
        }
    }

    // Goal: every section has its plots, each with the command that measures it, and every promise
    // has its row.
    #[test]
    fn the_page_is_complete() {
        let report = fixture::report(&ALL);
        let page = parsed(&report, None);
        let figures = count(&page, "figure");
        assert!(figures >= 8, "{figures}");
        assert_eq!(count(&page, "figure svg"), figures);
        assert_eq!(count(&page, "figure figcaption code"), figures);
        assert_eq!(count(&page, "table.promises tbody tr"), report.promises.len());
        let ids = report.sections.iter().all(|s| count(&page, &format!("h2#{}", s.name)) == 1);
        assert!(ids && count(&page, "meta[name=viewport]") == 1);
    }
}
