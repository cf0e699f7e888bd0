use super::super::elsewhere;
use super::super::fixture;
use super::super::sections::SECTIONS;
use super::*;

fn promise(text: &str) -> Promise {
    parse(&format!("[[promise]]\ntext = 'x'\nsection = 'link'\n{text}")).unwrap().remove(0)
}

fn section(cases: Vec<Case>, notes: &[&str]) -> Section {
    let notes = notes.iter().map(|&note| note.to_owned()).collect();
    Section { cases, notes, ..fixture::section("link") }
}

// Goal: every name in the project's table is in the fixture, which was recorded from the program,
// and every section exists.
#[test]
fn the_table_names_what_is_printed() {
    for promise in table().unwrap() {
        let Some(name) = &promise.section else { continue };
        let measured = SECTIONS.iter().map(|section| section.name);
        assert!(
            measured.chain(elsewhere::list().map(|[name, ..]| name)).any(|known| known == name),
            "{name}"
        );
        assert!(fixture::has(name), "{name}");
        let verdict = promise.judge(Some(&fixture::section(name)), false);
        assert!(!verdict.stale, "{}: {}", promise.text, verdict.measured);
        assert_ne!(verdict.outcome, Outcome::NotMeasured, "{}", verdict.measured);
    }
}

// Goal: every section has a fixture; names of a section without one would not be checked.
#[test]
fn every_section_was_recorded() {
    let measured = SECTIONS.iter().map(|section| section.name);
    let missing =
        measured.chain(elsewhere::list().map(|[name, ..]| name)).find(|name| !fixture::has(name));
    assert_eq!(missing, None);
}

// Goal: the median decides. A promise is met if the median is on the bound, and unsure if the
// median's confidence interval includes the bound.
#[test]
fn the_median_is_judged() {
    let ten = |from: f64| -> Vec<f64> { (0..10).map(|n| from + f64::from(n) / 10.0).collect() };
    let case = |from| fixture::case("a", "index", None, &[("mqnet", &ten(from)[..])]);
    let judge =
        |text: &str, from| promise(text).judge(Some(&section(vec![case(from)], &[])), false);
    let at_least = "case = 'a'\nline = 'mqnet'\nat_least = 2.0";
    let kept = judge(at_least, 2.0);
    assert_eq!((kept.outcome, kept.unsure), (Outcome::Met, false));
    let near_miss = judge(at_least, 1.54);
    assert_eq!((near_miss.outcome, near_miss.unsure), (Outcome::Missed, true));
    let at_most = "case = 'a'\nline = 'mqnet'\nat_most = 2.45";
    assert_eq!(judge(at_most, 2.0).outcome, Outcome::Met);
    assert_eq!(judge(at_most, 2.1).outcome, Outcome::Missed);
    let minus = "case = 'a'\nline = 'mqnet'\nminus = 'mqnet'\nat_most = 0.0";
    assert_eq!(judge(minus, 2.0).outcome, Outcome::Met);
}

// Goal: a missed promise has a reason from the table, or is marked as unknown; a kept promise has
// none.
#[test]
fn a_miss_has_a_reason() {
    let case = fixture::case("a", "index", None, &[("mqnet", &[1.0])]);
    let section = section(vec![case], &[]);
    let why = |text: &str| promise(text).judge(Some(&section), false).why;
    let bound = |at_least: f64| format!("case = 'a'\nline = 'mqnet'\nat_least = {at_least:.1}");
    assert_eq!(why(&format!("{}\nwhy = 'far'", bound(2.0))).as_deref(), Some("far"));
    assert!(why(&bound(2.0)).unwrap().starts_with("not known"));
    assert_eq!(why(&format!("{}\nwhy = 'far'", bound(1.0))), None);
}

// Goal: bounds are in the unit of the report.
#[test]
fn bounds_have_the_units_of_the_report() {
    let case = fixture::case("a", "latency", None, &[("mqnet", &[9e6])]);
    let section = section(vec![case], &[]);
    let verdict =
        promise("case = 'a'\nline = 'mqnet'\nat_most = 10000").judge(Some(&section), false);
    assert_eq!((verdict.outcome, verdict.measured.as_str()), (Outcome::Met, "9000"));
}

// Goal: all verdicts in a section's notes with the promised prefix count, and figures in notes are
// parsed.
#[test]
fn notes_are_judged() {
    let notes = [
        "kept: a: lost 0 [] (promised: 0)",
        "MISSED: a: 0.9 (promised: 1)",
        "kept: b: fine",
        "io=uring: 0.016 system calls a frame",
    ];
    let section = section(Vec::new(), &notes);
    let judge = |text: &str| promise(text).judge(Some(&section), false);
    let both = judge("note = 'a'");
    assert_eq!(both.outcome, Outcome::Missed);
    assert_eq!(both.measured, "lost 0 [] (promised: 0); 0.9 (promised: 1)");
    assert_eq!(judge("note = 'b'").outcome, Outcome::Met);
    assert_eq!(judge("note = 'io=uring:'\nat_most = 0.1").outcome, Outcome::Met);
    assert!(judge("note = 'c'").stale);
}

// Goal: a promise is "not measured" if its section has no result, a quick run omits its case, or a
// contender did not take part. A promise with an unknown name is stale instead.
#[test]
fn what_was_not_measured_is_no_verdict() {
    let text = "case = 'a'\nratio = 'mqnet / peer'\nat_least = 1.0";
    let promise = promise(text);
    let skipped = Section { skipped: Some("no root".to_owned()), ..fixture::section("link") };
    let mut case = fixture::case("a", "frames", None, &[("mqnet", &[1.0])]);
    case.lines.push(Line {
        who: "peer".into(),
        skipped: Some("gone".into()),
        all: None,
        near: None,
        far: None,
    });
    let without_peer = section(vec![case], &[]);
    let about_a_note = self::promise("note = 'kicks'\nat_most = 1");
    let verdict = about_a_note.judge(Some(&without_peer), false);
    assert_eq!((verdict.outcome, verdict.stale), (Outcome::NotMeasured, false));
    let unknown = section(Vec::new(), &["kicks unknown: no answer"]);
    let verdict = about_a_note.judge(Some(&unknown), false);
    assert_eq!((verdict.measured.as_str(), verdict.stale), ("kicks unknown: no answer", false));
    let other = section(Vec::new(), &[]);
    let cases = [
        (None, false, "not requested"),
        (Some(&skipped), false, "no root"),
        (Some(&without_peer), false, "gone"),
        (Some(&other), true, "quick"),
    ];
    for (section, quick, reason) in cases {
        let verdict = promise.judge(section, quick);
        assert_eq!((verdict.outcome, verdict.stale), (Outcome::NotMeasured, false));
        assert!(verdict.measured.contains(reason), "{}", verdict.measured);
    }
    let verdict = promise.judge(Some(&other), false);
    assert_eq!((verdict.outcome, verdict.stale), (Outcome::NotMeasured, true));
}

// Goal: an entry that could never be checked is refused, and the error names the entry.
#[test]
fn the_table_is_checked() {
    for wrong in [
        "case = 'a'\nratio = 'b'",
        "case = 'a'\nratio = 'b'\nat_least = 1\nat_most = 2",
        "case = 'a'\nratio = 'b'\nline = 'c'\nat_least = 1",
        "ratio = 'b'\nat_least = 1",
        "case = 'a'\nat_least = 1",
        "note = 'a'\nheld_by = 'b'",
        "case = 'a'\nratio = 'b'\nminus = 'c'\nat_least = 1",
        "case = 'a'\nratio = 'b'\nat_lest = 1",
    ] {
        let text = format!("[[promise]]\ntext = 'x'\nsection = 'link'\n{wrong}");
        assert!(parse(&text).is_err(), "{wrong}");
    }
}
