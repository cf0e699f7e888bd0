//! Figures as tables.

use maud::{Markup, html};

use super::super::baseline::Comparison;
use super::super::interval::Figure;
use super::super::limits::MachineShare;
use super::super::measured::Line;
use super::super::promises::{Outcome, Verdict, digits};
use super::super::report::Section;

impl Outcome {
    /// Name of the outcome, which is also a class of the style sheet.
    fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NotMeasured => "not-measured",
        }
    }
}

/// Promises with their verdicts, missed ones first.
pub(super) fn promises(verdicts: &[Verdict]) -> Markup {
    let (mut judged, unknown): (Vec<&Verdict>, Vec<&Verdict>) =
        verdicts.iter().partition(|verdict| verdict.outcome != Outcome::NotMeasured);
    judged.sort_by_key(|verdict| verdict.outcome == Outcome::Met);
    html! {
        h2 id="promises" { "Promises" }
        p .faint {
            "From SPECIFICATION.md. The median decides; where its interval is on both "
            "sides of the bound, the next run may differ (marked ±)."
        }
        (promise_table(&judged))
        @if !unknown.is_empty() {
            details {
                summary { (unknown.len()) " not measured" }
                (promise_table(&unknown))
            }
        }
    }
}

fn promise_table(verdicts: &[&Verdict]) -> Markup {
    html! {
        div .wide {
            table .promises {
                thead { tr {
                    th { "promise" } th { "section" } th .n { "promised" } th .n { "measured" }
                    th .n { "interval" } th { "" }
                } }
                tbody { @for verdict in verdicts { (promise(verdict)) } }
            }
        }
    }
}

fn promise(verdict: &Verdict) -> Markup {
    let word = verdict.outcome.word();
    html! {
        tr class=(word) {
            td {
                (verdict.text)
                @if let Some(since) = &verdict.since { span .faint { " (of " (since) ")" } }
                @if let Some(why) = &verdict.why { p .why { (why) } }
            }
            td { @if let Some(name) = &verdict.section { a href={ "#" (name) } { (name) } } }
            @match verdict.figure {
                Some(figure) => {
                    td .n { (verdict.promised) }
                    td .n { (verdict.measured) }
                    td .n { (interval(&figure)) }
                },
                // A text instead of a figure spans three cells.
                None => td colspan="3" { (verdict.measured) },
            }
            td class=(word) { (word.replace('-', " ")) @if verdict.unsure { " ±" } }
        }
    }
}

fn interval(figure: &Figure) -> String {
    if figure.samples == 1 {
        // A single value was counted, or combined from all rounds.
        "one figure".to_owned()
    } else {
        format!("{} to {}", digits(figure.low), digits(figure.high))
    }
}

/// Changes against a baseline.
pub(super) fn changes(compared: &Comparison) -> Markup {
    let Comparison { changes, losses } = compared;
    html! {
        h2 id="baseline" { "Against the baseline" }
        @if !losses.is_empty() {
            p { "Removed since the baseline:" }
            ul { @for loss in losses { li .missed { (loss) } } }
        }
        @if changes.is_empty() {
            p { "Nothing changed beyond the intervals of both runs." }
        } @else {
            div .wide {
                table {
                    thead { tr {
                        th { "case" } th { "what" } th { "class" } th .n { "before" }
                        th .n { "now" } th { "" }
                    } }
                    tbody {
                        @for change in changes {
                            @let word = if change.worse { "missed" } else { "met" };
                            tr class=(word) {
                                td { (change.section) ": " (change.case) }
                                td { (change.what) }
                                td { (change.class) }
                                td .n { (with_interval(&change.before)) }
                                td .n { (with_interval(&change.now)) }
                                td class=(word) { @if change.worse { "worse" } @else { "better" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn with_interval(figure: &Figure) -> String {
    format!("{} [{}, {}]", digits(figure.median), digits(figure.low), digits(figure.high))
}

/// Figures of mqnet compared with the limits of the machine.
pub(super) fn comparison(rows: &[MachineShare]) -> Markup {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    let percent = |value: Option<f64>| {
        value.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    html! {
        details open {
            summary { "Compared with the limits of this machine" }
            p .faint {
                "Cost of one frame, object or answer: in nanoseconds, as cache lines that could "
                "go from CPU to CPU in that time, as system calls that could be made and as \
                 sleeping "
                "threads that could be woken in that time. Share of a copy: what copying its bytes "
                "once would take of that, within a cache and past all caches. Share of a bare "
                "copy: against two processes that only copy, measured in turn. Streams, and the "
                "CPU time of a gigabit, are counted in frames of 1500 B."
            }
            div .wide {
                table {
                    thead { tr {
                        th { "case" } th { "who" } th .n { "ns" } th .n { "lines" }
                        th .n { "calls" } th .n { "wake-ups" } th .n { "a copy" }
                        th .n { "past caches" } th .n { "of a bare copy" }
                    } }
                    tbody {
                        @for row in rows {
                            tr {
                                td { (row.case) } td { (row.who) }
                                td .n { (digits(row.nanoseconds)) }
                                td .n { (number(row.lines)) }
                                td .n { (number(row.calls)) }
                                td .n { (number(row.wake_ups)) }
                                td .n { (percent(row.copy_share)) }
                                td .n { (percent(row.memory_share)) }
                                td .n { (percent(row.bare_share)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// All figures of a section.
pub(super) fn cases(section: &Section) -> Markup {
    html! {
        details {
            summary { "All figures" }
            div .wide {
                table {
                    thead { tr {
                        th { "case" } th { "who" } th { "unit" } th .n { "min" } th .n { "median" }
                        th .n { "interval" } th .n { "max" } th .n { "near (n)" }
                        th .n { "far (n)" }
                    } }
                    tbody {
                        @for case in &section.cases {
                            @let (scale, unit) = case.unit.shown();
                            @for line in &case.lines { (row(&case.name, line, scale, unit)) }
                            @for line in &case.ratios { (row(&case.name, line, 1.0, "×")) }
                        }
                    }
                }
            }
        }
    }
}

fn row(case: &str, line: &Line, scale: f64, unit: &str) -> Markup {
    let of = |value: f64| digits(value / scale);
    let class = |figure: Option<Figure>| {
        figure.map_or("-".to_owned(), |f| format!("{} ({})", of(f.median), f.samples))
    };
    html! {
        tr {
            td { (case) }
            td { (line.who) }
            @match line.all {
                Some(all) => {
                    td { (unit) }
                    td .n { (of(all.min)) }
                    td .n { (of(all.median)) }
                    td .n { (of(all.low)) " to " (of(all.high)) }
                    td .n { (of(all.max)) }
                    td .n { (class(line.near)) }
                    td .n { (class(line.far)) }
                },
                None => td colspan="7" {
                    "skipped: " (line.skipped.as_deref().unwrap_or("no sample"))
                },
            }
        }
    }
}
